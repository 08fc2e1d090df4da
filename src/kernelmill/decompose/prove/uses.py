"""What the claims of a proof say about single files.

Check that each file matches its use in the model, and find the files that are proven even if others are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelmill.decompose.prove.tree import ClaimedNode, Tree


def level_faults(tree: Tree, looked: dict[str, dict[str, Any]]) -> list[str]:
    """Check that each emitted file runs alone, on one code path, with the tree's shapes and dtypes."""
    faults = []
    for name, node in tree.nodes.items():
        if "error" in looked[name]:
            faults.append(f"{node.path} does not run: {looked[name]['error']}")
        else:
            faults += [f"{node.path}: {line}" for line in looked[name]["violations"]]
            faults += [f"{node.path}: {line}" for line in shape_faults(node, looked[name])]
    return faults


def shape_faults(
    node: ClaimedNode, shapes: dict[str, Any], compared: Sequence[str] = ("inputs", "outputs")
) -> list[str]:
    return [
        f"its {which} are {_shown(shapes[which])}, the tree says {_shown(node.tensors(which))}"
        for which in compared
        if [t for t in shapes[which] if t != [[], "bool"]] != node.tensors(which)
    ]


@dataclass
class _Uses:
    """The uses of one node, in all claims that show them."""

    shapes: list[list[Any]] = field(default_factory=list)
    varied: list[list[bool]] = field(default_factory=list)
    made_with: list[list[str]] = field(default_factory=list)


def use_faults(tree: Tree, results: list[dict[str, Any]], looked: dict[str, dict[str, Any]]) -> list[str]:
    """Check that each file matches one of its uses in the model.

    Kernels are checked against the composition, everything else against the steps.
    """
    uses: dict[str, _Uses] = {}
    for claim, result in zip([*tree.steps, tree.composition], results, strict=True):
        for attribute, calls in result["children"].items():
            name = claim.made_of[attribute]
            if name != tree.root and (claim is tree.composition) == (not tree.nodes[name].children):
                known = uses.setdefault(name, _Uses())
                known.shapes += calls
                known.varied.append(result["varied"].get(attribute, []))
                known.made_with.append(claim.made_with.get(attribute, []))
    return [
        f"{tree.nodes[name].path}{line}"
        for name, known in uses.items()
        for line in _no_use(tree.nodes[name], known, looked[name])
    ]


def _no_use(node: ClaimedNode, uses: _Uses, looked: dict[str, Any]) -> Iterator[str]:
    """How a file differs from every use: sizes, constructor arguments, and inputs that hold one number."""
    seen = [[[t for t in side if t != [[], "bool"]] for side in call] for call in uses.shapes]
    if [node.tensors("inputs"), node.tensors("outputs")] not in seen:
        inputs, outputs = seen[0]
        yield (
            f" has {_shown(node.tensors('inputs'))} -> {_shown(node.tensors('outputs'))}, "
            f"the model uses it with {_shown(inputs)} -> {_shown(outputs)}"
        )
    if "error" in looked:
        return
    if looked["made_with"] not in uses.made_with:
        yield (
            f" makes itself with {', '.join(looked['made_with']) or 'nothing'}, "
            f"the model makes it with {', '.join(uses.made_with[0]) or 'nothing'}"
        )
    always = [all(one) for one in zip(*uses.varied, strict=False)]
    if any(use and not own for use, own in zip(always, looked["varied"], strict=False)):
        yield ": an input of its get_inputs is one number, in the model it never is"


def _shown(tensors: list[list[Any]]) -> str:
    return ", ".join(f"{dtype}{shape}" for shape, dtype in tensors) or "none"


def proven_parts(tree: Tree, passed: list[bool], level_faults: list[str]) -> list[str]:
    """The parts that the model is proven to consist of.

    These are the parts reached from the root through steps that hold, and the kernels of a composition that
    holds. A step that fails does not invalidate its own part, which the step above proves, nor that part's
    siblings.
    """
    faults = [*tree.faults, *level_faults]
    paths = {node.path: name for name, node in tree.nodes.items()}
    bad = {paths.get(fault.partition(".py")[0] + ".py") for fault in faults}
    if None in bad:
        return []  # the tree itself is wrong
    names = {id(node): name for name, node in tree.nodes.items()}
    good = set(tree.composition.made_of.values()) if passed[-1] else set()
    held = [claim for claim, holds in zip(tree.steps, passed, strict=False) if holds]
    good |= {tree.root} if passed[-1] or any(claim.node is tree.nodes[tree.root] for claim in held) else set()
    before = -1
    while before != len(good):
        before = len(good)
        for claim in held:
            good |= set(claim.made_of.values()) if names[id(claim.node)] in good else set()
    return [tree.nodes[name].path for name in tree.nodes if name in good - bad]
