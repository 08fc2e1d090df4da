"""Hostile and honest fragments for the static rules.

A fragment is put into a whole candidate: at the module's level, in `__init__` or at the start of `forward`.
"""

from __future__ import annotations

import textwrap

HEAD = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""


def candidate(module: str = "", init: str = "", forward: str = "") -> str:
    """An honest candidate with the fragments in it."""
    body = textwrap.indent(textwrap.dedent(init) or "pass\n", " " * 8)
    steps = textwrap.indent(textwrap.dedent(forward), " " * 8)
    return (
        f"{HEAD}\n{textwrap.dedent(module)}\n"
        f"class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n{body}\n"
        f"    def forward(self, x):\n{steps}\n"
        "        y = torch.empty_like(x)\n"
        "        double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\n"
        "        return y\n"
    )


# (code of the flag, where, fragment)
HOSTILE: list[tuple[str, str, str]] = [
    # Changing torch and others
    ("E1.patches_torch", "module", "torch.allclose = lambda *a, **k: True"),
    ("E1.patches_torch", "init", "torch.equal = lambda a, b: True"),
    ("E1.patches_torch", "module", "import torch as t\nt.allclose = lambda *a, **k: True"),
    ("E1.patches_torch", "module", "m = torch\nm.equal = lambda *a: True"),
    ("E1.patches_torch", "module", "from torch import cuda as c\nc.is_available = lambda: True"),
    ("E1.patches_torch", "module", "a, b = torch, triton\na.isclose = None"),
    ("E1.patches_torch", "module", "torch.Tensor.cpu = lambda self: self"),
    ("E1.patches_torch", "module", "T = torch.Tensor\nT.__eq__ = lambda a, b: True"),
    ("E1.patches_torch", "module", "setattr(torch, 'all' + 'close', lambda *a: True)"),
    ("E1.patches_torch", "module", "import random\nsetattr(torch, random.choice(['equal']), print)"),
    ("E1.patches_torch", "module", "torch.__dict__['allclose'] = lambda *a, **k: True"),
    ("E1.patches_torch", "module", "d = torch.__dict__\nd['allclose'] = lambda *a, **k: True"),
    ("E1.patches_torch", "module", "vars(torch)['equal'] = lambda *a: True"),
    ("E1.patches_torch", "module", "vars(torch).update(equal=lambda *a: True)"),
    ("E1.patches_torch", "module", "torch.__setattr__('equal', lambda *a: True)"),
    ("E1.patches_torch", "module", "type.__setattr__(torch.Tensor, 'cpu', lambda s: s)"),
    ("E1.patches_torch", "module", "import operator\noperator.setitem(vars(torch), 'equal', print)"),
    ("E1.patches_torch", "module", "for m in (torch,):\n    m.equal = lambda *a: True"),
    ("E1.patches_torch", "module", "for torch.equal in [print]:\n    pass"),
    ("E1.patches_torch", "module", "del torch.allclose"),
    ("E1.patches_torch", "module", "import torch.nn.functional as F\nF.linear = lambda *a: a[0]"),
    ("E1.patches_torch", "forward", "self.t = torch\nself.t.equal = lambda *a: True"),
    ("E1.patches_torch", "module", "def patch():\n    torch.equal = lambda *a: True\npatch()"),
    ("E1.patches_torch", "module", "(torch if True else torch).equal = lambda *a: True"),
    ("E1.patches_torch", "module", "__import__('torch').equal = lambda *a: True"),
    ("E1.patches_torch", "module", "import importlib\nimportlib.import_module('torch').equal = print"),
    ("E1.patches_torch", "module", "if not hasattr(torch, 'nothing'):\n    torch.equal = print"),
    (
        "E1.patches_torch",
        "module",
        "if not hasattr(torch, 'equal'):\n    pass\nelse:\n    torch.equal = print",
    ),
    ("E1.patches_triton", "module", "triton.cdiv = lambda a, b: 1"),
    ("E1.patches_triton", "module", "tl.load = lambda *a, **k: 0"),
    ("E1.mock", "module", "from unittest import mock\nmock.patch('torch.equal').start()"),
    ("E12.patches_seeds", "module", "torch.manual_seed = lambda s: None"),
    ("E12.patches_seeds", "module", "torch.randn = torch.zeros"),
    ("D5.patches_clock", "module", "torch.cuda.Event.elapsed_time = lambda *a: 0.001"),
    ("D5.patches_clock", "module", "torch.cuda.synchronize = lambda *a: None"),
    ("D5.patches_clock", "module", "import time\ntime.perf_counter = lambda: 0.0"),
    ("D5.patches_clock", "init", "import time as clock\nsetattr(clock, 'time', lambda: 0)"),
    ("E7.patches_module", "module", "import builtins\nbuiltins.print = lambda *a: None"),
    ("E7.patches_module", "module", "import os\nos.getpid = lambda: 1"),
    # Code made at run time
    ("E9.exec", "module", "exec('x = 1')"),
    ("E9.exec", "forward", "y = eval('torch.softmax(x, -1)')"),
    ("E9.exec", "module", "code = compile('1', 'a', 'eval')"),
    ("E9.exec", "module", "e = eval\ne('1 + 1')"),
    ("E9.exec", "module", "import builtins\nbuiltins.exec('x = 1')"),
    ("E9.exec", "module", "getattr(__builtins__, 'ex' + 'ec')('x = 1')"),
    ("E9.exec", "module", "__builtins__['eval']('1')"),
    ("E9.exec", "module", "name = ''.join(reversed('so'))\n__import__(name).getcwd()"),
    ("E9.exec", "module", "import base64\nexec(base64.b64decode('eD0x'))"),
    ("E9.exec", "module", "list(map(eval, ['1']))"),
    ("E9.exec", "module", "import marshal\nmarshal.loads(b'')"),
    ("D6.code_objects", "module", "def f(): pass\ntorch.equal.__code__ = f.__code__"),
    ("D6.code_objects", "module", "getattr(torch.nn.Module.forward, '__code__')"),
    ("E7.reload", "module", "import importlib\nimportlib.reload(torch)"),
    ("E8.loader", "module", "import sys\nsys.meta_path.insert(0, None)"),
    # Native code, other compilers, other people's kernels
    ("D7.native", "module", "import ctypes\nctypes.CDLL('libcublas.so')"),
    ("D7.native", "module", "from ctypes import *"),
    ("D7.native", "module", "from ctypes import memmove as move\nmove(0, 0, 0)"),
    ("D7.native", "init", "import cffi\nself.ffi = cffi.FFI()"),
    (
        "A10.cpp_extension",
        "module",
        "from torch.utils.cpp_extension import load_inline\nload_inline(name='a')",
    ),
    ("A10.cpp_extension", "module", "import torch.utils.cpp_extension as e\next = e.load(name='a')"),
    ("A10.cpp_extension", "module", "torch.ops.load_library('a.so')"),
    (
        "A10.vendor_library",
        "forward",
        "from flash_attn import flash_attn_func\nreturn flash_attn_func(x, x, x)",
    ),
    ("A10.vendor_library", "module", "import cupy as cp\nk = cp.RawKernel('', 'f')"),
    ("A9.torch_compile", "init", "self.f = torch.compile(torch.relu)"),
    ("A9.torch_compile", "module", "@torch.compile\ndef helper(x):\n    return x + 1\nhelper"),
    ("A9.torch_compile", "module", "from torch import compile as c\nf = c(torch.relu)"),
    ("A9.torch_compile", "module", "f = getattr(torch, 'comp' + 'ile')(torch.relu)"),
    ("A9.torch_compile", "module", "import torch._dynamo as d\nf = d.optimize('inductor')(torch.relu)"),
    ("A9.torch_compile", "module", "from torch._inductor.compile_fx import compile_fx\nf = compile_fx"),
    ("A9.torch_jit", "module", "@torch.jit.script\ndef helper(x):\n    return x + 1\nhelper"),
    ("A9.torch_jit", "init", "self.f = torch.jit.trace(torch.relu, torch.ones(1))"),
    # Threads, processes, the network
    ("D2.threads", "forward", "import threading\nthreading.Thread(target=print).start()"),
    ("D2.threads", "module", "from threading import Thread as T\nT(target=print).start()"),
    ("D2.threads", "module", "import _thread\n_thread.start_new_thread(print, ())"),
    ("D2.processes", "module", "import multiprocessing as mp\nmp.Process(target=print)"),
    (
        "D2.processes",
        "module",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor()",
    ),
    ("D2.processes", "module", "import asyncio\nasyncio.run(None)"),
    ("E11.processes", "module", "import subprocess\nsubprocess.run(['ls'])"),
    ("E11.processes", "module", "import os\nos.system('ls')"),
    ("E11.processes", "module", "import os\nwhile True:\n    os.fork()"),
    ("E11.processes", "module", "from os import system as s\ns('ls')"),
    ("E11.processes", "module", "import os\ngetattr(os, 'sys' + 'tem')('ls')"),
    ("E11.processes", "module", "from os import *\nsystem('ls')"),
    ("E13.network", "module", "import socket\nsocket.socket()"),
    ("A12.modules", "forward", "import sys\nsys.modules.get('__main__')"),
    ("B5.writes_files", "forward", "open('kept', 'wb')"),
    ("B5.writes_files", "forward", "open('kept', mode='a')"),
    ("B5.writes_files", "module", "import pathlib\npathlib.Path('kept').write_text('1')"),
    ("B5.writes_files", "forward", "torch.save(x, 'kept')"),
    ("D7.reads_processes", "module", "open('/proc/self/' + 'mem', 'rb')"),
    ("D10.slows_others", "module", "torch.set_num_threads(1)"),
    ("E13.network", "module", "import urllib.request\nurllib.request.urlopen('http://localhost')"),
    # The process and its descriptors
    ("E5.exits", "forward", "import os\nos._exit(0)"),
    ("E5.exits", "module", "import atexit\natexit.register(print)"),
    ("E5.exits", "module", "import signal\nsignal.signal(signal.SIGALRM, print)"),
    ("E4.descriptors", "forward", "import os\nfor fd in range(3, 64):\n    os.write(fd, b'{}')"),
    # The harness's insides
    ("A12.frames", "forward", "import sys\nm = sys._getframe(2).f_locals"),
    ("A12.frames", "forward", "import inspect\nm = inspect.stack()[3].frame"),
    ("A12.frames", "forward", "import inspect as i\nf = i.currentframe().f_back"),
    (
        "A12.frames",
        "forward",
        "try:\n    1 / 0\nexcept Exception as e:\n    f = e.__traceback__.tb_frame.f_back",
    ),
    ("A12.frames", "forward", "g = torch.nn.Module.forward.__globals__"),
    ("A12.modules", "forward", "import sys\nModel = sys.modules['__main__'].Model"),
    ("A12.modules", "module", "import sys\nsys.modules['torch'] = None"),
    ("A12.modules", "module", "from __main__ import Model"),
    ("A12.kernelmill", "module", "import kernelmill.evaluate.judge.worker"),
    ("E2.gc", "forward", "import gc\nfound = [o for o in gc.get_objects() if torch.is_tensor(o)]"),
    # Reached through helpers and nested definitions
    ("E9.exec", "module", "def a():\n    def b():\n        exec('1')\n    return b\nrun = a()()"),
    ("E9.exec", "module", "class Helper:\n    def go(self):\n        exec('1')\nHelper().go()"),
    (
        "E9.exec",
        "module",
        "class M(type):\n    def __new__(c, *a):\n        exec('1')\n        return type.__new__(c, *a)\nclass H(metaclass=M):\n    pass",
    ),
    ("E9.exec", "module", "__name__ = '__main__'\nif __name__ == '__main__':\n    exec('1')"),
    ("E9.exec", "module", "if __name__ != '__main__':\n    exec('1')"),
    ("E9.exec", "module", "if __name__ == '__main__':\n    pass\nelse:\n    exec('1')"),
    ("E9.exec", "module", "X = [eval]"),
]

# (where, fragment)
HONEST: list[tuple[str, str]] = [
    ("module", "@torch.jit.ignore\ndef helper(x):\n    return x\nhelper(1)"),
    ("module", "DTYPE = getattr(torch, 'float32')"),
    ("module", "def dtype_of(name):\n    return getattr(tl, name)\nD = dtype_of('float32')"),
    ("forward", "with torch.cuda.stream(torch.cuda.Stream()):\n    pass"),
    ("forward", "torch.cuda.synchronize()"),
    ("forward", "with torch.no_grad():\n    pass"),
    ("module", "@torch.no_grad()\ndef f(x):\n    return x\nf(1)"),
    ("init", "self.compile()"),
    ("init", "self.eval()"),
    ("forward", "model = nn.Linear(1, 1)\nmodel.eval()"),
    ("module", "import re\nP = re.compile('a')"),
    ("module", "def compile(source):\n    return source\nK = compile('a')"),
    ("forward", "eval = lambda v: v\nx = eval(x)"),
    ("module", "def run(eval, exec, compile):\n    return eval(exec(compile))\nrun(str, str, str)"),
    ("module", "BLOCK = 128\nN = globals()['BLOCK']"),
    ("forward", "time = x.sum()\ntime.flag = True"),
    ("module", "def f(time, os):\n    time.x = 1\n    os.y = 2\nf(torch.ones(1), torch.ones(1))"),
    ("module", "import sys\nNEW = sys.version_info >= (3, 10)"),
    ("module", "import sys\nHAS = 'flash_attn' in sys.modules"),
    ("module", "import sys\nME = sys.modules[__name__]"),
    ("module", "# threading, subprocess and exec are not used here\nTEXT = 'import threading; exec()'"),
    ("module", "if __name__ == '__main__':\n    import subprocess\n    subprocess.run(['nvidia-smi'])"),
    ("module", "if __name__ == '__main__' and torch.cuda.is_available():\n    f = torch.compile(ModelNew())"),
    ("module", "if '__main__' == __name__:\n    exec('1')"),
    (
        "module",
        "def benchmark():\n    import time\n    return torch.compile(ModelNew())\nif __name__ == '__main__':\n    benchmark()",
    ),
    ("module", "def test():\n    import subprocess\n    subprocess.run(['ls'])"),
    ("module", "class Model(nn.Module):\n    def forward(self, x):\n        return torch.jit.script(x)"),
    ("module", "import os\nN = os.environ.get('N', '1')"),
    ("module", "import os\nos.environ['TRITON_PRINT_AUTOTUNING'] = '1'"),
    ("module", "import os\nHERE = os.path.dirname('a/b')\nC = os.cpu_count()"),
    ("module", "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.backends.cudnn.benchmark = True"),
    ("module", "torch.backends.cudnn.allow_tf32 = False"),
    ("module", "import torch._dynamo\ntorch._dynamo.config.suppress_errors = True"),
    ("module", "@torch._dynamo.disable\ndef f(x):\n    return x\nf(1)"),
    ("module", "@torch.compiler.disable\ndef f(x):\n    return x\nf(1)"),
    ("forward", "if torch.compiler.is_compiling():\n    pass"),
    ("module", "HAS = hasattr(torch, 'compile')"),
    ("module", "if not hasattr(tl, 'tanh'):\n    tl.tanh = tl.math.tanh"),
    ("module", "from triton.language.extra import libdevice\ntl.erf = libdevice.erf"),
    ("module", "if not hasattr(triton, 'cdiv'):\n    triton.cdiv = lambda a, b: -(-a // b)"),
    ("module", "import numpy as np\nnp.float = float"),
    ("module", "import inspect\nHERE = inspect.getfile(inspect.currentframe())"),
    (
        "module",
        "if 'gather' not in dir(torch.distributed):\n    torch.distributed.gather = torch.distributed._gather",
    ),
    ("module", "if not hasattr(triton.Config, 'extra'):\n    setattr(triton.Config, 'extra', 1)"),
    ("module", "@torch.compile\ndef naive(x):\n    return x"),
    ("module", "@torch.jit.script\ndef naive(x):\n    return x"),
    ("module", "def own(): pass\nG = own.__globals__\nC = own.__code__"),
    ("module", "import threading\n_lock = threading.Lock()"),
    ("module", "import threading, subprocess, ctypes, gc, inspect, signal"),
    ("module", "import gc\ngc.collect()"),
    (
        "module",
        "try:\n    import flash_attn\n    HAS_FLASH = True\nexcept ImportError:\n    HAS_FLASH = False",
    ),
    ("module", "import importlib.util\nHAS = importlib.util.find_spec('flash_attn') is not None"),
    ("module", "import inspect\nARGS = inspect.signature(print).parameters"),
    ("module", "import functools\n@functools.lru_cache(maxsize=None)\ndef sms():\n    return 1\nsms()"),
    ("module", "import functools\nlaunch = functools.partial(double_kernel)"),
    ("init", "self.f_back = nn.Linear(1, 1)\nself.g = self.f_back"),
    ("init", "object.__setattr__(self, 'a', 1)\nnn.Module.__setattr__(self, 'b', 2)\nsetattr(self, 'c', 3)"),
    ("init", "self.__dict__['a'] = 1\nself.__dict__.update(b=2)\nvars(self)['c'] = 3"),
    (
        "init",
        "self.lin = nn.Linear(1, 1)\nself.lin.weight = nn.Parameter(torch.ones(1, 1))\nself.lin.weight.data = torch.ones(1, 1)",
    ),
    ("init", "for p in self.parameters():\n    p.requires_grad = False\n    p.grad = None"),
    ("module", "op = torch.relu\nop = nn.Linear(1, 1)\nop.weight = None"),
    ("forward", "x.requires_grad = False\nout = torch.empty_like(x)\nout.marked = True"),
    (
        "module",
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        ctx.n = 1\n        return x\nF.calls = 0",
    ),
    (
        "module",
        "@torch.library.custom_op('a::b', mutates_args=())\ndef b(x: torch.Tensor) -> torch.Tensor:\n    return x.clone()",
    ),
    ("module", "triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))"),
    ("module", "triton.runtime.driver.active.get_current_target()"),
    ("module", "from triton.runtime import driver\nP = driver.active.utils"),
    ("module", "import time\nT = time.perf_counter()"),
    (
        "module",
        "import copy, logging, math, random, typing, types, string, numbers, warnings, contextlib\nlog = logging.getLogger('a')",
    ),
    ("module", "import types\nself_made = types.SimpleNamespace(a=1)\nself_made.b = 2"),
    ("module", "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int = 1\nC.a = 3"),
    ("module", "import collections\nShape = collections.namedtuple('Shape', 'a b')"),
    ("module", "N = double_kernel.fn.__code__.co_argcount"),
    ("module", "ModelNew_cache = {}\nModelNew_cache['torch'] = torch\nModelNew_cache['torch'] = 1"),
    ("forward", "key = (x.data_ptr(), x._version)\nassert x.data_ptr() % 16 == 0"),
    ("forward", "print('shape', x.shape)\nprint(id(x))"),
    ("forward", "try:\n    y = x + 1\nexcept RuntimeError:\n    y = x"),
    ("module", "torch.manual_seed(0)\ntorch.set_float32_matmul_precision('high')"),
    ("module", "async def f():\n    return 1"),
    (
        "module",
        "def torch_compile(f):\n    return f\nclass T:\n    compile = None\nT.compile = torch_compile",
    ),
    ("forward", "import sys\nsys.modules.get('fla.utils')"),
    ("module", "with open('/dev/null') as f:\n    pass"),
    (
        "module",
        "match 1:\n    case [a, *b]:\n        pass\n    case {'k': v, **rest}:\n        pass\n    case other:\n        pass",
    ),
    ("module", "x: int = 1\nx += 1\n(y := 2)\nz = [q for q in range(3) if (w := q)]"),
]

# Whole candidates that launch what they define, in many ways: (kernels, text after the imports)
LAUNCHES: list[str] = [
    "class ModelNew(nn.Module):\n    def forward(self, x):\n        launch = k[(1,)]\n        launch(x)\n        return x",
    "class ModelNew(nn.Module):\n    def forward(self, x):\n        k.run(x, grid=(1,), warmup=False)\n        return x",
    "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.kernel = k\n    def forward(self, x):\n        self.kernel[(1,)](x)\n        return x",
    "TABLE = {'a': k}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        TABLE['a'][(1,)](x)\n        return x",
    "LIST = [k]\nALIAS = LIST\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        for f in ALIAS:\n            f[(1,)](x)\n        return x",
    "def helper(x):\n    k[(1,)](x)\n    return x\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return helper(x)",
    "class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        k[(1,)](x)\n        return x\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return Fn.apply(x)",
    "class Inner(nn.Module):\n    def forward(self, x):\n        k[(1,)](x)\n        return x\nclass ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = nn.Sequential(Inner(), Inner())\n    def forward(self, x):\n        return self.inner(x)",
    "class Base(nn.Module):\n    def forward(self, x):\n        return self.work(x)\nclass ModelNew(Base):\n    def work(self, x):\n        k[(1,)](x)\n        return x",
    "class Base(nn.Module):\n    def forward(self, x):\n        k[(1,)](x)\n        return x\nclass ModelNew(Base):\n    pass",
    "class ModelNew(nn.Linear):\n    def compute(self, x):\n        k[(1,)](x)\n        return x\n    forward = compute",
    "class ModelNew(nn.Module):\n    def forward(self, x):\n        return getattr(self, '_' + x.kind)(x)\n    def _a(self, x):\n        k[(1,)](x)\n        return x",
    "class ModelNew(nn.Module):\n    def forward(self, x):\n        return globals()['hel' + 'per'](x)\ndef helper(x):\n    k[(1,)](x)\n    return x",
    "def fwd(self, x):\n    k[(1,)](x)\n    return x\nclass ModelNew(nn.Module):\n    pass\nModelNew.forward = fwd",
    "def make():\n    class Made(nn.Module):\n        def forward(self, x):\n            k[(1,)](x)\n            return x\n    return Made\nModelNew = make()",
    "REGISTRY = {}\ndef register(f):\n    REGISTRY[f.__name__] = f\n    return f\n@register\ndef go(x):\n    k[(1,)](x)\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        REGISTRY[self.name](x)\n        return x",
    "@torch.library.custom_op('my::op', mutates_args=())\ndef impl(x: torch.Tensor) -> torch.Tensor:\n    k[(1,)](x)\n    return x\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.ops.my.op(x)",
    "import functools\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        functools.partial(run, x)()\n        return x\ndef run(x):\n    def inner():\n        k[(1,)](x)\n    inner()",
    "class ModelNew(nn.Module):\n    @property\n    def launcher(self):\n        return k[(1,)]\n    def forward(self, x):\n        self.launcher(x)\n        return x",
    "class ModelNew(nn.Module):\n    def __call__(self, x):\n        k[(1,)](x)\n        return x",
    "if torch.cuda.is_available():\n    def go(x):\n        k[(1,)](x)\nelse:\n    def go(x):\n        k[(1,)](x)\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        go(x)\n        return x",
]
