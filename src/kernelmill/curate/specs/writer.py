"""Write a task specification from a traced module, without a model.

The specification lists what the trace recorded: each operation in order with its constants, the shapes and
dtypes of inputs and outputs, and the module's parameters. Does not recognise a well-known function that is
written out in steps, and does not know branches that were not taken in the traced run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from string import Formatter

from kernelmill.curate.specs.specification import Specification, Tensor, Tensors
from kernelmill.problems.definitions import Param
from kernelmill.problems.facts import OpFact, TensorFact, Trace, ValueFact
from kernelmill.problems.source import ModuleSource

_ELEMENTWISE = {
    "exp": "the exponential", "log": "the natural logarithm", "log1p": "the logarithm of one plus",
    "sqrt": "the square root", "rsqrt": "the reciprocal square root", "abs": "the absolute value", "sin": "the sine",
    "cos": "the cosine", "tanh": "the hyperbolic tangent", "sigmoid": "the logistic sigmoid", "erf": "the error function",
    "reciprocal": "the reciprocal", "floor": "the floor", "ceil": "the ceiling", "round": "the rounded value",
    "silu": "the SiLU activation", "gelu": "the GELU activation", "mish": "the Mish activation",
    "softplus": "the softplus", "hardswish": "the hard-swish activation", "hardsigmoid": "the hard sigmoid",
    "elu": "the ELU activation", "selu": "the SELU activation", "leaky_relu": "the leaky rectifier",
    "log_sigmoid": "the logarithm of the sigmoid", "sign": "the sign", "square": "the square",
}  # fmt: skip
_PHRASES = {
    **{name: f"take {what} of {{self}}, element by element" for name, what in _ELEMENTWISE.items()},
    "relu": "replace the negative elements of {self} by zero",
    "neg": "negate {self}",
    "add": "add {other} to {self}", "sub": "subtract {other} from {self}", "rsub": "subtract {self} from {other}",
    "mul": "multiply {self} by {other}, element by element", "div": "divide {self} by {other}, element by element",
    "pow": "raise {self} to the power {exponent}, element by element",
    "maximum": "take the larger of {self} and {other}, element by element",
    "minimum": "take the smaller of {self} and {other}, element by element",
    "clamp": "limit the elements of {self}", "clamp_min": "raise elements of {self} below {min} to it",
    "clamp_max": "lower elements of {self} above {max} to it", "hardtanh": "limit the elements of {self}",
    "where": "take {self} where {condition} holds and {other} elsewhere",
    "masked_fill": "put {value} into {self} where {mask} holds",
    "eq": "mark where {self} equals {other}", "ne": "mark where {self} differs from {other}",
    "lt": "mark where {self} is below {other}", "le": "mark where {self} is at most {other}",
    "gt": "mark where {self} is above {other}", "ge": "mark where {self} is at least {other}",
    "mm": "form the matrix product of {self} and {mat2}", "bmm": "form the batched matrix product of {self} and {mat2}",
    "addmm": "form the matrix product of {mat1} and {mat2} and add {self}",
    "mv": "form the product of the matrix {self} and the vector {vec}",
    "dot": "form the inner product of {self} and {tensor}",
    "baddbmm": "form the batched matrix product of {batch1} and {batch2} and add {self}",
    "convolution": "convolve {input} with the filters {weight}",
    "t": "transpose {self}", "transpose": "swap the dimensions {dim0} and {dim1} of {self}",
    "permute": "put the dimensions of {self} in the order {dims}",
    "view": "view {self} as the shape {size}", "_unsafe_view": "view {self} as the shape {size}",
    "reshape": "view {self} as the shape {shape}", "expand": "broadcast {self} to the shape {size}",
    "detach": "take {self} without its gradient",
    "unsqueeze": "add a dimension of size one to {self} at position {dim}",
    "squeeze": "remove dimensions of size one from {self}",
    "slice": "take a part of {self}", "select": "take the entry {index} of dimension {dim} of {self}",
    "cat": "join {tensors}", "stack": "stack {tensors}", "split": "split {self}", "clone": "copy {self}",
    "_to_copy": "convert {self} to {dtype}", "constant_pad_nd": "pad {self} by {pad} with a constant",
    "sum": "sum {self}", "mean": "take the mean of {self}", "amax": "take the maximum of {self}",
    "amin": "take the minimum of {self}", "max": "take the maximum of {self}", "min": "take the minimum of {self}",
    "argmax": "find the place of the maximum of {self}", "argmin": "find the place of the minimum of {self}",
    "var": "take the variance of {self}", "std": "take the standard deviation of {self}",
    "logsumexp": "take the logarithm of the sum of exponentials of {self}",
    "linalg_vector_norm": "take the vector norm of {self}", "norm": "take the norm of {self}",
    "cumsum": "take the running sum of {self} along dimension {dim}",
    "_softmax": "take the softmax of {self} over dimension {dim}",
    "_log_softmax": "take the logarithm of the softmax of {self} over dimension {dim}",
    "native_layer_norm": "normalise {input} over its last dimensions {normalized_shape} to mean 0 and variance 1",
    "native_group_norm": "normalise {input} within {group} groups of channels to mean 0 and variance 1",
    "embedding": "look the rows {indices} up in the table {weight}",
    "gather": "gather from {self} along dimension {dim} at {index}", "index": "take the entries {indices} of {self}",
    "index_select": "take the entries {index} of dimension {dim} of {self}",
    "max_pool2d_with_indices": "take the maximum of {self} in windows of {kernel_size}",
    "avg_pool2d": "take the mean of {self} in windows of {kernel_size}",
    "_adaptive_avg_pool2d": "take the mean of {self} in windows that give the size {output_size}",
    # Which implementation ran is not part of the behaviour.
    **dict.fromkeys(
        ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math"),
        "scaled dot-product attention with the queries {query}, keys {key} and values {value}",
    ),
    "arange": "count from the start to the end", "zeros": "take zeros of the shape {size}", "ones": "take ones of the shape {size}",
}  # fmt: skip
_OTHERWISE = {"view": "reinterpret the bits of {self} as {dtype}", "_to_copy": "copy {self}"}
"""Fallback phrases where an argument of the usual phrase is missing."""
_UNSAID = {
    "layout",
    "device",
    "pin_memory",
    "memory_format",
    "half_to_float",
    "output_mask",
    "implicit",
    "N",
    "C",
    "HxW",
}
"""Arguments that are not mentioned: they say nothing about the result that its shape does not."""


def write_spec(class_name: str, source: ModuleSource, trace: Trace) -> str:
    """Write the specification with the sections that `specs.checks` requires."""
    return Specification(
        what_is_computed="\n".join(_computed(class_name, trace)),
        inputs=_inputs(trace),
        outputs=_outputs(trace),
        module_interface="\n".join(_interface(class_name, source, trace)),
        behavioural_requirements="\n".join(_behaviour(trace)),
        language="The kernels are written in Triton and called from a PyTorch nn.Module.",
        learnable_parameters=_parameters(trace),
    ).text()


def _computed(class_name: str, trace: Trace) -> Iterator[str]:
    outputs = ", ".join(tensor.name for tensor in trace.outputs) or "nothing"
    if not trace.ops:
        yield f"{class_name} computes nothing new: what it returns is what it was given."
        return
    yield f"{class_name} does the following, one step after the other. A later step refers to the result of an earlier one by its number."
    yield ""
    for number, op in enumerate(trace.ops, 1):
        yield f"{number}. {_step(op)}; the result, [{number}], has the shape {_shape(op.shape)}."
    if trace.ops_left_out:
        yield f"Then {trace.ops_left_out} further steps of the same kind follow."
    yield ""
    yield f"Returned: {outputs}" + (f", which is {', '.join(trace.returned)}." if trace.returned else ".")


def _step(op: OpFact) -> str:
    name = op.op.removeprefix("aten.")
    plain = name if name in _PHRASES else name.rstrip("_")
    arguments = {key: value for key, value in op.arguments.items() if key not in _UNSAID}
    dtype = arguments.get("dtype")
    phrases = (table.get(plain) for table in (_PHRASES, _OTHERWISE))
    phrase = next((one for one in phrases if one and arguments.keys() >= set(_placeholders(one))), None)
    if phrase is None:
        words = plain.strip("_").replace("_", " ")
        said, used = f"apply the operation '{words}'", {"dtype"}
    else:
        said, used = phrase.format(**arguments), {*_placeholders(phrase), "dtype"}
    if rest := {key: value for key, value in arguments.items() if key not in used}:
        said += ", with " + ", ".join(f"{key.strip('_')} {value}" for key, value in rest.items())
    if dtype and (phrase is None or "{dtype}" not in phrase):
        said += f", in {dtype}"
    if name.endswith("_") and not name.startswith("_"):
        said += ", in place"
    return said[0].upper() + said[1:]


def _placeholders(phrase: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(phrase) if name]


def _shape(shape: Sequence[int]) -> str:
    return str(tuple(shape))


def _tensor(fact: TensorFact, meaning: str = "") -> Tensor:
    return Tensor(fact.name, list(fact.shape), fact.dtype, meaning)


def _inputs(trace: Trace) -> Tensors:
    meanings = {"bool": "true or false an element", "int64": "whole numbers"}
    tensors = [_tensor(tensor, meanings.get(tensor.dtype, "")) for tensor in trace.inputs]
    return Tensors(tensors, "\n".join(_plain(trace.input_values)))


def _outputs(trace: Trace) -> Tensors:
    notes = _plain(trace.output_values)
    if len(trace.outputs) + len(trace.output_values) > 1:
        notes.append("They are returned together, in this order and structure.")
    return Tensors([_tensor(tensor) for tensor in trace.outputs], "\n".join(notes))


def _plain(values: Sequence[ValueFact]) -> list[str]:
    return [f"- {value.name}: {value.repr}, a plain Python value" for value in values]


def _interface(class_name: str, source: ModuleSource, trace: Trace) -> Iterator[str]:
    yield f"The class is called {class_name} and is a subclass of torch.nn.Module."
    used = {value.name: value.repr for value in trace.init_values}
    yield (
        "Constructor parameters, in this order:"
        if source.init_params
        else "The constructor takes no parameters."
    )
    for param in source.init_params:
        yield f"- {_param(param)}" + (
            f"; {used[param.name]} in the case described here" if param.name in used else ""
        )
    yield (
        "The forward method takes, in this order:"
        if source.forward_params
        else "The forward method takes nothing."
    )
    for param in source.forward_params:
        yield f"- {_param(param)}"


def _param(param: Param) -> str:
    kind = {
        "keyword": ", by keyword only",
        "*args": ", any number of positional ones",
        "**kwargs": ", any further keywords",
    }
    said = param.name + kind.get(param.kind, "")
    if param.annotation is not None:
        said += f", of type {param.annotation}"
    if param.default is not None:
        said += f", by default {param.default}"
    return said


def _behaviour(trace: Trace) -> Iterator[str]:
    dtypes = sorted({tensor.dtype for tensor in trace.outputs})
    yield f"- The result agrees with the steps above to within the rounding error of {' and '.join(dtypes) or 'the input dtype'}."
    yield "- Shapes, dtypes and the structure of what is returned are exactly those under Outputs."
    names = {tensor.name for tensor in trace.inputs}
    changed = sorted(
        {op.arguments["self"] for op in trace.ops if _in_place(op) and op.arguments.get("self") in names}
    )
    if changed:
        yield f"- The inputs {', '.join(changed)} are changed in place, as in the steps above; the others are left as they are."
    else:
        yield "- The inputs are left as they are."
    if any(op.kind == "random" for op in trace.ops):
        yield "- Some steps draw random numbers (the module is in training mode): these agree in distribution, not bit by bit."
    if trace.buffers:
        held = ", ".join(f"{buffer.name} {_shape(buffer.shape)}" for buffer in trace.buffers)
        yield f"- It holds state that is not learned, under these names: {held}."


def _in_place(op: OpFact) -> bool:
    return re.fullmatch(r"aten\.[a-z]\w*[a-z0-9]_", op.op) is not None


def _parameters(trace: Trace) -> Tensors:
    tensors = []
    for parameter in trace.parameters:
        meaning = [] if parameter.learnable else ["not trained"]
        if parameter.owner.startswith("nn."):
            meaning.append(f"initialised as in PyTorch's {parameter.owner} by default")
        tensors.append(_tensor(parameter, ", ".join(meaning)))
    return Tensors(
        tensors, "They are held under these names, so that saved state can be loaded." if tensors else ""
    )
