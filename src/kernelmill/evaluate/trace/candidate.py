"""The requests of a candidate process that concern traces: record a call, and run what another one has recorded.

A call with `record` is for the candidate's own process. `load_trace` and `replay` are for one that never loads a
candidate.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from kernelmill.evaluate.judge.candidate import Candidate, give_weights, seen
from kernelmill.evaluate.judge.channel import Bytes, pack
from kernelmill.evaluate.judge.torch_work import TorchWorkCounter
from kernelmill.evaluate.trace.recorder import Recorder
from kernelmill.evaluate.trace.replayer import Read, Replayer, leaves_of
from kernelmill.evaluate.trace.steps import MOST_TEXT
from kernelmill.torch_calls.tensors import tensors_in


class TracedCandidate(Candidate):
    replayer: Replayer

    def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        return super().do_load(request) | {"traces": True}

    def do_call(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().do_call(request)
        recorder, self.recorder = self.recorder, None
        if recorder is not None and "error" not in answer:
            if self.again is not None:
                self._call_again(request, recorder, *self.again)
            recorder.close()
            trace = recorder.trace
            if not recorder.trouble and len(json.dumps(vars(trace))) > MOST_TEXT:
                recorder.trouble = "its program is too long"
            self.extra = recorder.constants.sent
            answer["trace"] = None if recorder.trouble else vars(trace) | {"blobs": len(self.extra)}
            answer["unrecordable"] = recorder.trouble
            if recorder.trouble:
                self.extra = []
        return answer

    recorder: Recorder | None = None
    again: tuple[Any, Any] | None = None
    """The arguments of a second call to record."""

    def result_of(self, request: dict[str, Any], args: Any, kwargs: Any) -> Any:
        """Call the model. With `record`, a new one, and record its construction and its call."""
        given = request.get("record")
        if given is None:
            return super().result_of(request, args, kwargs)
        if "later" in given:
            return self._later(request, given["later"], args, kwargs)
        init, state = (self.unpacked(given[name]) for name in ("init", "state"))
        self.again = self.unpacked(given["again"]) if "again" in given else None
        self.recorder = recorder = Recorder()
        with self.runtime.recording(recorder), recorder:
            recorder.leaves({"init": init, "state": state})
            recorder.seeded("built_with", given["built_with"])
            with self.runtime.building():
                model = self.kind(*init[0], **init[1])
            self.model = model = self.runtime.placed(model)
            if isinstance(model, torch.nn.Module):
                give_weights(model, state)
                self.noted_modes()
                if request["mode"] is not None:
                    self.enter_mode(request["mode"])
            recorder.called()
            recorder.leaves({"inputs": (args, kwargs)})
            recorder.seeded("seed", request["seed"])
            result = model(*args, **kwargs)
        recorder.returned(result)
        return result

    def _later(self, request: dict[str, Any], names: list[str], args: Any, kwargs: Any) -> Any:
        """Record a call of the model as it is: its state is given from outside, and what else it has are constants."""
        self.again, self.recorder = None, Recorder()
        recorder = self.recorder
        own = dict(torch.nn.Module.state_dict(self.model)) if isinstance(self.model, torch.nn.Module) else {}
        state = (
            [own[name] for name in names] if set(names) == set(own) else list(own.values()) if names else []
        )
        with self.runtime.recording(recorder), recorder:
            recorder.leaves({"state": state})
            recorder.called()
            recorder.leaves({"inputs": (args, kwargs)})
            recorder.seeded("seed", request["seed"])
            result = self.model(*args, **kwargs)
        recorder.returned(result)
        return result

    def _call_again(self, request: dict[str, Any], recorder: Recorder, args: Any, kwargs: Any) -> None:
        """Record a second call, which finds what the first one has prepared."""
        self.runtime.begin(request)
        try:
            with torch.no_grad(), self.runtime.recording(recorder), recorder:
                recorder.called()
                recorder.leaves({"again": (args, kwargs)})
                recorder.returned_again(self.model(*args, **kwargs))
        finally:
            self.runtime.end()

    def do_open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Prepare the device in a process that runs programs."""
        self.runtime.install(request)
        return {}

    def do_load_trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make a trace's kernels. No GPU is pretended here: what was recorded is what torch did."""
        blobs = Bytes(self.blobs)
        self.replayer = Replayer(request["trace"], os.getcwd(), lambda packed: self.owned(packed, blobs))
        return {}

    def do_ready(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the trace's first call. From then on the model is the second one, as if it were the candidate's."""
        self._build(request)
        self.replayer.call(keep=True)
        self.model = self.replayer.again
        return {}

    def _build(self, request: dict[str, Any]) -> None:
        given = ("inputs", "init", "state")  # in the order in which they were packed
        leaves = leaves_of({name: self.unpacked(request[name]) for name in given})
        self.replayer.build(leaves, {name: request[name] for name in ("built_with", "seed")})

    def do_replay(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the trace. Work and launches are those of the call, not of the model's construction."""
        self._build(request)
        work = TorchWorkCounter(keep=bool(request.get("look")))
        self.replayer.read = Read()
        self.runtime.begin(request)
        try:
            with work:
                result = self.replayer.call()
            packed = pack(result, self.outgoing)
        finally:
            observed = self.runtime.end()
        if request.get("look"):
            with torch.no_grad():
                work.look_for([leaf for leaf in tensors_in(result) if type(leaf) is torch.Tensor])
        work.work.host = self.replayer.read.elements
        return {
            "output": packed,
            "observed": seen(observed, None),
            "work": work.work.to_dict(),
            "read": self.replayer.read.to_dict(),
        }
