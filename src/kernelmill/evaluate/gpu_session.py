"""A session with a candidate on a GPU: tensors cross in arenas, and what is computed waits for its turn."""

from __future__ import annotations

from typing import Any

import torch

from kernelmill.evaluate.arena import Arena
from kernelmill.evaluate.channel import Carrier, pack
from kernelmill.evaluate.reference import Answer, Reference
from kernelmill.evaluate.room import memory_was_short
from kernelmill.evaluate.session import Session, Stop
from kernelmill.evaluate.turns import Turns
from kernelmill.evaluate.values import Call, Outputs

_LEAST_ARENA = 1 << 20
_MOST_ARENA = 8 << 30
_SETS = 8
"""How many sets of inputs the arena has room for where calls are timed."""
_MOST_OUTPUTS, _LEAST_OUTPUTS = 8, 2
"""How many times its outputs the arena for them has room for: small ones, and such as would fill the GPU."""
_OURS_FROM = 0.25
"""Of a GPU's memory: who judges with more than this cannot blame a candidate for what is left."""


class GpuSession(Session):
    turns: Turns
    down: Arena
    up: Arena

    def allocate(self, reference: Reference, seed: int, timed: bool) -> None:
        """Arenas that have room for what this reference's calls take and give."""
        model, call = reference.new(seed), reference.inputs(seed)
        state = list(model.state_dict().values())
        outputs = reference.run(model, call).leaves
        held, given, taken = (_bytes(tensors) for tensors in (state, call.tensors(), outputs))
        sets = _SETS if timed else 1
        least = held + 2 * given
        down = min(max(least, sets * given), max(_MOST_ARENA, least)) + _LEAST_ARENA
        up = min(_MOST_OUTPUTS * taken, max(_MOST_ARENA, _LEAST_OUTPUTS * taken)) + held + _LEAST_ARENA
        del model, call, state, outputs  # where they are large there is no room for both
        torch.cuda.empty_cache()
        self.down, self.up = Arena.allocate(down), Arena.allocate(up)

    def close(self) -> None:
        for arena in (self.down, self.up):
            arena.free()

    def outgoing(self) -> Carrier:
        return self.down.empty()

    def incoming(self, blobs: list[memoryview]) -> Carrier:
        return self.up

    def load(self, code: str, class_name: str) -> None:
        fields = {"code": code, "class": class_name, "down": [self.down.size, self.down.handle]}
        self.ask("load", self._limits.load_s, fields | {"up": [self.up.size, self.up.handle]})

    def compile(self, call: Call, seed: int) -> float:
        """Have the candidate compile all that a call launches, without a launch. Gives the seconds that this took.

        Others use the GPU meanwhile, also who wants it alone. What fails here fails again in the first call.
        """
        return self.call(call, seed, compile_only=True, forget=True, tolerate=True).seconds

    def replayed(self, call: Call, fresh: Call) -> tuple[Outputs | None, str]:
        """What the candidate gives for `fresh` if its call is captured as a graph and replayed; or why it cannot be."""
        carrier = self.outgoing()
        given: dict[str, Any] = {"args": pack(call.args, carrier), "kwargs": pack(call.kwargs, carrier)}
        fields = given | {"fresh": [pack(fresh.args, carrier), pack(fresh.kwargs, carrier)]}
        said, out = self.ask("graph", self._limits.call_s, fields, carrier, tolerate=True)
        if "error" in said:
            return None, f"{said['error']['type']}: {said['error']['message']}"
        return self._outputs(said, out)

    def profiled(self, call: Call) -> tuple[list[tuple[str, float]], str]:
        """What ran on the GPU in a call, by name and microseconds; or why that cannot be known."""
        carrier = self.outgoing()
        fields = {"args": pack(call.args, carrier), "kwargs": pack(call.kwargs, carrier)}
        said, _ = self.ask("profile", self._limits.load_s, fields, carrier, tolerate=True)
        if "error" in said:
            return [], f"{said['error']['type']}: {said['error']['message']}"
        return [(str(name), float(time)) for name, time in said["ran"]], "" if said[
            "ran"
        ] else "nothing was seen"

    def ask(self, do: str, seconds: float, fields: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        torch.cuda.current_stream().synchronize()  # what was put into the arena is there
        try:
            if do in ("call", "graph", "profile") and not fields.get("compile_only"):
                with self.turns.beside_others():
                    return super().ask(do, seconds, fields, *args, **kwargs)
            return super().ask(do, seconds, fields, *args, **kwargs)
        except Stop as stop:
            if not memory_was_short(stop.error):
                raise
            raise _no_room(self.down.size + self.up.size, stop.error) from stop

    def _outputs(self, said: dict[str, Any], out: list[memoryview]) -> tuple[Outputs | None, str]:
        outputs, trouble = super()._outputs(said, out)
        if outputs is not None:  # the arena is written over by the next call
            outputs.leaves = [leaf.clone() for leaf in outputs.leaves]
        return outputs, trouble

    def _expected(self, call: Call, seed: int) -> Answer:
        with self.turns.beside_others():
            answer = super()._expected(call, seed)
            torch.cuda.current_stream().synchronize()
            return answer


def _no_room(arenas: int, error: str) -> Stop:
    """Whose doing it is that the GPU was full: a task that fills much of it by itself is nobody's."""
    ours, all_of_it = torch.cuda.memory_reserved() + arenas, torch.cuda.get_device_properties(0).total_memory
    if ours < _OURS_FROM * all_of_it:
        return Stop("OOM", error)
    return Stop(
        "UNSUPPORTED", f"this task does not fit: judging it takes {ours / 2**30:.0f} GB here\n{error}"
    )


def _bytes(tensors: list[Any]) -> int:
    return sum(-(-t.numel() * t.element_size() // 256) * 256 for t in tensors)
