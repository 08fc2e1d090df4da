"""The requests of a candidate process that concern traces: record a call, and run what another one has recorded.

`trace` is for the candidate's own process. `load_trace` and `replay` are for one that never loads a candidate.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from kernelmill.evaluate.judge.candidate import Candidate, give_weights, seen
from kernelmill.evaluate.judge.channel import pack
from kernelmill.evaluate.judge.torch_work import TorchWorkCounter
from kernelmill.evaluate.trace.recorder import Recorder
from kernelmill.evaluate.trace.replayer import Replayer, leaves_of

_GIVEN = ("init", "state", "inputs")


class TracedCandidate(Candidate):
    replayer: Replayer

    def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        return super().do_load(request) | {"traces": True}

    def do_trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """Record the construction of a new model, and its first call."""
        given = {name: self.unpacked(request[name]) for name in _GIVEN}
        recorder = Recorder(self.outgoing)
        self.runtime.begin({})
        try:
            with torch.no_grad(), recorder:
                result = self._recorded(recorder, given, request)
                trace = recorder.finish(result)
        finally:
            self.runtime.end()
        return {"trace": vars(trace), "output": pack(result, self.outgoing)}

    def _recorded(self, recorder: Recorder, given: dict[str, Any], request: dict[str, Any]) -> Any:
        recorder.leaves(given)
        recorder.seeded(request["built_with"])
        args, kwargs = given["init"]
        model = self.runtime.placed(self.kind(*args, **kwargs))
        if isinstance(model, torch.nn.Module):
            give_weights(model, given["state"])
            if request["mode"] is not None:
                model.train(request["mode"] != "eval")
        recorder.called()
        recorder.seeded(request["seed"])
        args, kwargs = given["inputs"]
        return model(*args, **kwargs)

    def do_load_trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make a trace's kernels. No GPU is pretended here: what was recorded is what torch did."""
        self.replayer = Replayer(request["trace"], os.getcwd(), self.unpacked)
        return {}

    def do_replay(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the trace. Work and launches are those of the call, not of the model's construction."""
        leaves = leaves_of({name: self.unpacked(request[name]) for name in _GIVEN})
        self.replayer.build(leaves)
        work = TorchWorkCounter()
        self.runtime.begin({})
        try:
            with work:
                result = self.replayer.call(leaves)
        finally:
            observed = self.runtime.end()
        packed = pack(result, self.outgoing)
        return {"output": packed, "observed": seen(observed, None), "work": work.work.to_dict()}
