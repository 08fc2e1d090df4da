"""`kernelmill evaluate`: judge one pair, or a file of pairs, from the command line.

Also runs as `python -m kernelmill.evaluate` on a machine that has only Python, numpy, torch and triton.
"""

from __future__ import annotations

import asyncio
import math
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from kernelmill.base.terminal import plain, say
from kernelmill.errors import ConfigError, OutputError, SourceError
from kernelmill.evaluate.batch import PairBatch, finished, run
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.progress import watch
from kernelmill.evaluate.score.rewards import REWARDS, find
from kernelmill.evaluate.score.summary import render
from kernelmill.evaluate.verdict import Tier, Verdict, VerdictValue
from kernelmill.evaluate.verdict_journal import VerdictRow, encode
from kernelmill.settings.options import (
    Device,
    ToolSettings,
    argument,
    device_option,
    option,
    processors,
    workers_option,
)

NOT_DONE = 3
"""Exit code if rows of a file are still owed, or if there is a verdict that --fail-on names."""


def _numbers(text: str) -> tuple[int, ...]:
    if not all(part.isascii() and part.isdigit() for part in text.split(",")):
        raise ArgumentTypeError(f"{text}: expected numbers, such as 0,1")
    return tuple(dict.fromkeys(int(part) for part in text.split(",")))


def _truths(text: str) -> tuple[VerdictValue, ...]:
    known: dict[str, VerdictValue] = {truth: truth for truth in get_args(VerdictValue)}
    named = [part.strip() for part in text.split(",")]
    if unknown := [part for part in named if part not in known]:
        raise ArgumentTypeError(f"{unknown[0] or repr(text)}: expected some of {', '.join(known)}")
    return tuple(dict.fromkeys(known[part] for part in named))


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < 1e6:
        raise ArgumentTypeError(f"{text}: expected a number of seconds")
    return found


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(ToolSettings):
    """Say whether Triton candidates compute what their PyTorch references do, and how: correct, incorrect, hack
    or inconclusive."""

    epilog = (
        "Exit codes: 0 judged, whatever the verdict; 1 trouble; 2 wrong usage; 3 rows still owed (INFRA_ERROR: run again), "
        "or a verdict that --fail-on names; 130 interrupted (run again to go on)."
    )
    pairs: Path | None = argument(
        "rows of id, reference, candidate, entry_point; may be .jsonl.gz", "PAIRS.jsonl", None
    )
    reference: Path | None = option(None, "for one pair: the PyTorch module")
    candidate: Path | None = option(None, "for one pair: the Triton code, or a completion that holds it")
    output: Path | None = option(
        None, "where the verdicts go (default: PAIRS.verdicts.jsonl; nowhere for one pair)", flag="-o"
    )
    json: bool = option(False, "print JSON: of one pair, the verdict's row and nothing else")
    device: Device = device_option()
    devices: tuple[int, ...] = option((), "GPUs to use (default: all)", parse=_numbers, metavar="0,1")
    tier: Tier | None = option(None, "how far to go (default: as far as the device allows)")
    audit: bool = option(False, "run every check and record it, also after the first failure")
    tf32: bool = option(False, "allow TF32 in float32 matrix products")
    timeout: float = option(
        Options.timeout,
        f"seconds one candidate may take in one tier; waiting does not count (default: {Options.timeout:g})",
        parse=_seconds,
        metavar="SECONDS",
    )
    seed: int | None = option(None, "fixed seed, to reproduce a verdict (default: random)", least=0)
    entry_point: str | None = option(
        None, "the reference's class, where a row does not name it", metavar="CLASS"
    )
    reward: str | None = option(
        None, lambda: f"also as the column `reward`: {REWARDS.listed()}", metavar="NAME"
    )
    fail_on: tuple[VerdictValue, ...] = option(
        (),
        f"exit with {NOT_DONE} if there is one of these: {', '.join(get_args(VerdictValue))}, joined by commas; for CI",
        parse=_truths,
        metavar="VERDICTS",
    )
    traces: Path | None = option(
        None, "a folder for what each candidate did, as a program: JSON, and text to read", metavar="FOLDER"
    )
    workers: int | None = workers_option("pairs")
    limit: int | None = option(None, "the first N pairs only", least=1)
    force: bool = option(
        False, "throw away the verdicts that the output and its journal hold, and judge again"
    )


def main(given: EvaluateSettings) -> int:
    if given.reward is not None:
        find(given.reward)
    if given.devices and (given.device == "cpu" or given.tier in ("static", "interpreter")):
        raise ConfigError("--devices names GPUs, and nothing here runs on one")
    options = Options(
        device=given.device,
        devices=given.devices,
        tier=given.tier,
        audit=given.audit,
        tf32=given.tf32,
        timeout=given.timeout,
        call_timeout=min(Options.call_timeout, given.timeout),
        seed=given.seed,
    )
    if given.traces is not None:
        try:
            given.traces.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{given.traces}: no folder can be made there ({error.strerror})") from None
    if given.pairs is None:
        return _one(given, options)
    return _many(given, given.pairs, options)


def _one(given: EvaluateSettings, options: Options) -> int:
    if given.reference is None or given.candidate is None:
        raise ConfigError("name a file of pairs, or --reference FILE and --candidate FILE")
    for name in ("limit", "force", "workers"):
        if getattr(given, name):
            raise ConfigError(f"--{name} is for a file of pairs")
    if given.output is not None and not given.output.parent.is_dir():
        raise OutputError(f"{given.output.parent} is not there: make the folder first")
    pair = Pair(given.candidate.name, _read(given.reference), _read(given.candidate), given.entry_point)
    verdict = asyncio.run(_judged(pair, options, given.traces, quiet=given.json))
    row = finished(verdict.to_dict() | {"key": pair.key(options)}, pair.id, given.reward)
    if given.output is not None:
        given.output.write_bytes(encode(row))
    print(encode(row).decode().rstrip("\n") if given.json else describe(verdict, row))
    return 1 if verdict.status == "INFRA_ERROR" else _exit_code(given.fail_on, {verdict.verdict: 1})


def _exit_code(fail_on: tuple[VerdictValue, ...], verdicts: Mapping[VerdictValue, int]) -> int:
    """`NOT_DONE` if there is a verdict that --fail-on names, else 0."""
    found = [f"{verdicts[truth]:,} {truth}" for truth in fail_on if verdicts.get(truth)]
    if found:
        say(f"exit code {NOT_DONE}: {', '.join(found)} (--fail-on {','.join(fail_on)})")
    return NOT_DONE if found else 0


async def _judged(pair: Pair, options: Options, traces: Path | None, quiet: bool) -> Verdict:
    async with Evaluator(options, workers=1, traces=traces) as evaluator:
        if options.tier == "static":
            return await evaluator.evaluate(pair)
        # All servers start in the background. A pair that the static checks decide waits for none of them.
        beside: list[asyncio.Task[Any]] = [asyncio.create_task(evaluator.start())]
        if not quiet:
            beside.append(asyncio.create_task(watch(pair.id, evaluator.doing)))
            await asyncio.sleep(0)  # show the first line before the static checks, which may take long
        try:
            return await evaluator.evaluate(pair)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


def _many(given: EvaluateSettings, pairs: Path, options: Options) -> int:
    if given.reference is not None or given.candidate is not None:
        raise ConfigError("name a file of pairs, or --reference and --candidate, not both")
    if given.json:
        raise ConfigError("--json is for one pair: the verdicts of a file are JSON already, in OUT")
    output = given.output or pairs.with_name(f"{_stem(pairs)}.verdicts.jsonl")
    if output.suffix == ".gz":
        raise ConfigError(f"{output}: verdicts are written as plain .jsonl")
    workers = processors(given.workers)
    batch = PairBatch(
        pairs,
        output,
        options,
        workers,
        given.reward,
        given.entry_point,
        given.limit,
        given.traces,
        given.force,
    )
    done = run(batch)
    print(render(done.summary))
    owed = done.summary.statuses["INFRA_ERROR"]
    if owed:
        say(still_owed(owed))
    if done.written:
        say(f"{done.summary.rows:,} row{'s' if done.summary.rows != 1 else ''} in {output}")
    else:
        say(f"{output} is complete: nothing to do (--force judges everything again)")
    return _exit_code(given.fail_on, done.summary.verdicts) or (NOT_DONE if owed else 0)


def still_owed(rows: int) -> str:
    """The message for INFRA_ERROR rows.

    They set the exit code whatever --fail-on says: rows that were not judged must not pass in CI.
    """
    return f"exit code {NOT_DONE}: {rows:,} row{'s' if rows > 1 else ''} INFRA_ERROR, not judged: the same command judges them again"


def describe(verdict: Verdict, row: VerdictRow) -> str:
    """One verdict as text for the terminal."""
    seconds = verdict.cost.get("wall_s")
    took = f", {seconds:.2f} s" if isinstance(seconds, int | float) else ""
    lines = [f"{verdict.verdict} ({verdict.status}) at tier {verdict.tier}{took}"]
    results = Counter(check.result for check in verdict.checks)
    if results:
        failed = [check.name for check in verdict.checks if check.result == "fail"]
        counts = ", ".join(f"{count} {result}" for result, count in results.items())
        lines.append(f"  checks    {counts}" + (f": {', '.join(failed)}" if failed else ""))
    grades = {name: value for name, value in row["grade"].items() if value is not None}
    if grades:
        lines.append(f"  grade     {', '.join(f'{name} {_word(value)}' for name, value in grades.items())}")
    for flag in verdict.flags:
        lines.append(f"  flag      {flag.code} ({flag.severity})")
    if verdict.perf is not None:
        perf = verdict.perf
        span = f"{perf.speedup_lo:.2f} to {perf.speedup_hi:.2f}"
        lines.append(
            f"  time      {perf.median_us:,.1f} us on {perf.device}, speed-up {perf.speedup:.2f} ({span})"
        )
    if "reward" in row:
        lines.append(f"  reward    {_word(row['reward'])}")
    if missing := verdict.env.get("sandbox_missing"):
        lines.append(f"  sandbox   lacks {'; '.join(map(str, missing))}")
    lines += ["", *verdict.feedback.splitlines()]
    return "\n".join(plain(line) for line in lines)


def _word(value: bool | float | str | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none (masked)"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror})") from None


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")
