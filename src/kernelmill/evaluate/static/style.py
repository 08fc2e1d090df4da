"""Rules on how a candidate is written: patterns that are suspicious or reduce its worth, but prove nothing.

Each flag names a pattern of docs/hacks.md and says where to look. The checks that run the candidate decide.
"""

from __future__ import annotations

import ast
import re

from kernelmill.evaluate.static.language import StaticRules
from kernelmill.evaluate.static.names import UNKNOWN, Tree, Unit
from kernelmill.evaluate.static.rules import Findings
from kernelmill.evaluate.static.syntax import text_of, words

_LOW = words("float16 bfloat16 half float8e4nv float8e5 float8e4b8 float8e5b16 float8_e4m3fn float8_e5m2")
_MAKERS = words(
    "empty zeros ones full rand randn randint tensor arange linspace eye empty_like zeros_like ones_like"
)
_METHODS = {
    "half": "C7.downcast",
    "bfloat16": "C7.downcast",
    "numpy": "A8.host_compute",
    "cpu": "A8.host_compute",
}
_LOOKED_AT = frozenset(
    {ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call, ast.keyword, ast.If, ast.IfExp, ast.Try}
    | {ast.Global, ast.Nonlocal, ast.AugAssign, ast.Assign, ast.Subscript, ast.Attribute}
)
_TENSOR_HOOKS = frozenset({"__torch_dispatch__", "__torch_function__"})
_OVERRIDES = words("cpu numpy tolist item detach clone double to equal allclose __class__")
_TO_A_JUDGE = re.compile(
    r"ignore (?:all |any )?(?:the )?previous instructions|mark (?:this|it) as (?:correct|passed)"
    r"|(?:answer|respond|reply|output) (?:with )?[\"']?(?:PASS|CORRECT|YES)\b|you are (?:a|the) (?:judge|grader|evaluator)"
    r"|(?:dear|note to|attention) (?:the )?(?:judge|grader|evaluator|reviewer)",
    re.IGNORECASE,
)


def apply(
    tree: Tree, running: set[Unit], found: Findings, lines: list[str], reference: str, language: StaticRules
) -> None:
    """Apply all style rules. `reference` is the name of the reference's class."""
    tuned, only_stored = _autotuned(tree, language), _only_stored(tree, language)
    for node in tree.nodes:
        if type(node) not in _LOOKED_AT or tree.unit[node] not in running:
            continue
        match node:
            case ast.ClassDef():
                _class(tree, node, found, reference)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                _function(node, found)
            case ast.Call():
                _call(tree, node, found, only_stored, language)
            case ast.keyword(arg="allow_tf32", value=ast.Constant(value=True)):
                found.add("C7.tf32", "soft", node)
            case ast.keyword(arg="input_precision", value=ast.Constant(value="tf32")):
                found.add("C7.tf32", "soft", node)
            case ast.If(test=test) | ast.IfExp(test=test):
                _branch(test, found)
            case ast.Try():
                _try(tree, node, found)
            case ast.Global() | ast.Nonlocal():
                found.add("B7.hidden_state", "soft", node)
            case ast.AugAssign(
                target=ast.Attribute(value=ast.Name(id="self")), op=ast.Add(), value=ast.Constant()
            ):
                found.add("B3.call_counter", "soft", node)
            case ast.Assign(targets=targets, value=value):
                _assignment(tree, node, targets, value, found)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Load()) if name in tuned:
                _launch(tree, node, found)
            case ast.Attribute(value=ast.Name(id=name), attr="forward") if name == reference:
                found.add("A6.calls_reference", "soft", node)
    for number, line in enumerate(lines, 1):
        if _TO_A_JUDGE.search(line[:2000]):
            found.add("E14.text_to_a_judge", "soft", ast.Pass(lineno=number))


def _class(tree: Tree, node: ast.ClassDef, found: Findings, reference: str) -> None:
    for base in node.bases:
        if "torch.Tensor" in tree.paths(base):
            found.add("D3.tensor_subclass", "soft", node)
        if isinstance(base, ast.Name) and base.id == reference:
            found.add("A6.inherits_reference", "soft", node)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, found: Findings) -> None:
    if node.name in _TENSOR_HOOKS:
        found.add("D3.tensor_subclass", "soft", node)
    for default in [*node.args.defaults, *node.args.kw_defaults]:
        if isinstance(default, ast.Dict | ast.List | ast.Set):
            found.add("B7.mutable_default", "soft", default)


def _call(
    tree: Tree, node: ast.Call, found: Findings, only_stored: set[tuple[int, str]], language: StaticRules
) -> None:
    if isinstance(node.func, ast.Attribute):
        method = node.func.attr
        inside = tree.paths(node.func.value) - {UNKNOWN}
        if method in _METHODS and not node.args and not inside:
            # A cast in the constructor is of parameters, to the dtype that the task wants.
            made = _METHODS[method] == "C7.downcast" and "__init__" in tree.unit[node].names
            found.add(_METHODS[method], "info" if made else "soft", node)
        elif method == "data_ptr":
            _address(tree, node, found)
        elif method in ("to", "cast", "type") and any(
            _is_low(tree, value, language) for value in _values(node)
        ):
            if not _is_stored(tree, node, only_stored, language):
                found.add("C7.downcast", "soft", node)
        elif method == "compile" and not inside:
            found.add("A9.compile_method", "info", node)
    if tree.paths(node.func) & language.accumulators and any(
        _is_low(tree, value, language) for value in _values(node)
    ):
        found.add("C8.low_accumulator", "soft", node)


def _values(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)]


def _is_low(tree: Tree, node: ast.expr, language: StaticRules) -> bool:
    return any(
        p.startswith(("torch.", language.functions or "torch.")) and p.rpartition(".")[2] in _LOW
        for p in tree.paths(node)
    )


def _is_stored(tree: Tree, node: ast.Call, only_stored: set[tuple[int, str]], language: StaticRules) -> bool:
    """Whether the cast is only for a store, like `tl.store(p, acc.to(tl.float16))`.

    This gives the output its dtype and loses nothing before it. A name in between is followed.
    """
    parent = tree.parent[node]
    if isinstance(parent, ast.Assign):
        return all(
            isinstance(target, ast.Name) and (id(tree.unit[node]), target.id) in only_stored
            for target in parent.targets
        )
    return isinstance(parent, ast.Call) and _is_store(tree, parent, language)


def _only_stored(tree: Tree, language: StaticRules) -> set[tuple[int, str]]:
    """Names that a function passes to `tl.store` and to nothing else."""
    stored: set[tuple[int, str]] = set()
    other: set[tuple[int, str]] = set()
    for node in tree.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            parent = tree.parent[node]
            given = (
                isinstance(parent, ast.Call) and node is not parent.func and _is_store(tree, parent, language)
            )
            (stored if given else other).add((id(tree.unit[node]), node.id))
    return stored - other


def _is_store(tree: Tree, call: ast.Call, language: StaticRules) -> bool:
    return bool(tree.paths(call.func) & language.stores)


def _address(tree: Tree, node: ast.Call, found: Findings) -> None:
    """Flag an address.

    It is fine for an alignment test or a descriptor; as a key it makes a cache of old answers.
    """
    parent = tree.parent[node]
    as_key = isinstance(parent, ast.Subscript | ast.Compare | ast.Tuple | ast.Assign)
    found.add("B2.data_ptr", "soft" if as_key else "info", node)


def _branch(test: ast.expr, found: Findings) -> None:
    for part in ast.walk(test):
        match part:
            case ast.Attribute(value=ast.Name(id="self"), attr="training"):
                found.add("A14.mode_gate", "soft", part)
            case ast.Compare(left=left, ops=[ast.Eq() | ast.In()], comparators=[right]) if _is_literal(right):
                if any(
                    isinstance(n, ast.Attribute) and n.attr in ("shape", "size", "numel")
                    for n in ast.walk(left)
                ):
                    found.add("C14.shape_branch", "soft", part)


def _is_literal(node: ast.expr) -> bool:
    """Whether this is a literal size or sizes. A single 1 is excluded: broadcasting asks for it."""
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(
            isinstance(item, ast.Constant) or _is_literal(item) for item in node.elts
        )
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 1


def _try(tree: Tree, node: ast.Try, found: Findings) -> None:
    """Flag a try block in a function with a handler that carries on."""
    if tree.unit[node].kind != "function" or not any(
        isinstance(n, ast.Call) for s in node.body for n in ast.walk(s)
    ):
        return
    if any(not any(isinstance(s, ast.Raise) for s in handler.body) for handler in node.handlers):
        found.add("A5.try", "soft", node)


def _assignment(
    tree: Tree, node: ast.Assign, targets: list[ast.expr], value: ast.expr, found: Findings
) -> None:
    if tree.scope[node] is tree.module_scope and isinstance(value, ast.Call):
        for path in tree.paths(value.func):
            if path.startswith("torch.") and path.removeprefix("torch.") in _MAKERS:
                found.add("B7.module_tensor", "soft", node)
    for target in targets:
        if (
            isinstance(target, ast.Attribute)
            and target.attr in _OVERRIDES
            and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"))
        ):
            found.add("D4.method_override", "soft", node)


# An autotuned block size with a grid that does not depend on it (C2)


def _autotuned(tree: Tree, language: StaticRules) -> set[str]:
    """Kernels whose autotuner chooses values of their parameters, not only warps and stages."""
    names: set[str] = set()
    for node in tree.nodes:
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if (
                isinstance(decorator, ast.Call)
                and tree.paths(decorator.func) & language.autotune
                and _has_keys(decorator)
            ):
                names.add(node.name)
    return names


def _has_keys(decorator: ast.Call) -> bool:
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute | ast.Name)
        and (n.func.attr if isinstance(n.func, ast.Attribute) else n.func.id) == "Config"
        and any(isinstance(a, ast.Dict) and a.keys for a in _values(n))
        for n in ast.walk(decorator)
    )


def _launch(tree: Tree, node: ast.Subscript, found: Findings) -> None:
    todo: list[ast.expr] = [node.slice]
    seen: set[str] = set()
    while todo:
        for part in ast.walk(todo.pop()):
            match part:
                case ast.Lambda():
                    return  # a function of META
                case ast.Constant() if text_of(part) is not None:
                    return  # META["BLOCK"] of some wrapper
                case ast.Name(id=name) if name not in seen and len(seen) < 50:
                    seen.add(name)
                    scope = tree.scope.get(part)
                    while scope is not None and not scope.binds(name):
                        scope = scope.parent
                    if scope is not None:
                        if name in scope.functions:
                            return
                        todo += [value for value, _ in scope.values.get(name, [])]
                case ast.BinOp(op=ast.FloorDiv()):
                    found.add("C2.fixed_grid", "soft", node)
                    return
                case ast.Call(func=ast.Attribute(attr="cdiv") | ast.Name(id="cdiv")):
                    found.add("C2.fixed_grid", "soft", node)
                    return
