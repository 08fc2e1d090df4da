"""triton.autotune without timing: the observer chooses the config.

The first call for a key resets what reset_to_zero names, as a GPU does after tuning; later calls do not. Not
modelled: what the tuning runs themselves would do to a kernel that changes its inputs.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.testing
from triton.runtime.autotuner import Autotuner

from kernelmill.evaluate.fake_gpu.driver import bench
from kernelmill.evaluate.interpreter.observe import observer


def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    index = (observer.config or 0) % len(configs)
    config = configs[index]
    conflicts = kwargs.keys() & config.kwargs.keys()
    if conflicts:
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(sorted(conflicts))}. "
            "Make sure that you don't re-define auto-tuned symbols."
        )
    everything = {**self.nargs, **kwargs, **config.all_kwargs()}
    key = _key(self, {**self.nargs, **kwargs})
    if len(configs) > 1 and key not in self.cache:
        self.pre_hook(everything, reset_only=True)
        self.cache[key] = config
    self.best_config = config
    observer.autotuned(self.base_fn.__name__, len(configs))
    if config.pre_hook is not None:
        config.pre_hook(everything)
    observer.next_config = index
    result = self.fn.run(*args, **kwargs, **config.all_kwargs())
    self.nargs = None
    return result


def _key(self: Any, arguments: dict[str, Any]) -> tuple[Any, ...]:
    known = {name: value for name, value in arguments.items() if name in self.arg_names}
    key = [known[name] for name in self.keys if name in known]
    return (*key, *(str(value.dtype) for value in known.values() if hasattr(value, "dtype")))


def install() -> None:
    Autotuner.run = _run
    triton.testing.do_bench = bench
    triton.testing.do_bench_cudagraph = bench
