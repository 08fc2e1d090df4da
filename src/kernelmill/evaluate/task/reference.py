"""Build a task's reference, make its inputs, run it, and run it again in float64 as the oracle.

This executes untrusted code: use it only in a sandboxed process. It never sees a candidate.

The oracle is the same module with every floating tensor in float64: parameters, buffers, plain tensor
attributes, inputs, tensors that the forward makes, and casts to a narrower type (`.float()`,
`dtype=torch.float16`). If such a run is impossible or is not the same function (a bit cast, another shape, a
result far from eager's), the eager result takes its place and `oracle_note` gives the reason.

Models and inputs are made on `device`. If that is the CPU, sources that ask for CUDA get the CPU.

Every run uses a copy of the model and of the inputs, except `run_in_place`. So a reference that writes to its
inputs, or keeps state, gives the same answer each time. `Outputs.buffers` holds what it wrote to its buffers.

Not covered: gradients (all runs are without), and references that are random in every mode
(`Facts.random_in_eval`).
"""

from __future__ import annotations

import copy
import errno
import gc
import importlib.util
import itertools
import linecache
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from kernelmill.evaluate.gpu.gpu_memory import memory_was_short
from kernelmill.evaluate.judge.choices import Choosing
from kernelmill.evaluate.task.answers import (
    Answer,
    as_exact,
    changed_buffers,
    differ,
    distance_of,
    dtype_of,
    same,
    unlike,
)
from kernelmill.evaluate.task.chunked import changed
from kernelmill.evaluate.task.cuda_to_cpu import CudaToCpu
from kernelmill.evaluate.task.facts import FAR, Facts
from kernelmill.evaluate.task.float64 import Float64, upcast, wide_of
from kernelmill.evaluate.task.spare import Spares
from kernelmill.evaluate.task.values import (
    Call,
    Outputs,
    UnsupportedValue,
    clone_tensor,
    flatten,
    seed_all,
)
from kernelmill.problems import module_file
from kernelmill.torch_calls.tensors import apart, map_tensors

_numbers = itertools.count()
_INPUTS = 0x2545F4914F6CDD1D
_WANTS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO)
_WANTING = ("can't allocate memory", "can't start new thread")


class BadReference(Exception):
    """The reference cannot be used. The message is one line, with the line of its source if there is one.

    `passing` marks a transient failure: a lack of memory, time or the like. Other failures are permanent.
    """

    def __init__(self, words: str, passing: bool = False) -> None:
        super().__init__(words)
        self.passing = passing


class NotInstalled(BadReference):
    """The reference imports a package that is not installed, so no version of it runs."""


class Reference:
    def __init__(self, code: str, module: Any, kind: type[Any], file: str, device: str = "cpu") -> None:
        self.code = code
        self.kind = kind
        self.oracle_note = ""
        self.device = device
        """Where models and inputs are made. Set it before the first is made."""
        self.exclusive = False
        """This process has exclusive use of the device: if float64 does not fit now, it never will."""
        self.computing: Callable[[], AbstractContextManager[None]] = nullcontext
        """Context manager around each run: holds the lock of a shared device."""
        self._chooses: bool | None = None
        self._spares = Spares()
        """Whether an output may be an index. None before the first run."""
        self._module = module
        self._file = file

    def close(self) -> None:
        """Remove the module from Python's tables, for processes that continue with other references."""
        module_file.forget(self._module.__name__)
        linecache.cache.pop(self._file, None)

    def init_call(self, seed: int) -> Call:
        """The constructor's arguments."""
        seed_all(seed)
        with self._blamed("get_init_inputs()"), torch.device(self.device), self._home():
            _, args, kwargs = module_file.init_inputs(self._module)
        return Call(args, kwargs)

    def new(self, seed: int) -> Any:
        """Build a model as the source does, in the mode that the source leaves it in, without gradients."""
        call = self.init_call(seed)
        seed_all(seed)
        with (
            self._blamed(f"{self.kind.__name__}()"),
            torch.no_grad(),
            torch.device(self.device),
            self._home(),
        ):
            model = self.kind(*call.args, **call.kwargs).to(self.device)
            for parameter in model.parameters():
                parameter.requires_grad_(False)
        return model

    def inputs(self, seed: int) -> Call:
        """The task's own inputs. A model that is called with this seed does not draw the same numbers."""
        seed_all(seed ^ _INPUTS)
        with self._blamed("get_inputs()"), torch.no_grad(), torch.device(self.device), self._home():
            args, kwargs = module_file.inputs(self._module)
            call = Call(apart(args), apart(kwargs))
        return call.map(lambda t: t.detach().to(self.device))

    def oracle(self, model: Any) -> Any:
        """A float64 copy of the model."""
        wide = copy.deepcopy(model)
        with torch.no_grad():
            for part in wide.modules():
                for store in (part._parameters, part._buffers):
                    for tensor in store.values():
                        if tensor is not None and not nn.parameter.is_lazy(tensor):
                            tensor.data = upcast(tensor.data)
                for name, value in vars(part).items():
                    if name not in ("_parameters", "_buffers", "_modules") and _holds_tensors(value):
                        vars(part)[name] = map_tensors(value, upcast, copy.deepcopy)
        return wide

    def run(self, model: Any, call: Call, seed: int = 0) -> Outputs:
        """Run a copy of the model on a copy of the inputs, with all generators seeded with `seed`."""
        given, kept = call.clone(), list[Any]()
        with (
            self.computing(),
            self._blamed("forward()"),
            torch.no_grad(),
            self._spares.lend(model, kept) as own,
            self._home(),
        ):
            seed_all(seed)
            outputs = self._flat(own, given, torch.float32)
            outputs.leaves = [leaf.detach() for leaf in outputs.leaves]
            outputs.buffers = changed_buffers(model, own)
            kept += [outputs.leaves, outputs.buffers]
        return outputs

    def run_in_place(self, model: Any, call: Call) -> Outputs:
        """Run the model itself on the inputs themselves. Use neither afterwards."""
        with self._blamed("forward()"), self._home():
            return flatten(call.on(model))

    def run_exact(self, wide: Any, call: Call, seed: int = 0) -> Outputs:
        """Run the float64 model (from `oracle`) on upcast inputs."""
        return self._run_exact(wide, call.map(_wide_clone), seed)

    def _run_exact(self, wide: Any, given: Call, seed: int, used_again: bool = True) -> Outputs:
        kept = list[Any]()
        with (
            self.computing(),
            self._blamed("forward() in float64"),
            torch.no_grad(),
            self._spares.lend(wide, kept) if used_again else nullcontext(wide) as own,
            self._home(),
        ):
            seed_all(seed)
            with Float64():
                outputs = self._flat(own, given, torch.float64)
            outputs.buffers = changed_buffers(wide, own)
            kept += [outputs.leaves, outputs.buffers]
        return outputs

    def _flat(self, model: Any, call: Call, scalars: torch.dtype) -> Outputs:
        """Run the model, and record what its index outputs were chosen from."""
        if self._chooses is False:
            return flatten(call.on(model), scalars)
        with Choosing() as seen:
            outputs = flatten(call.on(model), scalars)
        outputs.choices = seen.of(outputs.leaves)
        self._chooses = any(not (leaf.is_floating_point() or leaf.is_complex()) for leaf in outputs.leaves)
        return outputs

    def nudged(self, wide: Any, call: Call, seed: int = 0, times: float = 1.0) -> Outputs:
        """`run_exact` with inputs and parameters changed by up to one float32 rounding, or some `times` that.

        No kernel can avoid such a rounding.
        """
        generator = torch.Generator(self.device).manual_seed(seed)

        def nudge(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return _wide_clone(tensor)
            return changed(
                tensor,
                lambda chunk: upcast(chunk) * (1 + times * _roundings(chunk, generator)),
                torch.float64,
            )

        if next(wide.parameters(), None) is None:
            return self._run_exact(wide, call.map(nudge), seed)
        other = copy.deepcopy(wide)
        for parameter in other.parameters():
            parameter.data = nudge(parameter.data)
        return self._run_exact(other, call.map(nudge), seed, used_again=False)

    def nudged_eager(self, model: Any, call: Call, seed: int = 0) -> Outputs:
        """`run` with inputs changed by up to two roundings of their own types: what the task's own arithmetic may give."""
        generator = torch.Generator(self.device).manual_seed(seed)

        def nudge(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point() or tensor.element_size() < 2:
                return clone_tensor(tensor)
            ulps = 4 * torch.finfo(tensor.dtype).eps / _ROUNDING
            return changed(
                tensor,
                lambda chunk: (upcast(chunk) * (1 + ulps * _roundings(chunk, generator))).to(tensor.dtype),
                tensor.dtype,
            )

        return self.run(model, call.map(nudge), seed)

    def answer(self, model: Any, call: Call, seed: int = 0, wide: Any = None) -> Answer:
        """The eager and the exact result. Pass `wide` to avoid building the oracle for each call."""
        eager = self.run(model, call, seed)
        if self.oracle_note:
            return Answer(as_exact(eager), eager, self.oracle_note)
        exact: Outputs | None = None
        try:
            exact = self.run_exact(self.oracle(model) if wide is None else wide, call, seed)
            reason = unlike(exact, eager)
        except BadReference as error:
            if error.passing and self.device != "cpu" and not self.exclusive:
                raise
            reason = str(error)
        if exact is not None and not reason:
            return Answer(exact, eager)
        exact = None
        gc.collect()  # the traceback of a failed run keeps its tensors alive
        return Answer(as_exact(eager), eager, f"oracle: {dtype_of(eager)} ({reason})")

    def examine(self, seed: int) -> Facts:
        """Run the reference a few times on its own inputs. Sets `oracle_note` if it has no float64 oracle."""
        model, call = self.new(seed), self.inputs(seed + 1)
        first = self.run(model, call, seed)
        is_random = differ(first, self.run(model, call, seed + 1))
        quiet = copy.deepcopy(model).eval()
        in_eval = self.run(quiet, call, seed)
        del first  # free each result as early as possible: large ones fill a GPU
        random_in_eval = is_random and differ(in_eval, self.run(quiet, call, seed + 1))
        try:
            loud = self.run(copy.deepcopy(model).train(), call, seed)
        except BadReference as error:
            # A submodule that was built in eval mode may be unable to train on such inputs.
            if error.passing:
                raise
            loud = None
        mode_matters = not is_random and (loud is None or differ(in_eval, loud))
        del in_eval, loud
        judged = quiet if is_random else model
        answer = self.answer(judged, call, seed)
        note, distance = answer.note, distance_of(answer)
        if distance > FAR:
            kind = dtype_of(answer.eager)
            note = f"oracle: {kind} (the float64 run is {distance:.1e} times its size away from eager's)"
        noise = distance > FAR and self._is_noise(judged, call, answer.eager, seed)
        self.oracle_note = note
        del answer
        mutates, aliases = self._effects(judged, call, seed)
        return Facts(is_random, random_in_eval, mode_matters, mutates, aliases, note, distance, noise)

    def _is_noise(self, model: Any, call: Call, eager: Outputs, seed: int) -> bool:
        """Whether one rounding of the inputs changes the result by more than `FAR` of its size."""
        generator = torch.Generator(self.device).manual_seed(seed)

        def nudge(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return clone_tensor(tensor)
            return changed(tensor, lambda chunk: upcast(chunk) * _roundings(chunk, generator))

        other = self.run(model, call.map(nudge), seed)
        return not unlike(as_exact(other), eager) and distance_of(Answer(as_exact(other), eager)) > FAR

    def _effects(self, model: Any, call: Call, seed: int) -> tuple[bool, bool]:
        """Whether the reference writes to its inputs, and whether an output shares memory with them."""
        given = call.clone()
        with self.computing(), self._blamed("forward()"), torch.no_grad(), self._home():
            own = copy.deepcopy(model)
            seed_all(seed)
            outputs = flatten(given.on(own))
        mutates = any(not same(a, b) for a, b in zip(call.tensors(), given.tensors(), strict=True))
        stores = {t.untyped_storage().data_ptr() for t in given.tensors() if t.numel()}
        aliases = any(t.untyped_storage().data_ptr() in stores for t in outputs.leaves if t.numel())
        return mutates, aliases

    def _home(self) -> AbstractContextManager[Any]:
        return _home(self.device, self.code)

    @contextmanager
    def _blamed(self, what: str) -> Iterator[None]:
        """Turn an exception inside into a `BadReference` that names the step.

        `MemoryError` passes through.
        """
        try:
            yield
        except (MemoryError, BadReference):
            raise
        except UnsupportedValue as error:
            raise BadReference(f"{what}: {error}") from error
        except (Exception, SystemExit) as error:
            where = module_file.where(error, self._file)
            raise BadReference(f"{what}: {where}", _of_the_machine(error)) from error


def load_reference(code: str, entry_point: str | None = None, device: str = "cpu") -> Reference:
    """Execute the source and find its class: `entry_point`, `Model`, or the only outermost module class."""
    number = next(_numbers)
    name, file = f"_kernelmill_reference_{number}", f"reference_{number}.py"
    try:
        with _home(device, code):
            module = module_file.load(code, name, file)
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        words = module_file.where(error, file)
        package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if package and importlib.util.find_spec(package) is None:
            raise NotInstalled(f"it needs {package}, which is not installed: {words}") from error
        raise BadReference(words, _of_the_machine(error)) from error
    if not callable(getattr(module, "get_inputs", None)):
        raise BadReference("the source defines no get_inputs()")
    return Reference(code, module, _class_of(module, entry_point), file, device)


def _of_the_machine(error: BaseException) -> bool:
    """Whether an error is a lack of memory, disk, files or processes.

    Torch tells this only in its message.
    """
    if isinstance(error, OSError):
        return error.errno in _WANTS
    wanting = any(words in str(error) for words in _WANTING) or memory_was_short(str(error))
    return isinstance(error, RuntimeError) and wanting


def _home(device: str, code: str) -> AbstractContextManager[Any]:
    """Where a source runs that may name CUDA devices. The mode costs more than a small model's arithmetic."""
    return CudaToCpu() if device == "cpu" and "cuda" in code else nullcontext()


def _class_of(module: Any, entry_point: str | None) -> type[Any]:
    own = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__
    }
    if entry_point is not None:
        kind = getattr(module, entry_point, None)
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise BadReference(f"{entry_point} is not an nn.Module subclass of the source")
        return kind
    if "Model" in own:
        return own["Model"]
    used = {base for kind in own.values() for base in kind.__mro__[1:]}
    outermost = [kind for kind in own.values() if kind not in used]
    if len(outermost) != 1:
        names = ", ".join(own) or "none"
        raise BadReference(
            f"which class is the reference? no entry point is given, and the modules are: {names}"
        )
    return outermost[0]


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_tensors(item) for item in value)
    if type(value) is dict:
        return any(_holds_tensors(item) for item in value.values())
    return isinstance(value, torch.Tensor)


def _wide_clone(tensor: torch.Tensor) -> torch.Tensor:
    return clone_tensor(tensor) if wide_of(tensor.dtype) is tensor.dtype else upcast(tensor.detach())


_ROUNDING = 2.0**-23


def _roundings(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random relative changes within one rounding."""
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device=generator.device)
    return (noise - 0.5) * _ROUNDING
