"""The interpreter as a candidate's runtime: ordinary memory that looks like CUDA's, every access observed."""

from __future__ import annotations

from typing import Any

from kernelmill.evaluate import interpreter
from kernelmill.evaluate.channel import Bytes, Carrier


class Interpreted:
    def install(self, request: dict[str, Any]) -> None:
        interpreter.install()

    def begin(self, request: dict[str, Any]) -> None:
        interpreter.observer.begin(
            suppress=frozenset(request.get("suppress") or ()),
            suppress_all=bool(request.get("suppress_all")),
            config=request.get("config"),
        )

    def end(self) -> interpreter.Observed:
        return interpreter.observer.end()

    def carriers(self, blobs: list[memoryview]) -> tuple[Carrier, Carrier]:
        return Bytes(blobs), Bytes()

    def placed(self, model: Any) -> Any:
        return model

    def unsupported(self, error: BaseException) -> str | None:
        return interpreter.is_unsupported(error)

    def progress(self, error: BaseException) -> str:
        return interpreter.progress(error)
