"""`kernelmill run`: run several stages from one config, skipping those that are up to date.

The config's `[run]` table names the steps in order. A step's settings come from its stage's table,
overridden by the step's own keys. A step is skipped if its settings, the content of its inputs and its
outputs have not changed since the hashes in `run.json` were recorded. A step without output files
(publishing to the Hub) always runs, and checks for itself whether there is anything to do.

Steps run one after the other. The first failure ends the run; the results of earlier steps are kept.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernelmill import __version__
from kernelmill.base.locks import take_lock
from kernelmill.base.resources import bundled
from kernelmill.base.terminal import say
from kernelmill.base.whole_file import encoded, replacing
from kernelmill.errors import ConfigError, SourceError, Stopped
from kernelmill.flow import COMMANDS, StageResult
from kernelmill.generate.synthesize.settings import SynthesizeSettings
from kernelmill.pipeline.forecast import Forecast
from kernelmill.pipeline.run_report import Record, Step, now, read_record, show
from kernelmill.publish.splits import ancestors
from kernelmill.settings.arguments import Parser, config_file
from kernelmill.settings.base import RowSettings, Settings
from kernelmill.settings.commands import run_tool
from kernelmill.settings.config import load, public, secret
from kernelmill.settings.fields import PublishSettings, RunSettings
from kernelmill.settings.options import ToolSettings, argument, option
from kernelmill.settings.registry import stage_classes
from kernelmill.stages.call import call_stage, stage_settings
from kernelmill.store import Source, open_source
from kernelmill.store.manifest import file_hash
from kernelmill.store.output import beside, test_path

DEFAULT = "configs/offline.toml"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class RunFlags(ToolSettings):
    """Run the stages that a config names, skipping what is done."""

    abbreviations = True
    file: Path | None = argument(f"TOML file (default: {DEFAULT})", "FILE", None)
    from_: str | None = option(None, "begin with this step", metavar="STEP")
    until: str | None = option(None, "end with this step", metavar="STEP")
    only: str | None = option(None, "these steps and no others", metavar="STEP,STEP")
    force: bool = option(False, "run steps even if nothing has changed")
    dry_run: bool = option(False, "say which steps would run, and why, with their calls and cost; run none")
    test_mode: bool = option(False, "first 5 rows only, beside the real outputs; nothing is published")
    config: Path | None = None
    """The file, where it was given as `@ FILE` or `--config FILE`."""

    @classmethod
    def load(cls, parser: Parser, arguments: list[str]) -> RunFlags:
        """The config names the steps: its table `[run]` is `RunSettings`, not values of these flags."""
        config, arguments = config_file(arguments)
        return cls.of(parser.parse_args(arguments), config=config)


def main(flags: RunFlags) -> int:
    """`kernelmill run`: a config in; the outputs of its stages and `run.json` out. Returns the exit code."""
    if flags.file is not None and flags.config is not None:
        raise ConfigError(f"two configs, {flags.file} and {flags.config}: name one")
    file = flags.file or flags.config
    if file is None:
        file = bundled(DEFAULT)
        say(f"no config given: running {DEFAULT}, which needs no GPU, no key and no network")
    elif str(file) == DEFAULT and not file.exists():
        file = bundled(DEFAULT)
        say(f"{DEFAULT} is not in this folder: running the one that ships with kernelmill")
    settings = load("run", RunSettings, {"test_mode": True} if flags.test_mode else {}, file)
    run = Run(settings, file, flags)
    return run.plan() if flags.dry_run else run.run()


class Run:
    """The steps of one config, and the record of the last run."""

    def __init__(self, settings: RunSettings, file: Path, flags: RunFlags) -> None:
        self._file = file
        self._force = flags.force
        self._test = settings.test_mode
        self._path = settings.report.with_suffix(".test.json") if self._test else settings.report
        self._steps = _steps(settings, file)
        if self._test:
            _rewire(self._steps)
        self._chosen = _chosen([name for name, _, _ in self._steps], flags)
        self._settings = settings
        self._record = Record(FORMAT, config=file.name, started=now())
        self._old = {step.name: step for step in read_record(self._path, FORMAT).steps}

    def plan(self) -> int:
        """Print which steps would run, their model calls and their cost. Calls nothing."""
        first = ""
        forecast = Forecast()
        for name, stage, settings in self._steps:
            fingerprint, why = self._why(name, stage, settings)
            if not fingerprint and (writer := forecast.writer(settings)):
                why = f"it reads what {writer} writes"
            said = forecast.add(name, stage, settings, runs=name in self._chosen and bool(why or first))
            if name in self._chosen:
                shown = f"would run: {why}" if why else f"may run, after {first}" if first else "unchanged"
                first = first or (name if why else "")
                print(f"{name:<28}{shown}; {said}")
        print(f"{'all':<28}{forecast.total()}")
        return 0

    def run(self) -> int:
        lock = take_lock(self._path, f"{self._path} is being written by another kernelmill run")
        self._record.steps = [self._old.get(name) or Step(name, stage) for name, stage, _ in self._steps]
        for step in self._record.steps:
            step.status, step.reason = "not reached" if step.name in self._chosen else "left out", ""
        whole = False
        try:
            for place, (name, stage, settings) in enumerate(self._steps):
                if name in self._chosen:
                    self._do(place, name, stage, settings)
            # The example and the next commands refer to the real outputs of all steps.
            whole = not self._test and len(self._chosen) == len(self._steps)
            if whole and self._settings.show and any(step.status == "done" for step in self._record.steps):
                print("--- an example")
                run_tool("show", shlex.split(self._settings.show))
        finally:
            self._save()
            show(self._record, self._path, self._settings.next if whole else [])
            lock.close()
        return 0

    def _do(self, place: int, name: str, stage: str, settings: Settings) -> None:
        step = Step(name, stage, config=public(settings))
        if self._test and stage == "publish":
            step.status, step.reason = "left out", "test mode publishes nothing"
            self._record.steps[place] = step
            return
        fingerprint, why = self._why(name, stage, settings)
        if not why:
            self._record.steps[place].status = "unchanged"
            print(f"--- {name}: unchanged")
            return
        print(f"--- {name}: {why}", flush=True)
        self._record.steps[place] = step
        step.status, started = "failed", time.monotonic()
        try:
            made = call_stage(COMMANDS[stage], settings)
        except (Stopped, KeyboardInterrupt):
            step.status = "stopped"
            raise
        finally:
            step.seconds = round(time.monotonic() - started, 3)
        _note(step, made)
        # If an input changed meanwhile, the recorded fingerprint differs, and the next run repeats the step.
        step.fingerprint, step.status = fingerprint or _fingerprint(stage, settings), "done"
        self._save()

    def _why(self, name: str, stage: str, settings: Settings) -> tuple[str, str]:
        """The fingerprint, and why the step has to run; empty if it is up to date."""
        old = self._old.get(name)
        try:
            fingerprint = _fingerprint(stage, settings)
        except SourceError as error:
            # The input may be made by an earlier step. If it is missing, the step reports that itself.
            return "", f"what it reads is not there ({error})"
        if self._force:
            return fingerprint, "forced"
        if old is None or not old.fingerprint:
            return fingerprint, "not done yet"
        if old.fingerprint != fingerprint:
            changed = old.config != msgspec.json.decode(msgspec.json.encode(public(settings)))
            return fingerprint, "its settings have changed" if changed else "what it reads has changed"
        if not old.outputs:
            return fingerprint, "it leaves no file to go by"
        for path, sha in old.outputs.items():
            if not Path(path).is_file():
                return fingerprint, f"{path} is gone"
            if file_hash(Path(path)) != sha:
                return fingerprint, f"{path} has changed"
        return fingerprint, ""

    def _save(self) -> None:
        self._record.finished = now()
        with replacing(self._path) as file:
            file.write(encoded(self._record))


Steps = list[tuple[str, str, Settings]]
"""Name, stage and settings."""


def _steps(settings: RunSettings, file: Path) -> Steps:
    steps: Steps = []
    for place, given in enumerate(settings.steps, 1):
        values = dict(given)
        stage = values.pop("stage", None)
        if stage not in stage_classes():
            raise ConfigError(
                f"{file}: step {place} of [run] needs a stage (one of: {', '.join(stage_classes())})"
            )
        name = str(values.pop("name", stage))
        if any(name == other for other, _, _ in steps):
            raise ConfigError(f"{file}: two steps of [run] are called {name}: give one of them a name")
        if settings.test_mode:
            values["test_mode"] = True
        steps.append((name, stage, stage_settings(stage, values, file)))
    if not steps:
        raise ConfigError(f'{file}: [run] names no steps (steps = [{{ stage = "rate" }}, …])')
    return steps


def _rewire(steps: Steps) -> None:
    """In test mode, let a step read what the test run of an earlier step wrote."""
    written: dict[Path, str] = {}
    for place, (name, stage, settings) in enumerate(steps):
        source = written.get(Path(getattr(settings, "source", "")).resolve())
        if source is not None:
            settings = settings.model_copy(update={"source": source})
            steps[place] = (name, stage, settings)
        if isinstance(settings, RowSettings) and settings.output is not None:
            written[settings.output.resolve()] = str(test_path(settings.output))


def _chosen(names: list[str], flags: RunFlags) -> set[str]:
    """The steps to run, according to the flags."""
    only = [name.strip() for name in flags.only.split(",")] if flags.only is not None else []
    for name in (*only, flags.from_, flags.until):
        if name is not None and name not in names:
            raise ConfigError(f"there is no step {name} (there are: {', '.join(names)})")
    if only:
        if flags.from_ or flags.until:
            raise ConfigError("--only names the steps, so --from and --until say nothing: leave them out")
        return set(only)
    first = names.index(flags.from_) if flags.from_ else 0
    last = names.index(flags.until) if flags.until else len(names) - 1
    if last < first:
        raise ConfigError(f"--from {flags.from_} comes after --until {flags.until}")
    return set(names[first : last + 1])


def _fingerprint(stage: str, settings: Settings) -> str:
    """A hash of everything that a step's result depends on."""
    parts = [__version__, stage, msgspec.json.encode(public(settings)).decode()]
    parts += [f"{name} {content}" for name, content in _reads(settings)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _reads(settings: Settings) -> Iterator[tuple[str, str]]:
    """The inputs of a step, each with its hash. Raises `SourceError` if one is missing."""
    if isinstance(settings, PublishSettings):
        from kernelmill.publish.jobs import find_jobs

        specs = [job.source for job in find_jobs(settings)[0]]
    elif isinstance(settings, SynthesizeSettings):
        from kernelmill.evaluate.options import environment
        from kernelmill.generate.synthesize.grading import options_of

        # Verdicts depend on the versions of torch and triton, and on whether there is a GPU.
        yield "judged by", msgspec.json.encode([environment(), options_of(settings).key()]).decode()
        specs = []
        for one in settings.sets():
            yield one.id, _content(open_source(one.id, one.args.split, secret("HF_TOKEN")))
    else:
        specs = [str(getattr(settings, "source", ""))]
        specs += [benchmark.partition("=")[2] or benchmark for benchmark in getattr(settings, "against", [])]
    split = getattr(settings, "split", None) if isinstance(settings, RowSettings) else None
    for spec in specs:
        source = open_source(spec, split if spec == specs[0] else None, secret("HF_TOKEN"))
        yield spec, _content(source)
        if isinstance(settings, PublishSettings):
            # The split depends on the sets that the rows come from; the card on their manifests and lengths.
            for other in ancestors(source):
                yield other.name, file_hash(other.files[0].path)
            if source.origin.get("kind") == "file":
                for suffix in (".manifest.json", ".lengths.json"):
                    path = beside(source.files[0].path, suffix)
                    yield suffix, file_hash(path) if path.is_file() else ""
    prompt, tokenizer = getattr(settings, "prompt", None), getattr(settings, "tokenizer", None)
    if prompt is not None:
        yield "prompt", file_hash(prompt) if prompt.is_file() else ""
    if tokenizer is not None and (folder := Path(tokenizer).expanduser()).is_dir():
        yield (
            "tokenizer",
            " ".join(f"{path.name} {file_hash(path)}" for path in sorted(folder.iterdir()) if path.is_file()),
        )


def _content(source: Source) -> str:
    """The content of a source, as a revision or as hashes."""
    if source.origin.get("kind") == "hub":
        return str(source.origin["revision"])
    return " ".join(f"{file.label} {file_hash(file.path)}" for file in source.files)


def _note(step: Step, made: StageResult) -> None:
    step.rows_in, step.rows_out, step.rejected = made.rows_in, made.rows_out, made.rejected
    step.cost_usd, step.results = made.cost, dict(made.results)
    step.outputs = {str(path): file_hash(path) for path in made.outputs}
