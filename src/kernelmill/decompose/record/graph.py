"""Export a model's record as JSON, for naming and grouping its parts: every call into torch, in order.

Each entry of `calls` has its location (`scope`, a module's path), the call as the author wrote it with what
it reads (`%7` is the result of call 7, `%7.1` its second one), the outputs with their shapes, and the source
line. `modules` maps paths to classes.
"""

from __future__ import annotations

from typing import Any

from kernelmill.decompose.literals import structure
from kernelmill.decompose.nested import tree_map
from kernelmill.decompose.record.types import Op, Record, Scope, Value


def graph_of(record: Record) -> dict[str, Any]:
    calls = list(record.root.ops())
    names: dict[Value, str] = {value: value.name for value in [*record.inputs, *record.weights.values()]}
    for number, op in enumerate(calls):
        outputs = op.outputs()
        for index, value in enumerate(outputs):
            names[value] = f"%{number}" if len(outputs) == 1 else f"%{number}.{index}"

    def text(tree: Any) -> str:
        if isinstance(tree, Value):
            return names.get(tree, repr(tree.example))
        return structure(tree, text) or repr(tree)

    def call(number: int, op: Op) -> dict[str, Any]:
        arguments = [*map(text, op.args), *(f"{key}={text(value)}" for key, value in op.kwargs.items())]
        found: dict[str, Any] = {
            "call": f"{op.name}({', '.join(arguments)})",
            "scope": op.scope.path,
            "line": op.line,
            "outputs": {names[value]: _form(value) for value in op.outputs()},
        }
        if op.module is not None:
            options = {**op.module.required, **op.module.options}
            found["layer"] = {"path": op.module.path, "options": tree_map(options, _plain)}
            found["weights"] = [value.name for value in op.module.weights.values()]
        return {"id": f"%{number}", **found}

    return {
        "inputs": {value.name: _form(value) for value in record.inputs},
        "weights": {path: _form(value) for path, value in record.weights.items()},
        "modules": {scope.path: scope.kind for scope in _scopes(record.root)},
        "calls": [call(number, op) for number, op in enumerate(calls)],
        "output": text(record.root.output),
        "notes": record.notes,
    }


def _scopes(scope: Scope) -> list[Scope]:
    return [scope, *(one for item in scope.items if isinstance(item, Scope) for one in _scopes(item))]


def _form(value: Value) -> str:
    if value.shape is None:
        return f"{value.dtype} {value.example!r}"
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
