"""A taskset with one reward, for the `v1` interface of `verifiers`, which prime-rl trains with.

    [env.taskset]
    id = "kernelmill-env"
    data = "kernel_bench_triton_verifiers.jsonl"

If no reward can be obtained, it raises: verifiers records the trace as failed, and prime-rl leaves failed
traces out of the group's mean and the batch. One turn only; for several turns use an `Env` of verifiers (such
as `user-sim`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise ImportError(f"this needs `pip install 'kernelmill[rl-verifiers]'` ({error})") from error

from kernelmill.errors import ConfigError
from kernelmill.rl import shared
from kernelmill.rl.client import Ask, RewardUnavailable
from kernelmill.rl.prompt_rows import read_rows


class KernelData(vf.TaskData):  # type: ignore[misc]
    reference: str
    entry_point: str | None = None


class KernelTaskConfig(vf.TaskConfig):  # type: ignore[misc]
    url: str | None = None
    """The service; unset: KERNEL_REWARD_URL."""
    reward_name: str | None = None
    """The reward's name; unset: the one that the service was started with."""


class KernelTask(vf.Task[KernelData, vf.State, KernelTaskConfig]):  # type: ignore[misc]
    @vf.reward(weight=1.0)  # type: ignore[untyped-decorator]
    async def kernelmill(self, trace: vf.Trace) -> float:
        ask = Ask(self.data.reference, trace.last_reply, self.data.entry_point)
        found = await shared.grade(ask, url=self.config.url, reward=self.config.reward_name, mask=False)
        if found.reward is None:
            raise RewardUnavailable(f"masked: {found.why}")
        return found.reward


class KernelTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    data: Path | None = None
    """A file of RL rows, as `kernelmill problems export` writes them."""
    task: KernelTaskConfig = KernelTaskConfig()


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):  # type: ignore[misc]
    def load(self) -> Iterator[KernelTask]:
        if self.config.data is None:
            raise ConfigError('say which rows: data = "kernel_bench_triton_verifiers.jsonl"')
        for number, row in enumerate(read_rows(self.config.data)):
            data = KernelData(
                idx=number,
                name=row.id,
                prompt=row.prompt,
                reference=row.reference,
                entry_point=row.entry_point,
            )
            yield KernelTask(data, self.config.task)
