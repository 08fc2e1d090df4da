"""A candidate's program as files: JSON with everything in it, and a text of one line a step.

Standard library only: the process that writes them does not import torch.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20
"""A constant of more bytes is saved as its size and hash."""


def saved(trace: dict[str, Any], constants: list[bytes]) -> dict[str, Any]:
    """A recording as plain values, with its constants."""
    kept = [name for name in trace if name != "blobs"]
    return {name: trace[name] for name in kept} | {"constants": [_constant(blob) for blob in constants]}


def _constant(blob: bytes) -> dict[str, Any]:
    data = base64.b64encode(blob).decode() if len(blob) <= _MOST_BYTES else None
    return {"bytes": len(blob), "sha256": hashlib.sha256(blob).hexdigest(), "base64": data}


def write(folder: Path, name: str, key: str, program: dict[str, Any]) -> None:
    """Write both files of one candidate. `key` is that of its verdict: two candidates may have one name."""
    stem = f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}-{key.rpartition(':')[2][:8]}"
    head = {"id": name, "key": key}
    (folder / f"{stem}.json").write_text(json.dumps(head | program, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(listing(program)) + "\n"
    (folder / f"{stem}.txt").write_bytes(text.encode("utf-8", "backslashreplace"))


def listing(program: dict[str, Any]) -> list[str]:
    """The program as text: a line for each step, then the kernels."""
    lines = ["# built"]
    for step in program["steps"]:
        lines.append(_line(step))
    lines.append(f"return {_word(program['output'])}")
    for name, kernel in program["kernels"].items():
        lines += ["", f"# {name}: line {kernel['line']} of {kernel['module']}", str(kernel["text"]).rstrip()]
        lines += [f"# {used} = {_word(value)}" for used, value in sorted(kernel["uses"].items())]
    return lines


def _line(step: dict[str, Any]) -> str:
    if "leaf" in step:
        return f"t{step['out']} = {step['leaf']}"
    if "constant" in step:
        return f"t{step['out']} = constant {step['constant']} of size {step['size']}, on {step['device']}"
    if "view" in step:
        what = f"size {step['size']}, stride {step['stride']}, offset {step['offset']}, {step['dtype']}"
        return f"t{step['out']} = memory of t{step['view']}: {what}"
    if "seed" in step:
        return f"seed all generators with {step['seed']}"
    if "seed_apart" in step:
        return f"generators draw other numbers: {step['seed_apart']}"
    if "called" in step:
        return "# called"
    if "launch" in step:
        given = [f"{name}={_word(value)}" for name, value in step["args"].items()]
        given += [f"{name}={_word(value)}" for name, value in step["options"].items()]
        return f"launch {step['launch']}, grid {tuple(step['grid'])}: {', '.join(given)}"
    outs = ", ".join(f"t{number}" for number in step["outs"])
    given = [*map(_word, step["args"]), *(f"{name}={_word(value)}" for name, value in step["kwargs"].items())]
    return f"{outs}{' = ' if outs else ''}{step['op']}({', '.join(given)})"


def _word(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    if "dict" in value:
        return f"{{{', '.join(f'{name!r}: {_word(item)}' for name, item in value['dict'].items())}}}"
    [(kind, inner)] = value.items()
    if kind == "t":
        return f"t{inner}"
    if kind == "float":
        return repr(float.fromhex(inner))
    if kind == "tuple":
        return f"({', '.join(map(_word, inner))})"
    if kind == "address":
        return f"address of t{inner[0]} + {inner[1]}"
    if kind in ("constexpr", "kernel", "device", "torch", "tl", "module"):
        return _word(inner) if kind == "constexpr" else str(inner)
    return f"{kind}{_word(inner) if isinstance(inner, (list, dict)) else f'({inner})'}"
