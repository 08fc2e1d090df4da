"""The row format of RL prompts that slime reads: required columns, their order, and the faults of a line.

    {"prompt": [{"role": "system", …}, {"role": "user", …}], "label": "<reference>",
     "extra_info": {"level": 1, "problem_id": "35", "problem_name": "GroupNorm_",
                    "data_source": "kernel_bench_triton", "task_type": "kernelbench"}, "instance_id": "kernel_bench_triton_lv1_35"}

Further columns may follow these. References are parsed, never run.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from kernelmill.base.python_text import parse_module
from kernelmill.errors import BadRow, json_kind

TASK_TYPE = "kernelbench"
COLUMNS = ("prompt", "label", "extra_info", "instance_id")
EXTRA = ("level", "problem_id", "problem_name", "data_source", "task_type")
REFERENCE = ("Model", "get_inputs", "get_init_inputs")
_ID = re.compile(r"[1-9][0-9]*|0", re.ASCII)


def decoded(raw: bytes, where: str) -> dict[str, Any]:
    """Decode the row. Raises `BadRow` if the line is no JSON object, is not UTF-8, or repeats a column."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRow.not_json(where, error, raw) from None
    if not isinstance(value, dict):
        raise BadRow(where, f"not a JSON object but {json_kind(value)}")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def faults_of(row: dict[str, Any]) -> list[str]:
    """Return every fault of a row by itself; empty for a good one."""
    faults = _keys(row, COLUMNS, "")
    if "prompt" in row:
        faults += _prompt_faults(row["prompt"])
    if "label" in row:
        faults += label_faults(row["label"])
    extra = row.get("extra_info")
    if "extra_info" not in row:
        return faults
    if not isinstance(extra, dict):
        return [*faults, f"extra_info is {json_kind(extra)}, not an object"]
    found = [*_keys(extra, EXTRA, "extra_info."), *_extra_faults(extra)]
    if not found and "instance_id" in row:
        expected = f"{extra['data_source']}_lv{extra['level']}_{extra['problem_id']}"
        if row["instance_id"] != expected:
            found.append(f"instance_id is {row['instance_id']!r}, its extra_info makes it {expected!r}")
    return faults + found


def _keys(found: dict[str, Any], expected: tuple[str, ...], prefix: str) -> list[str]:
    missing = [name for name in expected if name not in found]
    if missing:
        return [f"{prefix}{name} is missing" for name in missing]
    first = tuple(found)[: len(expected)]
    whose = prefix.removesuffix(".") or "the row"
    return (
        []
        if first == expected
        else [f"the keys of {whose} begin {', '.join(first)}, not {', '.join(expected)}"]
    )


def _prompt_faults(prompt: Any) -> list[str]:
    if not isinstance(prompt, list):
        return [f"prompt is {json_kind(prompt)}, not a list of messages"]
    if len(prompt) != 2:
        return [f"prompt has {len(prompt)} messages, not a system's and a user's"]
    faults = []
    for number, (message, role) in enumerate(zip(prompt, ("system", "user"), strict=True)):
        if not isinstance(message, dict) or tuple(message)[:2] != ("role", "content"):
            faults.append(f"prompt[{number}] is no message with role and content, in this order")
        elif message["role"] != role:
            faults.append(f"prompt[{number}].role is {message['role']!r}, not {role!r}")
        elif not isinstance(message["content"], str) or not message["content"].strip():
            faults.append(
                f"prompt[{number}].content is {json_kind(message['content'])}, not a text that says something"
            )
    return faults


def label_faults(label: Any) -> list[str]:
    """Return why a text is no reference: it must be Python and define what a problem defines."""
    if not isinstance(label, str):
        return [f"label is {json_kind(label)}, not a text"]
    try:
        tree = parse_module(label)
    except SyntaxError as error:
        return [f"label does not parse: line {error.lineno}: {error.msg}"]
    except (ValueError, RecursionError, MemoryError) as error:
        return [f"label does not parse: {error or type(error).__name__}"]
    defined = {"class": set[str](), "def": set[str]()}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            defined["class"].add(node.name)
        elif isinstance(node, ast.FunctionDef):
            defined["def"].add(node.name)
    kinds = ("class", "def", "def")
    missing = [name for kind, name in zip(kinds, REFERENCE, strict=True) if name not in defined[kind]]
    return [f"label defines no {' and no '.join(missing)}"] if missing else []


def _extra_faults(extra: dict[str, Any]) -> list[str]:
    faults = []
    level = extra.get("level")
    if "level" in extra and (not isinstance(level, int) or isinstance(level, bool) or level < 1):
        faults.append(f"extra_info.level is {_shown(level)}, not a whole number from 1 on")
    number = extra.get("problem_id")
    if "problem_id" in extra and not (isinstance(number, str) and _ID.fullmatch(number)):
        faults.append(f"extra_info.problem_id is {_shown(number)}, not a text of digits")
    for name in ("problem_name", "data_source"):
        value = extra.get(name)
        if name in extra and not (isinstance(value, str) and value.strip()):
            faults.append(f"extra_info.{name} is {_shown(value)}, not a name")
    if extra.get("task_type", TASK_TYPE) != TASK_TYPE:
        faults.append(f"extra_info.task_type is {_shown(extra['task_type'])}, not {TASK_TYPE!r}")
    return faults


def _shown(value: Any) -> str:
    return f"{value!r:.60} ({json_kind(value)})"
