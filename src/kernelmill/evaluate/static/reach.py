"""Find out which parts of a candidate may run, and which of its kernels may be launched.

A definition is live if live code mentions its name in any way. The module's own statements and the
candidate's class are live to begin with. This over-approximates by design: an honest kernel must never be
called dead. If names are looked up at run time (`looks_names_up`), every kernel may be launched. Whether a
kernel is actually launched, and matters, is found out by running it.
"""

from __future__ import annotations

import ast

from kernelmill.evaluate.static.language import StaticRules
from kernelmill.evaluate.static.names import UNKNOWN, Tree, Unit
from kernelmill.evaluate.static.syntax import text_of, words

# Methods that torch calls by itself.
_HOOKS = words(
    "forward backward setup_context jvp vmap apply train eval to cuda cpu half float double type state_dict "
    "load_state_dict _load_from_state_dict _save_to_state_dict _apply _call_impl _get_name extra_repr "
    "reset_parameters get_extra_state set_extra_state parameters named_parameters buffers named_buffers modules "
    "children requires_grad_ zero_grad register_parameter register_buffer"
)
_KNOWN_BASES = frozenset(
    {
        "torch.nn.Module",
        "torch.nn.modules.Module",
        "torch.nn.modules.module.Module",
        "torch.autograd.Function",
        "torch.autograd.function.Function",
        "builtins.object",
        "abc.ABC",
        "enum.Enum",
        "enum.IntEnum",
        "typing.NamedTuple",
        "typing.Protocol",
    }
)
# Decorators that neither call the function at once nor pass it on.
_QUIET_DECORATORS = (
    "functools.",
    "builtins.staticmethod",
    "builtins.classmethod",
    "builtins.property",
    "contextlib.",
    "dataclasses.dataclass",
    "abc.abstractmethod",
    "typing.",
    "torch.no_grad",
    "torch.enable_grad",
    "torch.inference_mode",
    "torch.jit.",
    "torch.compile",
    "torch.autograd.function.once_differentiable",
    "torch.amp.",
    "torch.cuda.amp.",
    "torch._inductor.runtime.triton_heuristics.",
)
_LOOKUPS = words(
    "builtins.globals builtins.locals builtins.vars builtins.dir builtins.eval builtins.exec builtins.__import__ "
    "inspect.getmembers inspect.getmembers_static operator.attrgetter operator.methodcaller sys.modules"
)


def live_units(tree: Tree, class_name: str, language: StaticRules) -> set[Unit]:
    """The units whose code may run when the class is loaded, constructed and called."""
    quiet = (f"{language.package}.", *_QUIET_DECORATORS)
    live: set[Unit] = set()
    seen: set[str] = {class_name}
    waiting: dict[str, list[Unit]] = {}
    todo = [tree.root]
    while todo:
        unit = todo.pop()
        if unit in live:
            continue
        live.add(unit)
        for child in unit.children:
            if _runs_unasked(tree, child, quiet) or not seen.isdisjoint(child.names):
                todo.append(child)
            else:
                for name in child.names:
                    waiting.setdefault(name, []).append(child)
        for name in unit.mentions - seen:
            seen.add(name)
            todo += waiting.pop(name, ())
        if unit is tree.root:
            todo += waiting.pop(class_name, ())
    return live


def running_units(live: set[Unit]) -> set[Unit]:
    """`live_units` plus the module's plain assignments, which always run."""
    return live | {
        child
        for unit in live
        if unit.kind == "module"
        for child in unit.children
        if child.kind == "assignment"
    }


def _runs_unasked(tree: Tree, unit: Unit, quiet: tuple[str, ...]) -> bool:
    node = unit.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if not all(_is_quiet(tree, decorator, quiet) for decorator in node.decorator_list):
        return True
    if isinstance(node, ast.ClassDef):
        # A base class in this file or a metaclass may do anything with its subclasses.
        return bool(node.keywords) or any(tree.paths(base) & {UNKNOWN} for base in node.bases)
    if node.name.startswith("__") and node.name.endswith("__"):
        return True
    if unit.parent is None or not isinstance(unit.parent.node, ast.ClassDef):
        return False
    bases = unit.parent.node.bases
    return node.name in _HOOKS or any(tree.paths(base) - _KNOWN_BASES - {UNKNOWN} for base in bases)


def _is_quiet(tree: Tree, decorator: ast.expr, quiet: tuple[str, ...]) -> bool:
    while isinstance(decorator, ast.Call):
        decorator = decorator.func
    paths = tree.paths(decorator)
    return bool(paths) and all(path.startswith(quiet) for path in paths)


def looks_names_up(tree: Tree) -> bool:
    """Whether definitions may be reached by names computed at run time."""
    for node in tree.nodes:
        match node:
            case ast.Attribute(attr="__dict__" | "__subclasses__" | "__globals__"):
                return True
            case ast.Name() if tree.paths(node) & _LOOKUPS:
                return True
            case ast.Attribute() if tree.paths(node) & _LOOKUPS:
                return True
            case ast.Call(args=[base, name, *_]) if "builtins.getattr" in tree.paths(node.func):
                # A computed attribute of an outside module cannot be a definition of this file.
                if text_of(name) is None and UNKNOWN in (tree.paths(base) or {UNKNOWN}):
                    return True
    return False


def kernels(tree: Tree, language: StaticRules) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions made into kernels, by decorator or by call, keyed by name."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for node in tree.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if tree.paths(target) & language.kernel:
                    found[node.name] = node
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name):
            # triton.jit(f), triton.jit(do_not_specialize=[...])(f)
            target = node.func.func if isinstance(node.func, ast.Call) else node.func
            function = _function_named(tree, node.args[0])
            if function is not None and tree.paths(target) & language.kernel:
                found[function.name] = function
    return found


def _function_named(tree: Tree, name: ast.Name) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    scope = tree.scope.get(name)
    while scope is not None:
        if name.id in scope.functions:
            return scope.functions[name.id]
        scope = scope.parent
    return None


def mentions_kernels(tree: Tree, language: StaticRules) -> bool:
    """Whether `triton.jit` or the like is used at all, also in ways that `kernels` does not recognise."""
    return any(
        isinstance(n, ast.Name | ast.Attribute | ast.Call) and tree.paths(n) & language.kernel
        for n in tree.nodes
    )


def reachable(
    tree: Tree, found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef], live: set[Unit]
) -> list[str]:
    """The kernels that live code may launch."""
    if looks_names_up(tree):
        return list(found)
    alive = {unit.node for unit in live}
    return [name for name, node in found.items() if node in alive]
