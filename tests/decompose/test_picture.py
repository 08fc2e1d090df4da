"""The hierarchy as a picture, in the terminal and in words."""

from __future__ import annotations

import io
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kernelmill.decompose.analysis import analysis
from kernelmill.decompose.prove.prover import Proof
from kernelmill.decompose.write.picture import rich_tree, svg
from kernelmill.decompose.write.tree_file import NotATree
from tests.decompose.models import node, tree

SPACE = "{http://www.w3.org/2000/svg}"


def small() -> dict[str, Any]:
    return tree(
        node("net", "model", ("block", "block", "linear")),
        node("block", "layer", ("linear_relu", "relu"), times=2),
        node("linear_relu", "fusion", ("linear", "relu"), times=2),
        node("linear", "kernel", times=3),
        node("relu", "kernel", times=4),
    )


def large() -> dict[str, Any]:
    blocks = [node(f"block_{n}", "layer", (f"conv_{n}", "relu")) for n in range(150)]
    kernels = [node(f"conv_{n}", "kernel") for n in range(150)]
    names = tuple(block["id"] for block in blocks)
    return tree(node("net", "model", names), *blocks, *kernels, node("relu", "kernel", times=150))


def shown(text: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(text).iter(f"{SPACE}text")]


def in_terminal(of: dict[str, Any]) -> str:
    said = io.StringIO()
    Console(file=said, width=200).print(rich_tree(of))
    return said.getvalue()


def test_a_picture_has_every_part_with_its_level_sizes_and_counts() -> None:
    texts = shown(svg(small()))
    assert texts[0] == "net"
    assert texts[1:6] == ["model: it is made of layers", "1 model", "1 layer, 2 in all", "1 fusion, 2 in all", "2 kernels, 7 in all"]  # fmt: skip
    assert "block x2" in texts
    assert texts.count("relu") == 2
    assert "2x3 float32 -> 2x3 float32, scalar int64, 4 in all" in texts
    assert "nothing -> 3 float32" in shown(
        svg(
            tree(
                node(
                    "ones",
                    "kernel",
                    input_shapes=[],
                    input_dtypes=[],
                    output_shapes=[[3]],
                    output_dtypes=["float32"],
                )
            )
        )
    )


@pytest.mark.parametrize("of", [small(), large()], ids=["small", "large"])
def test_lines_of_a_picture_do_not_overlap_and_stay_inside(of: dict[str, Any]) -> None:
    picture = ElementTree.fromstring(svg(of))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    groups = picture.findall(f"{SPACE}g")
    assert len(groups) >= len(of["nodes"])
    before = 0.0
    for group in groups:
        badge, name, facts = group.find(f"{SPACE}rect"), *group.findall(f"{SPACE}text")[1:]
        assert badge is not None
        assert float(badge.attrib["y"]) >= before + 20
        before = float(badge.attrib["y"])
        # A letter of a monospaced font of 12 is 7.2 wide.
        assert float(name.attrib["x"]) + 7.2 * len(name.text or "") < float(facts.attrib["x"])
        assert float(facts.attrib["x"]) + 7.2 * len(facts.text or "") < width
    assert before + 16 < height


def test_a_part_in_several_places_is_spread_out_once() -> None:
    of = tree(
        node("net", "model", ("a", "b")), node("a", "layer", ("f",)), node("b", "layer", ("f",)),
        node("f", "fusion", ("k",), times=2), node("k", "kernel", times=2),
    )  # fmt: skip
    texts = shown(svg(of))
    assert texts.count("f") == 1
    assert texts.count("f (as above)") == 1
    assert texts.count("k") == 1


def test_sizes_stand_at_the_first_place_alone_because_others_may_have_their_own() -> None:
    facts = [text for text in shown(svg(small())) if text.endswith("4 in all")]
    assert facts == ["2x3 float32 -> 2x3 float32, scalar int64, 4 in all", "4 in all"]
    assert in_terminal(small()).count("4 in all") == 2


def test_a_picture_needs_nothing_from_elsewhere() -> None:
    text = svg(large())
    assert re.findall(r"(?:href|src|url|@import|script)", text) == []
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]


@given(st.text(min_size=1))
def test_any_name_makes_a_picture_that_can_be_read_and_a_tree_that_gives_no_orders(name: str) -> None:
    of = tree(node(name, "kernel", operations=[name], reason=name), model_name=name)
    ElementTree.fromstring(svg(of))
    assert "\x1b" not in in_terminal(of)
    assert "\n## Kernels\n" in analysis(of)


def test_the_terminal_shows_the_same_and_leaves_kernels_out_of_a_large_tree() -> None:
    assert re.findall(r"[a-z]\w*(?: x\d)?(?=  )", in_terminal(small())) == [
        "net", "block x2", "linear_relu", "linear", "relu", "relu", "linear",
    ]  # fmt: skip
    text = in_terminal(large())
    assert len(text.splitlines()) == 151
    assert "block_149" in text
    assert "2 kernels" in text
    assert "conv_149" not in text


@pytest.mark.parametrize("change", ["child", "root", "level", "nodes"])
def test_what_is_no_tree_is_told(change: str) -> None:
    of = small()
    if change == "child":
        of["nodes"]["block"]["children"].append("nobody")
    elif change == "root":
        of["metadata"]["root"] = "nobody"
    elif change == "level":
        of["nodes"]["block"]["level"] = "tensor"
    else:
        del of["nodes"]
    for draw in (svg, rich_tree, analysis):
        with pytest.raises(NotATree):
            draw(of)


def test_the_analysis_counts_kernels_by_their_share_of_calls() -> None:
    text = analysis(small())
    assert "7 kernel calls in a run, of 2 different kernels" in text
    assert text.index("| `relu` | 4 | 57.1% |") < text.index("| `linear` | 3 | 42.9% |")
    assert "All sizes are the source's own." in text
    alone = analysis(tree(node("mask", "kernel", input_shapes=[], input_dtypes=[])))
    assert "| `mask` | 1 | 100.0% | nothing | 2x3 float32, scalar int64 |" in alone
    assert "| `block` |  | 2 | 2x3 float32 | 2x3 float32, scalar int64 | 1 fusion, 1 kernel |" in text


def test_the_analysis_says_what_was_assumed_and_why_a_proof_failed(tmp_path: Any) -> None:
    of = small()
    of["metadata"] |= {"assumptions": ["batch is 2"], "capture": {"road": "real", "notes": ["fake: no"]}}
    text = analysis(
        of, Proof(tmp_path, "net", "FAIL", ["step_1: it | differs"], 2, 1, "PASS", 87.5, reduced=True)
    )
    assert "- batch is 2" in text
    assert "because it looks at numbers while it runs" in text
    assert "1 of 2 steps proven, composition PASS, coverage 87.5%." in text
    assert "numbers at a smaller one" in text
    assert "**FAIL** when it was decomposed (2" in text
    assert "does not fit" not in text
    assert "- step_1: it \\| differs" in text
