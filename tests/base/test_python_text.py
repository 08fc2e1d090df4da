"""Reading Python source from several threads at once."""

from __future__ import annotations

import ast
import gc
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kernelmill
from kernelmill.base import python_text
from kernelmill.base.python_text import parse_expression, parse_module

DEEP = "\n".join(f"x{n} = [" + "(" * 40 + f"{n} + 1" + ")" * 40 + ", [[[[[[y]]]]]]]" for n in range(60))


def both_kinds(code: str) -> str:
    parse_expression("a + (b * [c])")
    return ast.dump(parse_module(code))


def let_others_go_on(phase: str, info: dict[str, int]) -> None:
    time.sleep(0.0001)


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """The collector runs in the middle of every parse, and Python with it: there another thread may go on."""
    before = gc.get_threshold()
    gc.set_threshold(500)
    gc.callbacks.append(let_others_go_on)
    yield
    gc.callbacks.remove(let_others_go_on)
    gc.set_threshold(*before)


@pytest.mark.usefixtures("busy_collector")
def test_threads_that_parse_at_once_get_their_own_trees_and_no_error() -> None:
    expected, filters = ast.dump(ast.parse(DEEP)), list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        assert all(tree == expected for tree in pool.map(both_kinds, [DEEP] * 80))
    assert warnings.filters == filters


def test_an_odd_escape_in_a_string_is_not_talked_about() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        parse_module(r'"\d"')
    assert said == []


@pytest.mark.parametrize("parse", [parse_module, parse_expression])
def test_what_is_no_python_is_a_syntax_error(parse: Callable[[str], ast.AST]) -> None:
    with pytest.raises(SyntaxError):
        parse("def (")


def test_a_child_forked_while_another_thread_parses_can_parse() -> None:
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with python_text._one_at_a_time:
            holds.set()
            done.wait(240)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(240)
    child = os.fork()
    if child == 0:
        parse_module("x = 1")
        os._exit(7)
    done.set()
    holder.join()
    waiting = ThreadPoolExecutor(1).submit(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(waiting.result(240)[1]) == 7


def test_nothing_in_the_package_parses_past_it() -> None:
    package = Path(kernelmill.__file__).parent
    past = [
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\bast\.parse\(", file.read_text("utf-8"))
    ]
    assert past == ["base/python_text.py"]
