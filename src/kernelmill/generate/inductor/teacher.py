"""The entry point to the Inductor teacher: warm sandboxed processes that turn problems into kernels.

No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelmill.base.python_text import tidy
from kernelmill.sandbox import Sandbox

WORKER = "kernelmill.generate.inductor.worker"


@dataclass
class GeneratedCandidate:
    """A candidate, or the reason why there is none."""

    code: str = ""
    extern: list[str] = field(default_factory=list)
    """The operations that still call torch's library."""
    mode: str | None = None
    """`eval` if the original is random in training mode, and was therefore captured in eval mode."""
    seconds: float = 0.0
    error: str = ""
    fault: bool = False
    """Whether the problem itself was not rejected: the teacher has a bug, or ran out of time or memory."""


class Teacher:
    """Writes up to `workers` candidates at a time. `tidy` formats them, which needs ruff."""

    def __init__(
        self, workers: int = 2, timeout: float = 120.0, memory_mb: int = 8192, tidy: bool = True
    ) -> None:
        self._tidy = tidy
        self._sandbox = Sandbox(WORKER, workers=workers, timeout=timeout, memory_mb=memory_mb)

    def __enter__(self) -> Teacher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sandbox.close()

    async def write(self, code: str, entry_point: str | None = None, variant: int = 0) -> GeneratedCandidate:
        """Write one candidate. `variant` selects the block sizes (`variants`)."""
        reply = await self._sandbox.run({"code": code, "entry_point": entry_point, "variant": variant})
        if reply["kind"] != "ok":
            words = f"{reply['type']}: {reply['message']}" if reply["type"] else reply["message"]
            ours = reply["kind"] != "error" or reply["type"] == "TeacherFault"
            return GeneratedCandidate(seconds=reply["seconds"], error=f"{reply['kind']}: {words}", fault=ours)
        found = reply["result"]
        code = tidy(found["code"]) if self._tidy else found["code"]
        return GeneratedCandidate(code, found["extern"], found["mode"], reply["seconds"])
