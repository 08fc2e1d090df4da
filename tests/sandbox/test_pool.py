from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, cast

import pytest

from kernelmill.sandbox.pool import Pool


class Fake:
    """Stands for a sandbox: notes its environment, and whether it was closed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment, self.closed = dict(environment), False

    def doing(self) -> list[Any]:
        return [self.environment]

    def close(self) -> None:
        self.closed = True


def test_one_sandbox_per_environment_made_when_first_asked_for_and_all_are_closed() -> None:
    made: list[Fake] = []

    def make(environment: Mapping[str, str]) -> Any:
        made.append(Fake(environment))
        return made[-1]

    with Pool(make) as pool:
        assert pool.doing() == []
        first = pool.get({})
        assert pool.get({"A": "1", "B": "2"}) is pool.get({"B": "2", "A": "1"}) is not first
        assert pool.get({}) is first
        assert pool.doing() == [{}, {"A": "1", "B": "2"}]
    assert [one.closed for one in made] == [True, True]
    with pytest.raises(RuntimeError, match="closed"):
        pool.get({"C": "3"})
    assert len(made) == 2


def test_in_a_forked_process_it_refuses_to_make_one() -> None:
    pool = Pool(lambda environment: cast(Any, Fake(environment)))
    child = os.fork()
    if child == 0:
        try:
            pool.get({})
        except RuntimeError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_threads_that_ask_at_once_get_the_same_one() -> None:
    gate, made = threading.Barrier(8), []

    def make(environment: Mapping[str, str]) -> Any:
        made.append(environment)
        return cast(Any, Fake(environment))

    pool, found = Pool(make), set[int]()

    def ask() -> None:
        gate.wait()
        found.add(id(pool.get({"A": "1"})))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(made) == 1
