"""The warm servers that judge without a GPU: one for the interpreter, one for the compiler.

They start on their first request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernelmill.evaluate.compile import compiling
from kernelmill.sandbox import Sandbox

if TYPE_CHECKING:
    from kernelmill.evaluate.languages import Language
    from kernelmill.evaluate.options import Options


def interpreter(
    options: Options, language: Language, workers: int, environment: Mapping[str, str]
) -> Sandbox:
    """The server whose processes judge candidates in the language's interpreter."""
    return Sandbox(
        language.judge,
        workers=workers,
        # The judge enforces the candidate's own limit. This one covers the judge and the candidate together.
        timeout=2 * options.timeout + 60,
        memory_mb=options.memory_mb,
        companions=1,
        environment={**language.environment, **environment},
    )


def compiler(options: Options, language: Language, workers: int, environment: Mapping[str, str]) -> Sandbox:
    """The server whose processes compile candidates for other GPUs."""
    return Sandbox(
        language.compiler or compiling.WORKER,  # it starts with its first request: without a compiler, never
        workers=workers,
        timeout=compiling.most_seconds(options.compile_timeout),
        memory_mb=options.memory_mb,
        programs=language.programs(False),
        environment=environment,
    )
