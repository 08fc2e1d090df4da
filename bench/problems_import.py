"""`kernelmill problems import` of a KernelBench checkout: python bench/problems_import.py PATH/TO/KernelBench

Twice, with `transformers` and in a Python that has none. Must hold: all 270 problems are imported, 250 without `transformers`, each in
under 10 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import save

from kernelmill.problems.sets.folder import read_set

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.problems.sets.without import run, without

LIMIT_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernelbench", type=Path)
    source = str(parser.parse_args().kernelbench.resolve())
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        line = ["problems", "import", source, "--workers", "2", "--into"]
        found = {"with_transformers": measured(here / "with", [*line, "with"], None)}
        packages = without("transformers", here / "packages")
        found["without_transformers"] = measured(here / "without", [*line, "without"], packages)
    holds = {
        "270 problems": found["with_transformers"]["imported"] == 270,
        "250 without transformers": found["without_transformers"]["imported"] == 250,
        "under 10 minutes": all(one["seconds"] < LIMIT_S for one in found.values()),
    }
    save("problems_import", found | {"holds": holds})
    return 0 if all(holds.values()) else 1


def measured(folder: Path, line: list[str], packages: Path | None) -> dict[str, Any]:
    start = time.monotonic()
    if packages is None:
        subprocess.run([sys.executable, "-m", "kernelmill", *line], cwd=folder.parent, check=True)
    else:
        run(packages, *line, cwd=folder.parent, timeout=2 * LIMIT_S).check_returncode()
    record = read_set(folder)
    return {
        "imported": len(record.problems),
        "full_size": sum(one.full is not None for one in record.problems),
        "small": sum(one.shrunk is not None for one in record.problems),
        "admitted": sum(one.admitted for one in record.problems),
        "not_imported": len(record.rejected),
        "seconds": round(time.monotonic() - start),
    }


if __name__ == "__main__":
    sys.exit(main())
