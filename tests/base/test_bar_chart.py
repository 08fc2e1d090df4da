"""Bar charts: every bar with its label and number, in proportion, the same bytes each time, well-formed whatever the text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from kernelmill.base.bar_chart import svg_bars, terminal_bars

SVG = "{http://www.w3.org/2000/svg}"
BARS = [("0 to 1k", 10), ("1k to 2k", 40), ("2k to 4k", 0), ("over", 1)]


def test_lines_are_as_long_as_their_numbers_say() -> None:
    lines = terminal_bars(BARS, 40)
    assert [line.count("█") for line in lines] == [10, 40, 0, 1]
    assert [line.split()[-1] for line in lines] == ["10", "40", "0", "1"]
    assert len({len(line) for line in lines}) == 1


def test_what_is_more_than_nothing_is_seen() -> None:
    lines = terminal_bars([("many", 10**9), ("one", 1), ("none", 0)], 20)
    assert "▏" in lines[1]
    assert lines[2].split() == ["none", "0"]


def test_no_bars_are_no_lines_and_an_empty_chart() -> None:
    assert terminal_bars([]) == []
    assert ET.fromstring(svg_bars("nothing", [])).tag == f"{SVG}svg"


def test_the_svg_holds_each_bar_in_proportion() -> None:
    root = ET.fromstring(svg_bars("Lengths", BARS, "100 rows"))
    widths = [int(bar.attrib["width"]) for bar in root.findall(f"{SVG}rect")][1:]
    assert widths == [90, 360, 0, 9]
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert texts == [
        "Lengths", "0 to 1k", "10", "1k to 2k", "40", "2k to 4k", "0", "over", "1", "100 rows",
    ]  # fmt: skip


@given(st.text(), st.lists(st.tuples(st.text(), st.integers(0, 10**12))), st.text())
def test_any_text_gives_well_formed_xml_and_no_control_codes(
    title: str, bars: list[tuple[str, int]], note: str
) -> None:
    drawn = svg_bars(title, bars, note)
    assert len(ET.fromstring(drawn).findall(f"{SVG}rect")) == len(bars) + 1
    assert drawn == svg_bars(title, bars, note)
    assert "\x1b" not in drawn + "".join(terminal_bars(bars))


def test_halves_of_a_surrogate_pair_are_no_obstacle() -> None:
    ET.fromstring(svg_bars("\ud800", [("\udfff\uffff", 1)], "\0"))
