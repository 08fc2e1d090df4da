"""Whether kernelmill can be installed beside servers and trainers: the real resolver (`uv pip compile`), nothing installed.

    python bench/installs.py --uv path/to/uv        writes bench/results/installs.json and the table of docs/install.md

For each target it resolves the target alone, then with kernelmill, and says what changed for the target. Python 3.12 on Linux, as
prime-rl wants it. slime and prime-rl are not on PyPI: their requirements are given as files, one requirement a line
(`--slime requirements.txt`, `--prime-rl requirements.txt`), and are left out otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench/results/installs.json", ROOT / "docs/install.md"
BEGIN, END = "<!-- installs: begin -->", "<!-- installs: end -->"
TARGETS = {
    "sglang": ["sglang==0.5.23"],
    "vLLM": ["vllm==0.32.0"],
    "verl": ["verl==0.9.1"],
    "verl with vLLM": ["verl[vllm]==0.9.1"],
    "verl 0.8 with sglang": ["verl[sglang]==0.8.0"],
    "TRL": ["trl==1.16.0"],
    "TRL with vLLM": ["trl[vllm]==1.16.0"],
    "verifiers": ["verifiers==0.4.0"],
}
SHOWN = ("openai", "huggingface-hub", "torch")


def main() -> int:
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--uv", default="uv", metavar="PATH", help="the uv to resolve with")
    made.add_argument("--slime", type=Path, metavar="FILE", help="slime's requirements.txt")
    made.add_argument("--prime-rl", type=Path, metavar="FILE", help="prime-rl's requirements, one a line")
    made.add_argument("--prime-rl-overrides", type=Path, metavar="FILE", help="and its override-dependencies")
    made.add_argument("--only", nargs="*", metavar="TARGET", help="resolve these, and keep the other lines")
    given = made.parse_args()
    targets = dict(TARGETS)
    if given.slime:
        targets["slime with sglang"] = [*requirements(given.slime), *TARGETS["sglang"]]
    if given.prime_rl:
        targets["prime-rl"] = requirements(given.prime_rl)
    overrides = {"prime-rl": given.prime_rl_overrides}
    kept = {row["target"]: row for row in json.loads(RESULTS.read_text())["targets"]} if given.only else {}
    rows = [
        kept[name]
        if given.only and name not in given.only
        else resolve_beside(given.uv, name, wanted, overrides.get(name))
        for name, wanted in targets.items()
    ]
    found = {"dependencies": dependencies(), "python": "3.12", "targets": rows}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    page = PAGE.read_text()
    PAGE.write_text(f"{page.partition(BEGIN)[0]}{BEGIN}\n{table(found)}\n{END}{page.partition(END)[2]}")
    print(table(found))
    return 0 if all(row["resolves"] for row in rows) else 1


def requirements(file: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def dependencies() -> list[str]:
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return found


def resolve_beside(uv: str, name: str, wanted: list[str], overrides: Path | None) -> dict[str, Any]:
    alone, trouble = resolve(uv, wanted, overrides)
    if alone is None:
        return {"target": name, "wants": wanted[-1], "resolves": None, "trouble": trouble}
    both, trouble = resolve(uv, [*wanted, f"kernelmill @ {ROOT.as_uri()}"], overrides)
    evaluator, _ = resolve(uv, [*wanted, f"kernelmill[eval] @ {ROOT.as_uri()}"], overrides)
    print(f"{name}: {'resolves' if both else trouble}", file=sys.stderr)
    return {
        "target": name,
        "wants": wanted[-1],
        "resolves": both is not None,
        "trouble": trouble,
        "with_eval": evaluator is not None,
        "versions": {one: both[one] for one in SHOWN if both and one in both},
        "added": sorted(set(both or {}) - set(alone) - {"kernelmill"}),
        "changed": sorted(one for one in alone if both and both.get(one) != alone[one]),
    }


def resolve(uv: str, wanted: list[str], overrides: Path | None) -> tuple[dict[str, str] | None, str]:
    """The versions by name, or None and what the resolver says."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "wanted.txt"
        file.write_text("\n".join(wanted) + "\n")
        # sglang wants pre-releases of some kernels' packages.
        early = "allow" if any("sglang" in one for one in wanted) else "if-necessary-or-explicit"
        line = [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--no-annotate",
            "--no-sources",
            "--prerelease",
            early,
        ]
        line += ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_35", str(file)]
        line += ["--override", str(overrides)] if overrides else []
        done = subprocess.run(line, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        return None, " ".join(done.stderr.split())[:600]
    return dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.MULTILINE)), ""


def table(found: dict[str, Any]) -> str:
    lines = [
        "| beside | resolves | with `[eval]` | openai | huggingface_hub | torch | changed for it | added |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["targets"]:
        if row["resolves"] is None:
            lines.append(f"| {row['target']} | does not resolve by itself here | | | | | | |")
            continue
        versions = [row["versions"].get(name, "–") for name in SHOWN]
        cells = ["yes" if row["resolves"] else "no", "yes" if row["with_eval"] else "no", *versions]
        cells += [", ".join(row["changed"]) or "nothing", ", ".join(row["added"]) or "nothing"]
        lines.append(f"| {row['target']} (`{row['wants']}`) | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
