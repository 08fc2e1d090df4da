"""A smallest stage, to test the engine by itself: row n asks about n, and the right answer is known."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from kernelmill.base.control import Control, Stats
from kernelmill.base.rows import Drop, Row
from kernelmill.llm.client import Endpoint
from kernelmill.llm.engine import Asking, BadAnswer, Messages, Model
from kernelmill.llm.journal import Journal
from kernelmill.settings.base import LLMSettings, RowSettings
from kernelmill.stages.answering import Batch, Plan
from kernelmill.stages.progress import Progress
from kernelmill.store import Output, open_source
from kernelmill.testing.fake_endpoint import difficulty_for


class Ask(Asking[int]):
    def messages(self, item: int) -> Messages:
        return [{"role": "user", "content": f"question {item}"}]

    def fault(self, item: int) -> str | None:
        return "cannot be asked" if item < 0 else None

    async def parse(self, item: int, text: str) -> dict[str, Any]:
        if "<difficulty>" not in text:
            raise BadAnswer("no tag")
        return {"said": text.split("<difficulty>")[1].split("<")[0]}


class Numbers:
    def take(self, row: Row) -> int | Drop:
        number: int = json.loads(row.raw)["n"]
        return Drop("a seven", "seven") if number == 7 else number

    def name(self, item: int) -> str:
        return f"number {item}"

    def finish(self, row: Row, item: int, columns: dict[str, Any]) -> bytes:
        return json.dumps({"n": item, **columns}).encode()


def right(n: int) -> str:
    return difficulty_for(f"question {n}")


class Run:
    """One run over numbers; what is left of it can be looked at afterwards."""

    def __init__(self, folder: Path, numbers: list[int], base_url: str, **settings: Any) -> None:
        self.folder = folder
        self.settings = LLMSettings(
            base_url=base_url, model="fake", **{"concurrency": 16, "timeout": 60.0, **settings}
        )
        self.source_path = folder / "numbers.jsonl"
        if not self.source_path.exists():
            self.source_path.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
        self.stats = Stats()
        self.output = Output(folder / "out.jsonl")

    async def go(self) -> Plan:
        control = Control()
        self.control = control
        endpoint = Endpoint(self.settings)
        with self.output, Journal(self.folder / "journal.sqlite") as journal:
            async with endpoint:
                model = Model(endpoint, Ask(), journal, "test", self.stats, control)
                rows = RowSettings(source=str(self.source_path), output=self.output.path)
                source = open_source(rows.source)
                batch = Batch(source, Numbers(), model, self.stats, control, rows)
                with control.signals():
                    plan = await batch.plan()
                    await batch.answer(plan, Progress(self.stats, "test", priced=True))
                    await batch.write(plan, self.output)
                self.pending = batch.pending_after
            self.output.commit("test", plan.rows, {}, {})
        return plan

    def __call__(self) -> Run:
        asyncio.run(self.go())
        return self

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]

    @property
    def rejected(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "out.rejected.jsonl").read_text().splitlines()]
