"""A finished rollout as an evals row: the format's columns in their order, then ours.

The base columns never hold null where the format has a number: a masked reward is 0 with `reward_masked`
true, and `speedup_reward` is 0 if nothing was timed. `verdict` holds the measured values, null where nothing
was measured.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kernelmill.base.answers import NoAnswer, read_answer
from kernelmill.generate.synthesize.problems import CandidateRequest
from kernelmill.generate.synthesize.rollout import RolloutState, Turn, discounted

Export = Literal["conversation", "last", "best"]


def chosen(turns: list[Turn], export: Export) -> int:
    """Return the turn that provides the row's answer, reward and verdict."""
    if export != "best":
        return len(turns) - 1
    return max(range(len(turns)), key=lambda place: (rank(turns[place]), -place))


def rank(turn: Turn) -> tuple[bool, float, float]:
    """Return the sort key of a turn: correct first, then speed-up, then reward; masked turns come last."""
    verdict = turn.verdict
    speed = verdict.perf.speedup if verdict.perf is not None else 0.0
    return verdict.verdict == "correct", speed, float("-inf") if turn.reward is None else turn.reward


def evals_row(
    problem: CandidateRequest,
    state: RolloutState,
    export: Export,
    reasoning_field: str,
    reward_name: str,
    writer: str,
    prompt_version: str,
) -> bytes:
    turns = state.turns
    place = chosen(turns, export)
    final = turns[place]
    verdict = final.verdict
    generation = sum(turn.written.seconds for turn in turns) * 1000
    scoring = sum(float(turn.verdict.cost.get("wall_s", 0.0)) for turn in turns) * 1000
    module = problem.module
    prompt, completion = _prompt_and_completion(problem, turns, export, place, reasoning_field)
    triton = module.given.triton_code
    returns = discounted([turn.reward for turn in turns])
    row: dict[str, Any] = {
        "example_id": problem.example_id,
        "prompt": prompt,
        "completion": completion,
        "task": problem.task,
        "reward": final.reward or 0.0,
        "generation_ms": round(generation, 1),
        "scoring_ms": round(scoring, 1),
        "total_ms": round(generation + scoring, 1),
        "info": {
            "module_name": module.module_name,
            "python_code": module.python_code,
            "triton_code": triton if isinstance(triton, str) else "",
        },
        "answer": _code(final),
        "speedup_reward": verdict.rewards.get("speedup") or 0.0,
        "num_turns": float(len(turns)),
        "oai_tools": None,
        "verdict": verdict.to_dict() | {"id": _id(problem, place)},
        "reward_name": reward_name,
        "reward_masked": final.reward is None,
        "rollout": problem.sample,
        "writer": writer,
        "prompt_version": prompt_version,
        "ended": state.ended,
        "finish_reason": final.written.finish,
        "tokens_in": final.written.tokens_in,
        "tokens_out": final.written.tokens_out,
        "turns": [
            {
                "completion": _assistant(turn, reasoning_field),
                "reward": turn.reward,
                "return": returned,
                "generation_ms": round(turn.written.seconds * 1000, 1),
                "tokens_in": turn.written.tokens_in,
                "tokens_out": turn.written.tokens_out,
                "finish_reason": turn.written.finish,
                "verdict": turn.verdict.to_dict() | {"id": _id(problem, number)},
            }
            for number, (turn, returned) in enumerate(zip(turns, returns, strict=True))
        ],
    }
    for name in ("name", "level", "problem_id", "uuid"):
        value = getattr(module.given, name)
        if value is not msgspec.UNSET:
            row[f"problem_{name.removeprefix('problem_')}"] = value
    row |= final.written.columns
    if problem.benchmark:
        row["benchmark"] = True
    return msgspec.json.encode(row)


def _id(problem: CandidateRequest, turn: int) -> str:
    return f"{problem.example_id}/{problem.sample}/{turn}"


def _prompt_and_completion(
    problem: CandidateRequest, turns: list[Turn], export: Export, place: int, field: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the prompt and the completion."""
    if export == "best":
        return list(problem.messages), [_assistant(turns[place], field)]
    if export == "last":
        return list(turns[-1].asked), [_assistant(turns[-1], field)]
    completion: list[dict[str, Any]] = [_assistant(turns[0], field)]
    for turn in turns[1:]:
        completion += [turn.asked[-1], _assistant(turn, field)]
    return list(problem.messages), completion


def _assistant(turn: Turn, field: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": turn.written.content}
    return message | {field: turn.written.reasoning} if turn.written.reasoning else message


def _code(turn: Turn) -> str:
    """Return the candidate; empty if there is none."""
    if turn.written.fault:
        return ""
    try:
        return read_answer(turn.written.content).code
    except NoAnswer:
        # The evaluator also accepts bare code. A text that it could not read is not code.
        bare = turn.verdict.status not in ("FORMAT_ERROR", "PARSE_ERROR")
        return turn.written.content if bare else ""
