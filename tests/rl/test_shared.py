"""The process's own client, and what importing all this costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmill.errors import ConfigError
from kernelmill.rl import shared
from kernelmill.rl.client import Ask
from kernelmill.settings import config
from tests.rl.stub import Stub


@pytest.fixture(autouse=True)
def a_fresh_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "TOKEN", "NAME", "ON_FAULT"):
        monkeypatch.delenv(f"KERNEL_REWARD_{name}", raising=False)
    config.environment.cache_clear()


def test_options_come_from_the_environment_and_what_is_given_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared.options().url == "http://127.0.0.1:18188"
    assert not shared.options().mask
    monkeypatch.setenv("KERNEL_REWARD_URL", "http://10.0.0.1:1")
    monkeypatch.setenv("KERNEL_REWARD_TOKEN", "abc")
    monkeypatch.setenv("KERNEL_REWARD_NAME", "kevin")
    monkeypatch.setenv("KERNEL_REWARD_ON_FAULT", "mask")
    config.environment.cache_clear()
    found = shared.options(url=None, retries=1)
    assert (found.url, found.token, found.reward, found.mask, found.retries) == (
        "http://10.0.0.1:1", "abc", "kevin", True, 1,
    )  # fmt: skip
    assert shared.options(url="http://10.0.0.2:1", mask=False).url == "http://10.0.0.2:1"
    monkeypatch.setenv("KERNEL_REWARD_ON_FAULT", "zero")
    config.environment.cache_clear()
    with pytest.raises(ConfigError, match="KERNEL_REWARD_ON_FAULT=zero: expected raise or mask"):
        shared.options()


def test_one_client_serves_every_loop_of_the_process_and_a_closed_one_is_not_used_again() -> None:
    with Stub() as stub:
        first = shared.client(url=stub.url)
        assert shared.client(url=stub.url) is first
        for number in range(2):
            assert asyncio.run(shared.grade(Ask("r", str(number)), url=stub.url)).reward == number
        shared.close()
        assert shared.client(url=stub.url) is not first
        assert shared.client(url=stub.url).grade("r", "3").reward == 3.0
        shared.close()


def test_a_forked_process_has_a_client_of_its_own() -> None:
    """The parent's lives in a thread, which a fork leaves behind."""
    with Stub() as stub:
        assert shared.client(url=stub.url).grade("r", "1").reward == 1.0
        script = (
            "import os, sys, threading\nfrom kernelmill.rl import shared\n"
            f"assert shared.client(url={stub.url!r}).grade('r', '1').reward == 1.0\n"
            # At that moment another thread makes a client.
            "holder = threading.Thread(target=shared._lock.acquire)\nholder.start()\nholder.join()\n"
            "child = os.fork()\n"
            "if not child:\n"
            f"    os._exit(shared.client(url={stub.url!r}).grade('r', '2').reward != 2.0)\n"
            "shared._lock.release()\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        assert subprocess.run([sys.executable, "-c", script], timeout=240).returncode == 0
        shared.close()


def test_a_client_that_came_with_a_fork_or_is_closed_says_so_and_does_not_hang() -> None:
    script = (
        "import os, sys\nfrom kernelmill.rl.client import RewardClient\n"
        "client = RewardClient()\n"
        "def used():\n"
        "    try:\n"
        "        client.grade('r', '1')\n"
        "    except RuntimeError as error:\n"
        "        return 'forked from' in str(error)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    said = used()\n"
        "    client.close()\n"
        "    os._exit(not said)\n"
        "client.close()\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not used())\n"
    )
    line = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_trainer_and_no_torch_is_imported_before_it_is_used() -> None:
    script = (
        "import sys\n"
        "from kernelmill.rl import client, shared, slime, trl, verl\n"
        "import kernelmill_env\n"
        "print([name for name in ('torch', 'trl', 'verifiers', 'transformers', 'datasets', 'slime') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["KernelTaskset", "load_environment"])
def test_without_verifiers_the_environment_says_what_to_install(name: str) -> None:
    script = f"import sys\nsys.modules['verifiers'] = None\nfrom kernelmill_env import {name}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert "pip install 'kernelmill[rl-verifiers]'" in done.stderr.splitlines()[-1]


BARE = """
import sys
from argparse import Namespace
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and not top.startswith("kernelmill"):
            raise ImportError(f"{name} is not installed beside a trainer")
sys.meta_path.insert(0, Refuse())
import kernelmill_env
from pathlib import Path
from kernelmill.rl import client, prompt_rows, shared, slime, trl, verl
url, rows = sys.argv[1:]
(row,) = prompt_rows.read_rows(Path(rows))
with client.RewardClient(shared.options(url=url)) as one:
    print(one.grade(row.reference, "0.5").reward)
print(trl.reward_function(url=url)([], ["0.25", "?"], label=[row.reference] * 2))
print(verl.compute_score("", "0.125", row.reference, None, url=url)["score"])
sample = Namespace(response="0.5", label=row.reference, metadata=None)
print(slime.reward_sync(Namespace(rm_url=url, group_rm=True), [sample]))
"""


def test_client_and_reward_functions_need_the_standard_library_alone(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": [{"role": "user", "content": "."}], "label": "a reference"}\n')
    with Stub() as stub:
        line = [sys.executable, "-W", "error", "-c", BARE, stub.url, str(rows)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert (done.stderr, done.stdout.split("\n")) == ("", ["0.5", "[0.25, None]", "0.125", "[0.5]", ""])
    assert [body["reference"] for body in stub.bodies] == ["a reference"] * 5


def test_a_dotenv_that_nothing_can_read_is_told_where_it_is_meant_for_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "dotenv", None)
    Path(".env").write_text("WANDB_MODE=offline\n")
    assert shared.options().url == "http://127.0.0.1:18188"
    config.environment.cache_clear()
    Path(".env").write_text("export KERNEL_REWARD_URL=http://gpu:18188\n")
    with pytest.raises(ConfigError, match="pip install python-dotenv"):
        shared.options()
    config.environment.cache_clear()
