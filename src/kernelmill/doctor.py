"""`kernelmill doctor`: what this machine can do, and what to install or set for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelmill import __version__
from kernelmill.base.missing import install
from kernelmill.base.whole_file import encoded
from kernelmill.errors import ConfigError
from kernelmill.evaluate.interpreter_gaps import UNSUPPORTED
from kernelmill.sandbox import what_is_missing
from kernelmill.sandbox.gpu_vendors import VENDORS, vendor_here, visible_gpus
from kernelmill.settings.config import environment, secret
from kernelmill.settings.options import ToolSettings, option
from kernelmill.settings.providers import PROVIDERS
from kernelmill.settings.registry import referenced
from kernelmill.tokens.vocabulary import embedded_vocabulary_is_installed

REGISTRIES = (
    "kernelmill.evaluate.score.rewards:REWARDS",
    "kernelmill.evaluate.compile.targets:TARGETS",
    "kernelmill.evaluate.languages:LANGUAGES",
    "kernelmill.problems.sets.trainers:TRAINERS",
    "kernelmill.tokens.tokenizer_files:TOKENIZERS",
    "kernelmill.settings.providers:PROVIDERS",
)
"""Everything that plug-ins can add to."""


class Finding(NamedTuple):
    what: str
    state: str
    """`yes`, `no` or `part`."""
    detail: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class DoctorSettings(ToolSettings):
    """`kernelmill doctor`: what this machine can do, and what to install or set for the rest."""

    abbreviations = True
    json: bool = option(False, "print JSON")


def main(options: DoctorSettings) -> int:
    found = list(findings())
    if options.json:
        print(encoded([finding._asdict() for finding in found]).decode(), end="")
        return 0
    table = Table(title=f"kernelmill {__version__}, Python {platform.python_version()}", title_justify="left")
    for name in ("", "here", "what it is", "what to do"):
        table.add_column(name)
    colours = {"yes": "green", "no": "yellow", "part": "yellow"}
    for finding in found:
        state = Text(finding.state, style=colours[finding.state])
        table.add_row(finding.what, state, Text(finding.detail), Text(finding.remedy))
    Console(highlight=False).print(table)
    return 0


def findings() -> Iterator[Finding]:
    python = sys.version_info >= (3, 11)
    yield Finding(
        "Python",
        "yes" if python else "no",
        platform.python_version(),
        "" if python else "install 3.11 or newer",
    )
    yield _package("torch", "modules can be traced: shapes, operations", install("eval"))
    yield _package("triton", "Triton kernels can be compiled and interpreted here", install("eval"))
    yield _package("fastapi", "serve judges candidates behind HTTP", install("serve"))
    yield _gpu()
    yield _package("datasets", "what is on the Hub opens with it", install("hub"))
    embedded = embedded_vocabulary_is_installed()
    yield Finding(
        "tokenizer",
        "yes" if embedded else "no",
        "the Qwen vocabulary is here: --dry-run counts tokens, lengths needs no network"
        if embedded
        else "--dry-run estimates tokens from characters",
        "" if embedded else install("offline"),
    )
    for provider in PROVIDERS.values():
        yield _key(provider.key_variable, provider.what)
    yield _key("HF_TOKEN", "private datasets on the Hub")
    missing = what_is_missing()
    yield Finding(
        "isolation",
        "part" if missing else "yes",
        "modules and candidates run in processes with limits"
        + (f"; this machine lacks: {', '.join(missing)}" if missing else ""),
        "trace (or --no-trace) and evaluate only code that you trust" if missing else "",
    )
    yield _evaluator()
    yield Finding(
        "interpreter",
        "part",
        f"judges kernels without a GPU, but for those that need: {', '.join(UNSUPPORTED)}",
        "docs/evaluate.md; such candidates are UNSUPPORTED, never incorrect",
    )
    yield from _plugins()


def _plugins() -> Iterator[Finding]:
    """What installed plug-ins add, each loaded once; nothing where there are none."""
    for registry in map(referenced, REGISTRIES):
        for plugin in registry.plugins():
            what = f"{registry.kind} {plugin.point.name}"
            try:
                registry.find(plugin.point.name)
            except ConfigError as error:
                yield Finding(what, "no", str(error), f"update or uninstall {plugin.origin}")
            else:
                yield Finding(what, "yes", f"of the plug-in {plugin.origin}")


def _evaluator() -> Finding:
    needed = [name for name in ("torch", "triton", "numpy") if importlib.util.find_spec(name) is None]
    if needed:
        return Finding(
            "evaluate",
            "no",
            f"candidates are judged with {', '.join(needed)}",
            install("eval"),
        )
    gpus = visible_gpus()
    if not gpus:
        return Finding(
            "evaluate",
            "part",
            "tiers static and interpreter, and compilation for GPUs that are not here; nothing is timed",
            f"for the tiers gpu and gpu_timed, an {' or '.join(vendor.what for vendor in VENDORS)} GPU",
        )
    return Finding("evaluate", "yes", f"all tiers; GPUs: {', '.join(map(str, gpus))}")


def _package(name: str, use: str, remedy: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        return Finding(name, "no", f"with it: {use}", remedy)
    return Finding(name, "yes", f"{importlib.metadata.version(name)}; {use}")


def _key(name: str, use: str) -> Finding:
    if secret(name):
        return Finding(name, "yes", f"set; for {use}")
    return Finding(name, "no", f"for {use}", f"set {name} in .env or the environment")


def _gpu() -> Finding:
    """Asked in a process of its own: importing torch takes seconds and may start a CUDA context."""
    if importlib.util.find_spec("torch") is None:
        return Finding("GPU", "no", "not looked for: that takes torch", install("eval"))
    code = "import torch; n = torch.cuda.device_count(); print(n, torch.cuda.get_device_name(0) if n else '')"
    try:
        asked = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(environment())
        )
    except subprocess.TimeoutExpired:
        check = f"check the driver with {vendor_here().driver_check}"
        return Finding("GPU", "no", "torch did not answer within 60 s", check)
    number, _, name = asked.stdout.strip().partition(" ")
    if asked.returncode or not number.isdigit():
        return Finding("GPU", "no", "torch cannot look for one", "run: python -c 'import torch'")
    if number == "0":
        return Finding(
            "GPU",
            "no",
            "everything here runs without one",
            "for timing, a CUDA device and torch built for it",
        )
    return Finding("GPU", "yes", f"{number} x {name}")
