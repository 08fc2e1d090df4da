"""Facts from a PyTorch module's source text, read from its syntax tree alone.

Nothing is run and torch is not imported, so this is safe on untrusted code and takes about a millisecond. It
sees names, not values: an operator counts whether it adds tensors or integers, a layer counts once however
often a loop builds it, and whether an `if` depends on data is inferred from where its names come from.
`kernelmill.problems.facts` has the traced counterpart, with shapes.
"""

from __future__ import annotations

import msgspec

from kernelmill.base.python_text import parse_module
from kernelmill.errors import SourceError
from kernelmill.problems.definitions import (
    CONVENTION_FUNCTIONS,
    Definitions,
    Param,
    docstring_of,
    one_line,
    params_of,
)
from kernelmill.problems.reached import Layer, Reached

MAX_SOURCE_CHARS = 400_000


class ModuleSource(msgspec.Struct, frozen=True):
    """Facts about the entry point and everything that `forward` reaches.

    `operations` counts the occurrences in the text, in order of appearance: `torch.softmax`, `F.relu`,
    `.mean` (a method of some value), `@`. `functions` are the helpers, without `get_inputs` and the like.
    `code_lines` are the statements in a normal form, without docstrings, comments and imports; a compound
    statement gives its header.
    """

    entry_point: str
    docstring: str | None
    forward_docstring: str | None
    init_params: tuple[Param, ...]
    forward_params: tuple[Param, ...]
    classes: tuple[str, ...]
    functions: tuple[str, ...]
    layers: tuple[Layer, ...]
    operations: dict[str, int]
    has_loops: bool
    has_data_dependent_ifs: bool
    code_lines: tuple[str, ...]


def read_source(code: str, entry_point: str | None = None) -> ModuleSource:
    """Read the source of a module. Raises only `SourceError`, if the text cannot be read.

    Without `entry_point`, the module is the class `Model`, or the only module class that no other uses.
    """
    if len(code) > MAX_SOURCE_CHARS:
        raise SourceError(f"the source has {len(code)} characters, the limit is {MAX_SOURCE_CHARS}")
    try:
        tree = parse_module(code)
        return _facts(Definitions(tree), entry_point)
    except SyntaxError as error:
        raise SourceError(f"the source does not parse: line {error.lineno}: {one_line(error.msg)}") from None
    except (RecursionError, MemoryError):
        raise SourceError("the source is nested too deeply to read") from None
    except (ValueError, OverflowError) as error:
        raise SourceError(f"the source does not parse: {one_line(str(error))}") from None


def _facts(defined: Definitions, entry_point: str | None) -> ModuleSource:
    name = defined.entry_point(entry_point)
    reached = Reached(defined)
    reached.enter_class(name)
    reached.finish()
    methods = defined.methods(name)
    init, forward = methods.get("__init__"), methods.get("forward")
    return ModuleSource(
        entry_point=name,
        docstring=docstring_of(defined.classes[name]),
        forward_docstring=docstring_of(forward),
        init_params=params_of(init),
        forward_params=params_of(forward),
        classes=tuple(defined.classes),
        functions=tuple(f for f in defined.functions if f not in CONVENTION_FUNCTIONS),
        layers=tuple(reached.layers),
        operations=reached.operations,
        has_loops=reached.has_loops,
        has_data_dependent_ifs=reached.has_data_dependent_ifs,
        code_lines=tuple(defined.lines),
    )
