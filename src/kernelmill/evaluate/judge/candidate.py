"""The candidate process: loads untrusted code, calls it on the judge's request, and returns its results.

It handles one request at a time, over a `Channel`: `load`, `build`, `call`, `weights`, `resend`. An
answer repeats the request's nonce. It holds output bytes and what was observed. It never
holds a verdict, because the code in this process could forge one.

Runs in a confined child. A `Runtime` hides the device: a GPU, or the interpreter, under which everything is
in ordinary memory that only looks like CUDA.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch

from kernelmill.evaluate.judge.channel import (
    Bytes,
    Carrier,
    Channel,
    Closed,
    Config,
    Hollow,
    pack,
    strided,
    unpack,
)
from kernelmill.evaluate.judge.torch_work import TorchWorkCounter
from kernelmill.evaluate.kernel_source import CANDIDATE_MODULE
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.task.chunked import identical
from kernelmill.evaluate.task.values import seed_all
from kernelmill.sandbox.alarm import Alarm, too_slow
from kernelmill.torch_calls.tensors import Sparse, tensors_in

FILE = "candidate.py"
_TRACE_LINES = 30
_LAUNCHES = 200


class Runtime(Protocol):
    """What differs between the interpreter and a GPU."""

    pausing: Callable[[], AbstractContextManager[None]]
    """Context manager around compiling, which has its own time limit."""

    def install(self, request: dict[str, Any]) -> None:
        """Prepare the process before the candidate's code is loaded."""

    def begin(self, request: dict[str, Any]) -> None:
        """Start observing a call, and apply what the request asks for."""

    def end(self) -> Any:
        """Stop observing after a call; returns an `Observed`."""

    def carriers(self, blobs: list[memoryview]) -> tuple[Carrier, Carrier]:
        """The carriers for incoming and outgoing tensors."""

    def settle(self) -> None:
        """Wait before an answer until all pending work is done, including access to the carriers' memory."""

    def building(self) -> AbstractContextManager[Any]:
        """Context manager around building the model: selects the device on which the reference was built.

        Equal seeds then give equal weights.
        """

    def placed(self, model: Any) -> Any:
        """Move the model to where it runs."""

    def recording(self, recorder: Any) -> AbstractContextManager[None]:
        """Context manager in which a recorder is told of launches."""

    def unsupported(self, error: BaseException) -> str | None:
        """Why this device cannot judge the candidate; None if it can."""

    def progress(self, error: BaseException) -> str:
        """How far a kernel got before its timeout."""


def serve(end: socket.socket, runtime: Runtime, kind: type[Candidate] | None = None) -> None:
    """Answer the judge's requests until it closes the socket."""
    channel, candidate = Channel(end), (kind or Candidate)(runtime)
    while True:
        try:
            request, blobs = channel.receive()
        except Closed:
            return
        runtime.pausing = functools.partial(_pausing, channel, request["nonce"])
        answer, out = candidate.answer(request, blobs)
        channel.send(answer | {"nonce": request["nonce"]}, out)


@contextmanager
def _pausing(channel: Channel, nonce: str) -> Iterator[None]:
    """Exclude the enclosed work from the step's time.

    The judge is notified, and applies a separate limit to it.
    """
    if not _alarm.pause():  # already paused by another compilation, or not in the main thread
        yield
        return
    try:
        channel.send({"nonce": nonce, "pause": True})
        try:
            yield
        finally:
            channel.send({"nonce": nonce, "pause": False})
            channel.receive()  # the judge answers once the device is free again
    finally:
        _alarm.resume()


def warm_up(code: str) -> Any:
    """Execute a module with a kernel in the server, so that children skip torch's and triton's setup."""
    with TorchWorkCounter():
        torch.softmax(torch.ones(2, 2) @ torch.ones(2, 2), -1)
    return _execute(code, os.path.abspath("warm_up.py"))


def _execute(code: str, file: str) -> Any:
    """Execute the code as a module from a file: triton reads a kernel's source from there."""
    with open(file, "w", encoding="utf-8", errors="surrogatepass") as opened:
        opened.write(code)
    spec = importlib.util.spec_from_file_location(CANDIDATE_MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[CANDIDATE_MODULE] = module
    spec.loader.exec_module(module)
    return module


class Candidate:
    """Handles requests: each method `do_NAME` answers the request `NAME`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.kind: Any = None
        self.model: Any = None
        self.file = os.path.abspath(FILE)
        self.built: list[tuple[Any, bool]] = []
        """The model's submodules, and whether each was built in training mode: a loaded one was not."""
        self.slots: dict[str, tuple[list[Any], dict[str, Any]]] = {}
        self.blobs: list[memoryview] = []
        """What came with the request beside its tensors' carrier."""
        self.extra: list[bytes] = []
        """What goes with the answer beside its tensors' carrier."""
        self.last: Any = None
        """The last call's result, kept so that its memory is not reused.

        Where memory is short (`lean`), only a result that the judge asks for again is kept (`hold`).
        """

    def answer(self, request: dict[str, Any], blobs: list[memoryview]) -> tuple[dict[str, Any], list[bytes]]:
        self.blobs, self.extra = blobs, []
        self.incoming, self.outgoing = self.runtime.carriers(blobs)
        step = getattr(self, f"do_{request['do']}")
        _alarm.set(request["seconds"])
        start = time.perf_counter()
        try:
            answer = step(request)
            self.runtime.settle()
        except BaseException as error:  # noqa: BLE001  any error is an answer, also SystemExit and TooSlow
            _alarm.stop()
            self.outgoing = self.runtime.carriers([])[1]
            answer = {"error": self._error(error)}
        finally:
            _alarm.stop()
        answer["seconds"] = time.perf_counter() - start
        sent = self.outgoing.sent if isinstance(self.outgoing, Bytes) else []
        return answer, [*sent, *self.extra]

    def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        self.runtime.install(request)
        # No process can be started here, and no semaphore of the system be had: a lock between threads will do.
        multiprocessing.Lock, multiprocessing.RLock = threading.Lock, threading.RLock  # type: ignore[assignment]
        # A kernel that is wrapped for tracing is launched as it is: no mode of ours could trace it.
        torch._library.triton.wrap_triton_enabled_default = False
        module = _execute(request["code"], self.file)
        self.kind = getattr(module, request["class"])
        return {}

    def do_build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build the model and copy the reference's weights, by the strictest method that fits."""
        args, kwargs = self.unpacked(request["args"]), self.unpacked(request["kwargs"])
        state = {name: self.unpacked(packed) for name, packed in request["state"]}
        self.slots.clear()
        self.last = None
        seed_all(request["seed"])
        with torch.no_grad():
            with self.runtime.building():
                model = self.kind(*args, **kwargs)
            self.model = self.runtime.placed(model)
            way = give_weights(self.model, state) if isinstance(self.model, torch.nn.Module) else "none"
        self.noted_modes()
        return {"drop_in": way}

    def noted_modes(self) -> None:
        """Note each submodule's mode at construction."""
        modules = _modules(self.model) if _is_module(self.model) else ()
        self.built = [(part, part.training) for part in modules]

    def do_weights(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write new weights into the model in place, as an optimiser would: tensor versions increase."""
        state = {name: self.unpacked(packed) for name, packed in request["state"]}
        with torch.no_grad():
            return {"drop_in": give_weights(self.model, state)}

    def do_call(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("lean") and not request.get("forget"):
            self.last = None
        args, kwargs, before = self._arguments(request)
        if request.get("mode") is not None:
            self.enter_mode(request["mode"])
        previous = _stores(self.last)
        for _ in range(request.get("before", 0)):
            seed_all(request["seed"])
            with torch.no_grad():
                self.model(*args, **kwargs)
        seed_all(request["seed"])
        counts = bool(request.get("counts"))
        self.runtime.begin(request | ({"poison": False} if request.get("plain") else {}))
        recorder = TorchWorkCounter()
        error: BaseException | None = None
        try:
            with torch.set_grad_enabled(bool(request.get("grad"))), recorder if counts else nullcontext():
                result = self.result_of(request, args, kwargs)
        except BaseException as raised:  # noqa: BLE001  reported with what was observed so far
            error = raised
        # Copy the bytes first: work that still runs in the background cannot change them any more.
        answer: dict[str, Any] = {}
        try:
            if error is None:
                answer["output"] = pack(result, self.outgoing)
        finally:
            observed = self.runtime.end()
        answer["observed"] = seen(observed, self.file)
        if error is not None:
            answer |= {"work": recorder.work.to_dict(), "error": self._error(error)}
            return answer
        tensors = tensors_in(result)
        if counts:
            with torch.no_grad():
                recorder.look_for([tensor for tensor in tensors if type(tensor) is torch.Tensor])
        answer["work"] = recorder.work.to_dict()
        answer["types"] = sorted(
            {_type_name(leaf) for leaf in tensors} - {"torch.Tensor", "torch.nn.Parameter"}
        )
        answer["attributes"] = sorted({name for tensor in tensors for name in _own_attributes(tensor)})
        mine = _stores(result)
        held = {"input": _stores([args, kwargs]), "previous output": previous}
        held["parameter"] = (
            _stores(list(_state_dict(self.model).values())) if _is_module(self.model) else set()
        )
        answer["shares"] = [what for what, stores in held.items() if mine & stores]
        after = tensors_in([args, kwargs])
        with torch._C.DisableTorchFunction(), torch.no_grad():
            answer["mutated"] = [
                i for i, (a, b) in enumerate(zip(before, after, strict=True)) if not identical(a, b.detach())
            ]
        if request.get("buffers") and _is_module(self.model):
            answer["buffers"] = [
                [name, pack(buffer, self.outgoing)] for name, buffer in self.model.named_buffers()
            ]
        if request.get("hold", not request.get("lean")) and not request.get("forget"):
            self.last = result
        if request.get("last_use"):
            del self.slots[request["into"]]
        return answer

    def result_of(self, request: dict[str, Any], args: Any, kwargs: Any) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    def do_hollow(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build a model of other sizes, and call it once with suppressed launches, on tensors without numbers."""
        args, kwargs, init, named = (
            unpack(request[name], Hollow()) for name in ("args", "kwargs", "init", "init_kwargs")
        )
        seed_all(request["seed"])
        recorder = TorchWorkCounter(keep=False)
        with torch.no_grad():
            with self.runtime.building():
                model = self.kind(*init, **named)
            model = self.runtime.placed(model)
            if _is_module(model) and request["mode"] is not None:
                model.train(request["mode"] == "train")
            self.runtime.begin({"suppress_all": True, "poison": False})
            try:
                with recorder:
                    model(*args, **kwargs)
            finally:
                observed = self.runtime.end()
        return {"observed": seen(observed, self.file), "work": recorder.work.to_dict()}

    def enter_mode(self, mode: str) -> None:
        """Set the mode: `train`, `eval`, or `built`, which restores each submodule's mode at construction."""
        self.model.train(mode != "eval")
        for part, training in self.built if mode == "built" else ():
            part.training = training

    def do_resend(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the last result again, with its current values."""
        return {"output": pack(self.last, self.outgoing)}

    def _arguments(self, request: dict[str, Any]) -> tuple[list[Any], dict[str, Any], list[Any]]:
        """The call's arguments: new tensors or, with `into`, those of an earlier call, overwritten in place.

        The third value is the list of tensors as received, in the carrier's memory. Comparing with them shows
        whether the call changes its inputs.
        """
        came_args, came_kwargs = (unpack(request[name], self.incoming) for name in ("args", "kwargs"))
        came = tensors_in([came_args, came_kwargs])
        into = request.get("into")
        if into is not None:
            args, kwargs = self.slots[into]
            pairs = list(zip(tensors_in([args, kwargs]), came, strict=True))
            if all(old.shape == new.shape for old, new in pairs):  # which may be drawn, too
                for old, new in pairs:
                    old.data.copy_(new)  # through .data, so that the tensor's version does not change
                return args, kwargs, came
        args, kwargs = _owned(request["args"], came_args), _owned(request["kwargs"], came_kwargs)
        if request.get("keep") is not None:
            self.slots[request["keep"]] = (args, kwargs)
        return args, kwargs, came

    def unpacked(self, packed: dict[str, Any]) -> Any:
        """Unpack a value from the judge into its own memory, with the original strides."""
        return self.owned(packed, self.incoming)

    def owned(self, packed: dict[str, Any], carrier: Carrier) -> Any:
        return _owned(packed, unpack(packed, carrier))

    def _error(self, error: BaseException) -> dict[str, Any]:
        frames, slow = traceback.extract_tb(error.__traceback__), too_slow(error)
        if type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
            error = error.__cause__  # what the kernel raised
            frames += traceback.extract_tb(error.__traceback__)
        try:
            message = str(error)[:4000]
        except Exception:  # noqa: BLE001  an untrusted __str__ may raise anything
            message = "(its message cannot be read)"
        own = [f"line {f.lineno}, in {f.name}: {f.line}" for f in frames if f.filename == self.file]
        return {
            "type": type(error).__name__,
            "message": message,
            "trace": own[-_TRACE_LINES:],
            "unsupported": self.runtime.unsupported(error),
            "memory": isinstance(error, MemoryError) or "can't allocate memory" in message,
            "slow": slow is not None,
            "progress": self.runtime.progress(slow) if slow is not None else "",
        }


def seen(observed: Any, file: str | None) -> dict[str, Any]:
    """Observations as plain values.

    A launch is the candidate's own if its kernel is in the candidate's file; all are if that is None.
    """
    found = {name: value for name, value in vars(observed).items() if name != "launches"}
    for name in {"oob", "races"} & found.keys():
        found[name] = [one if isinstance(one, dict) else dataclasses.asdict(one) for one in found[name]]
    found["launches"] = [
        {
            "kernel": launch.qualname,
            "programs": launch.programs,
            "own": file is None or launch.file == file,
            "config": launch.config,
            "suppressed": launch.suppressed,
        }
        for launch in observed.launches[:_LAUNCHES]
    ]
    return found


_alarm = Alarm()


def _is_module(model: Any) -> bool:
    return isinstance(model, torch.nn.Module)


def _owned(packed: dict[str, Any], value: Any) -> Any:
    if isinstance(value, Config):
        return offline_models.from_plain(json.loads(value.text))
    if isinstance(value, torch.Tensor):
        return strided(packed, value.clone())
    if isinstance(value, Sparse):
        return Sparse(*(_owned(p, v) for p, v in zip(packed["sparse"], value, strict=True))).assembled()
    if isinstance(value, list | tuple):
        inner = packed["list"] if isinstance(value, list) else packed["tuple"]
        return type(value)(_owned(p, v) for p, v in zip(inner, value, strict=True))
    if isinstance(value, dict):
        return {key: _owned(packed["dict"][key], item) for key, item in value.items()}
    return value


# A model's own ways to tell its state are not asked: they would run for the judge only.
_state_dict, _modules = torch.nn.Module.state_dict, torch.nn.Module.modules
_copy = torch.Tensor.copy_


def give_weights(model: Any, state: dict[str, torch.Tensor]) -> str:
    own = dict(_state_dict(model))
    if not all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in own.values()):
        return "seed_only"
    if not state and not own:
        return "strict"
    if set(own) == set(state) and all(own[name].shape == state[name].shape for name in own):
        pairs = [(own[name], state[name]) for name in own]
        way = "strict"
    elif len(own) == len(state) and all(
        a.shape == b.shape for a, b in zip(own.values(), state.values(), strict=True)
    ):
        pairs = list(zip(own.values(), state.values(), strict=True))
        way = "by_order"
    else:
        return "seed_only"
    with torch._C.DisableTorchFunction():
        for mine, given in pairs:
            _copy(mine, given)
    return way


_storage = torch.Tensor.untyped_storage


def _stores(value: Any) -> set[int]:
    with torch._C.DisableTorchFunction():
        tensors = [
            tensor for tensor in tensors_in(value) if type(tensor) in (torch.Tensor, torch.nn.Parameter)
        ]
        return {_storage(tensor).data_ptr() for tensor in tensors if tensor.numel()}


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".replace("torch.nn.parameter.", "torch.nn.")


def _own_attributes(tensor: Any) -> list[str]:
    return [str(name) for name in getattr(tensor, "__dict__", ())]
