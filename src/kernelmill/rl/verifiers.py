"""An environment for `verifiers`: `load_environment(...)`, one turn or several.

    import verifiers.legacy as vf
    env = vf.load_environment("kernelmill-env", data="kernel_bench_triton_verifiers.jsonl", turns=3)

`data` is a file of RL rows, as `kernelmill problems export --format verifiers` (or slime) writes them.
Candidates are judged by `kernelmill serve` (`url`, else KERNEL_REWARD_URL), or with `local=True` by an
evaluator in this process.

A rollout is judged while it runs, not in the rubric, because a rubric of verifiers turns any exception in a
reward function into 0.0. A candidate that cannot be judged ends the rollout with a `Masked` error. A failure
of the service ends it with an `InfraError`, which verifiers retries (`max_retries`). Trainers leave out
rollouts with an `error`. A trainer that ignores `error` sees the mean of the group's other rewards and no
advantage; without a group it sees 0.0, because verifiers requires a number.

With several turns, the user's next message is the verdict's feedback, until a candidate is correct. The last
turn's reward is the rollout's; each step's own reward is in its `extras`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    import verifiers.legacy as vf
    from datasets import Dataset
except ImportError as error:
    raise ImportError(
        f"this needs verifiers 0.3: `pip install 'kernelmill[rl-verifiers]' 'verifiers<0.4'` ({error})"
    ) from error

from kernelmill.errors import EndpointError
from kernelmill.rl import shared
from kernelmill.rl.client import Ask, Reward, RewardClient
from kernelmill.rl.completions import mean, text_of
from kernelmill.rl.local import LocalGrader
from kernelmill.rl.prompt_rows import read_rows

_REWARD, _LAST = "kernelmill_reward", "kernelmill"


class Masked(vf.Error):  # type: ignore[misc]
    """The candidate cannot be judged: the rollout is to be left out."""


def load_environment(
    data: str | Path,
    turns: int = 1,
    url: str | None = None,
    reward: str | None = None,
    local: bool = False,
    workers: int | None = None,
    **more: Any,
) -> KernelEnv:
    """Build the environment.

    `reward` names the reward; `local` judges in this process with this many `workers`.

    `more` is passed to verifiers' environment (`max_seq_len`, `timeout_seconds`, ...)."""
    if turns < 1:
        raise ValueError(f"turns={turns}: expected 1 or more")
    grader = (
        LocalGrader(reward or "default", workers=workers)
        if local
        else shared.client(url=url, reward=reward, mask=False)
    )
    rows = [
        {"prompt": row.prompt, "answer": row.reference, "info": {"id": row.id, "entry_point": row.entry_point}}
        for row in read_rows(Path(data))
    ]  # fmt: skip
    return KernelEnv(
        grader=grader, dataset=Dataset.from_list(rows), max_turns=turns, rubric=KernelRubric(), **more
    )


class KernelEnv(vf.MultiTurnEnv):  # type: ignore[misc]
    def __init__(self, grader: RewardClient | LocalGrader, **more: Any) -> None:
        super().__init__(**more)
        self._grader = grader

    async def add_model_response(self, state: Any, prompt_messages: Any, response: Any) -> None:
        """Judge the turn that has ended. An exception here becomes the rollout's `error`."""
        await super().add_model_response(state, prompt_messages, response)
        step = state["trajectory"][-1]
        info = state.get("info") or {}
        ask = Ask(state["answer"], text_of(step["completion"]), info.get("entry_point"))
        state[_LAST] = None
        try:
            found = await asyncio.wrap_future(self._grader.submit(ask))
        except EndpointError as error:
            raise vf.InfraError(str(error)) from error
        state[_LAST] = found
        step["extras"]["kernelmill"] = {
            "reward": found.reward, "status": found.status, "verdict": found.verdict, "feedback": found.feedback,
        }  # fmt: skip
        if found.masked:
            raise Masked(found.why)

    @vf.stop  # type: ignore[untyped-decorator]
    async def is_correct(self, state: Any) -> bool:
        found = state.get(_LAST)
        return found is not None and found.verdict == "correct"

    async def env_response(self, messages: Any, state: Any, **more: Any) -> list[dict[str, str]]:
        return [{"role": "user", "content": state[_LAST].feedback}]

    @vf.teardown  # type: ignore[untyped-decorator]
    async def close_grader(self) -> None:
        if isinstance(self._grader, LocalGrader):
            self._grader.close()


class KernelRubric(vf.Rubric):  # type: ignore[misc]
    """Reports the rewards found during the rollouts. Masked ones are left out of the group's mean."""

    async def score_rollout(self, state: Any) -> None:
        _score(state, 0.0)

    async def score_group(self, states: Sequence[Any]) -> None:
        center = mean([_reward(state) for state in states])
        for state in states:
            _score(state, center)
            state["advantage"] = state["reward"] - center
            for step in state["trajectory"]:
                if step["advantage"] is None:
                    step["advantage"] = state["advantage"]
                if step["reward"] is None:
                    step["reward"] = state["reward"]


def _reward(state: Any) -> float | None:
    """Return the reward, or None if there is none.

    It is None if masked, and if the rollout ended before it was judged (the model's endpoint failed).
    """
    found: Reward | None = state.get(_LAST)
    return None if found is None or state.get("error") is not None else found.reward


def _score(state: Any, neutral: float) -> None:
    found, reward = state.get(_LAST), _reward(state)
    state["reward"] = neutral if reward is None else reward
    state["metrics"] = {
        _REWARD: state["reward"],
        "kernelmill_masked": float(reward is None),
        "kernelmill_correct": float(found is not None and found.verdict == "correct"),
    }
