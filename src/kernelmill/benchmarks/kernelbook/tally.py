"""Running counts of rows, by outcome, status and licence."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

from kernelmill.evaluate.verdict import Verdict, VerdictValue

NO_LICENCE = "(none named)"
NOT_JUDGED = "not judged"
_MOSTLY_TORCH = "A4.torch_does_most"
_SHOWN = 12
_COLUMNS = (*get_args(VerdictValue), NOT_JUDGED)


class Tally:
    """Counts rows.

    A row with several licences counts under each, so licences may sum to more than the rows.
    """

    def __init__(self) -> None:
        self.statuses: Counter[tuple[str, str]] = Counter()
        """Rows by truth and status; unjudged rows by reason."""
        self.licences: dict[str, Counter[str]] = {}
        """Rows of each truth, `not judged` and `kept`, by licence."""
        self.tiers: Counter[str] = Counter()
        """Verified rows, by the tier they reached."""
        self.mostly_torch = 0
        """Verified rows in which torch does most of the work: the evaluator's soft flag."""

    def judged(self, truth: VerdictValue, verdict: Verdict, licences: list[str], kept: bool) -> None:
        self.statuses[truth, verdict.status] += 1
        if truth == "correct":
            self.tiers[verdict.tier] += 1
            self.mostly_torch += any(flag.code == _MOSTLY_TORCH for flag in verdict.flags)
        self._count(licences, [truth, *(["kept"] if kept else [])])

    def unread(self, why: str, licences: list[str]) -> None:
        self.statuses[NOT_JUDGED, why] += 1
        self._count(licences, [NOT_JUDGED])

    def _count(self, licences: list[str], names: list[str]) -> None:
        for licence in dict.fromkeys(licences) or [NO_LICENCE]:
            self.licences.setdefault(licence, Counter()).update(names)

    @property
    def rows(self) -> int:
        return self.statuses.total()

    def verified(self) -> str:
        """Describe the verified rows in one line."""
        tiers = ", ".join(f"{count:,} at tier {tier}" for tier, count in sorted(self.tiers.items()))
        mostly = (
            f"; in {self.mostly_torch:,} of them torch does most of the work" if self.mostly_torch else ""
        )
        return f"{self.tiers.total():,}" + (f": {tiers}{mostly}" if tiers else "")

    def details(self) -> dict[str, Any]:
        """Return the counts for the manifest."""
        statuses: dict[str, dict[str, int]] = {}
        for (truth, status), count in _most(self.statuses):
            statuses.setdefault(truth, {})[status] = count
        by_licence = sorted(self.licences, key=lambda name: (-_rows(self.licences[name]), name))
        return {
            "outcomes": statuses,
            "verified": {"tiers": dict(sorted(self.tiers.items())), "mostly_torch": self.mostly_torch},
            "licences": {
                name: {"rows": _rows(self.licences[name])} | dict(sorted(self.licences[name].items()))
                for name in by_licence
            },
        }

    def render(self) -> str:
        """Render two plain-text tables, without a final line break."""
        if not self.rows:
            return "no rows"
        lines = [f"{'outcome':<48}{'rows':>10}{'share':>9}"]
        for (truth, status), count in _most(self.statuses):
            lines.append(f"  {_plain(f'{truth}: {status}', 44):<46}{count:>10,}{count / self.rows:>9.1%}")
        details = self.details()["licences"]
        shown = list(details.items())[:_SHOWN]
        heads = ("rows", *_COLUMNS, "kept")
        lines += ["", f"{'licence':<20}" + "".join(f"{head:>13}" for head in heads)]
        for name, counts in shown:
            lines.append(
                f"  {_plain(name, 17):<18}" + "".join(f"{counts.get(head, 0):>13,}" for head in heads)
            )
        if len(details) > len(shown):
            lines.append(f"  and {len(details) - len(shown):,} licences more: see the manifest")
        return "\n".join(lines)


def _rows(counts: Counter[str]) -> int:
    return sum(counts[name] for name in _COLUMNS)


def _most(counts: Counter[tuple[str, str]]) -> list[tuple[tuple[str, str], int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _plain(text: str, width: int) -> str:
    """Make a name from a file printable: it may contain anything and have any length."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= width else f"{shown[: width - 3]}..."
