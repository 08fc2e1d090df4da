"""Write `decomposition_analysis.md`: a readable report on a decomposed model, from its tree and its proof."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernelmill.base.terminal import plain
from kernelmill.decompose.levels import LEVELS, Level
from kernelmill.decompose.prove.prover import Proof
from kernelmill.decompose.write.tree_file import Node, TreeFile, shapes, typed

_WHAT: dict[Level, str] = {
    "model": "the whole, where it holds layers or more than 12 kernels",
    "layer": "a module of the source that holds several of those below",
    "fusion": "2 to 5 kernels that one would write as one",
    "kernel": "one operation that a person would name",
}
_MODES = {
    "fake": "The model was built and run once on tensors that have sizes and no memory.",
    "real constructor": "The model was built for real, because its constructor looks at numbers, and run once on tensors without memory.",
    "real": "The model was built and run once for real, because it looks at numbers while it runs.",
}
_MANY = 60
"""Maximum rows of a table; the rest are only counted."""


def analysis(tree: Mapping[str, Any], proof: Proof | None = None) -> str:
    """The report as Markdown. Raises `NotATree`."""
    found = typed(tree)
    lines = [f"# {_text(found.metadata.model_name)}", "", *_what(found)]
    for title, section in (
        ("How it was classified", _classified(found)),
        ("Parts", _parts(found)),
        ("Layers", _layers(found)),
        ("Fusions", _fusions(found)),
        ("Kernels", _kernels(found)),
        ("How it was captured", _captured(found)),
        ("Proof", _proof(found, proof)),
        ("Run it", _run(found)),
    ):
        if body := list(section):
            lines += ["", f"## {title}", "", *body]
    return "\n".join(lines) + "\n"


def _what(tree: TreeFile) -> Iterator[str]:
    root, about = tree.nodes[tree.metadata.root], tree.metadata
    kernels = tree.of_level("kernel")
    calls = sum(node.instance_count for node in kernels)
    yield f"Source: {_code(about.source_file)}" + (
        f", level {about.source_level}." if about.source_level is not None else "."
    )
    yield (
        f"It takes {_taken(root)} and gives "
        f"{_given(root)}; {_count(calls, 'kernel call')} in a run, "
        f"of {_count(len(kernels), 'different kernel')}."
    )
    yield "`tree.svg` shows the hierarchy, `decomposition_tree.json` has all of it."


def _classified(tree: TreeFile) -> Iterator[str]:
    if tree.metadata.classification is not None:
        kind = tree.metadata.classification
        yield f"**{kind.level}**: {_text(kind.reason)}."


def _parts(tree: TreeFile) -> Iterator[str]:
    yield "| level | different parts | in a run | what that is |"
    yield "|---|---|---|---|"
    for level in reversed(LEVELS):
        if mine := tree.of_level(level):
            uses = sum(node.instance_count for node in mine)
            yield f"| {level} | {len(mine)} | {uses} | {_WHAT[level]} |"
    if tree.metadata.levels is not None and set(tree.metadata.levels) != set(LEVELS):
        kept = [level for level in reversed(LEVELS) if level in tree.metadata.levels]
        yield ""
        yield f"Files were kept of these levels: {', '.join(kept)}. The others are in `steps/`."


def _layers(tree: TreeFile) -> Iterator[str]:
    def cells(node: Node) -> list[str]:
        below = Counter(tree.nodes[instance.child].level for instance in node.instances)
        made = ", ".join(_count(below[level], level) for level in reversed(LEVELS) if below[level])
        return [_code(node.source_path), str(node.instance_count), _taken(node), _given(node), made]

    columns = ["layer", "first instance", "in a run", "takes", "gives", "made of"]
    return _table(columns, tree.of_level("layer"), cells)


def _fusions(tree: TreeFile) -> Iterator[str]:
    def cells(node: Node) -> list[str]:
        return [str(node.instance_count), _text(", ".join(node.operations)), _text(node.reason)]

    fusions = sorted(tree.of_level("fusion"), key=lambda node: -node.instance_count)
    return _table(["fusion", "in a run", "operations", "why"], fusions, cells)


def _kernels(tree: TreeFile) -> Iterator[str]:
    kernels = sorted(tree.of_level("kernel"), key=lambda node: -node.instance_count)
    total = sum(node.instance_count for node in kernels)

    def cells(node: Node) -> list[str]:
        share = f"{node.instance_count / max(1, total):.1%}"
        return [str(node.instance_count), share, _taken(node), _given(node)]

    yield "The share is of the calls in a run, not of its time. Sizes are those of the first call: where others differ in what is no parameter"
    yield "(a ReLU after every layer, the same weights' shape on a smaller image), one file stands for all of them."
    yield ""
    yield from _table(["kernel", "in a run", "share", "takes", "gives"], kernels, cells)


def _table(columns: list[str], nodes: list[Node], cells: Callable[[Node], list[str]]) -> Iterator[str]:
    """A row for each node: its id, then its cells. Nothing if there is no node."""
    if nodes:
        yield f"| {' | '.join(columns)} |"
        yield f"|{'---|' * len(columns)}"
    for node in nodes[:_MANY]:
        yield f"| {' | '.join([_code(node.id), *cells(node)])} |"
    if len(nodes) > _MANY:
        yield ""
        yield f"And {_count(len(nodes) - _MANY, f'more {columns[0]}')}."


def _captured(tree: TreeFile) -> Iterator[str]:
    capture = tree.metadata.capture
    if capture is not None:
        yield f"{_MODES.get(capture.mode, _text(capture.mode))} Every call into torch was recorded as the source makes it."
        if capture.notes:
            yield ""
            yield from (f"- {_text(note)}" for note in capture.notes)
    yield ""
    if tree.metadata.assumptions:
        yield "Chosen here, because the source does not say:"
        yield ""
        yield from (f"- {_text(str(one))}" for one in tree.metadata.assumptions)
    else:
        yield "All sizes are the source's own."


def _proof(tree: TreeFile, proof: Proof | None) -> Iterator[str]:
    if proof is None:
        yield f"**{_text(tree.metadata.verification_status)}**"
        return
    coverage = "unknown" if proof.coverage is None else f"{proof.coverage:.4g}%"
    yield f"**{proof.status}** when it was decomposed ({_text(tree.metadata.timestamp)});"
    yield "`verification_status` in `decomposition_tree.json` is that of the last proof since."
    yield ""
    yield f"{proof.passed} of {_count(proof.steps, 'step')} proven, composition {proof.composition}, coverage {coverage}."
    if proof.reduced:
        yield "Sizes were proven at full size, numbers at a smaller one, because full size is too dear: `reduced` in the results below has it."
    if proof.lines:
        yield ""
        yield from (f"- {_text(line)}" for line in proof.lines[:_MANY])
    yield ""
    yield "`steps/*/verification_result.json` and `coverage_report.json` have the details of each step, those in `verification/` of the whole."


def _run(tree: TreeFile) -> Iterator[str]:
    kernels = tree.of_level("kernel")
    yield "In this folder:"
    yield ""
    yield "```"
    if kernels:
        yield f"python {_plain(kernels[0].path)}    # every part runs by itself, at its size in the model"
    yield "python verification/composition_test.py    # the kernels put together, against the source"
    yield "kernelmill prove .    # all of the proof again, from these files"
    yield "```"


def _taken(node: Node) -> str:
    return _text(shapes(node.input_shapes, node.input_dtypes)) or "nothing"


def _given(node: Node) -> str:
    return _text(shapes(node.output_shapes, node.output_dtypes))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _plain(text: str) -> str:
    return " ".join(plain(text).split())


def _text(text: str) -> str:
    """Escape Markdown, so that the text stays in its table cell."""
    return re.sub(r"([\\`*|<>\[\]])", r"\\\1", _plain(text))


def _code(text: str) -> str:
    shown = _plain(text).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`" if shown else ""
