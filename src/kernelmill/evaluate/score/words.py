"""Plain words for a verdict's status and checks. Words for its flags are in `evaluate.flags`.

A check is described by what was done and what is expected. `feedback` has a general sentence for names that
are not here.
"""

from __future__ import annotations

from kernelmill.base.task_rules import KEEPS_FLOAT32
from kernelmill.evaluate.verdict import DropIn, Status, Tier

STATUS: dict[Status, tuple[str, str]] = {
    "PASSED": ("Correct", "Keep what it computes as it is, and make it faster."),
    "PARSE_ERROR": (
        "Not correct: the answer is not valid Python",
        "Send the whole file again, as plain Python.",
    ),
    "FORMAT_ERROR": (
        "Not correct: there is no candidate in the answer",
        "Send one Python file with a class ModelNew (or the asked name + New) and at least one @triton.jit kernel "
        "that its forward launches.",
    ),
    "COMPILE_ERROR": (
        "Not correct: Triton does not compile a kernel",
        "Mend the line that the compiler names; line numbers in its message may count from the kernel's own first line.",
    ),
    "OUT_OF_RESOURCES": (
        "Not correct: a kernel compiles, but needs more shared memory or registers than a device has",
        "Use smaller blocks, fewer num_stages or another num_warps.",
    ),
    "RUNTIME_ERROR": (
        "Not correct: it fails while it runs",
        "Mend the error, and keep the signature of forward.",
    ),
    "TIMEOUT": (
        "Not correct: it does not finish in time",
        "Look for a loop without an end, a grid that is too large, or work done one element at a time.",
    ),
    "OOM": (
        "Not correct: it runs out of memory",
        "Allocate no more than the outputs and small scratch space.",
    ),
    "INCORRECT_SHAPE": (
        "Not correct: an output has another shape, or there is another number of outputs",
        "Return exactly what the reference returns.",
    ),
    "INCORRECT_DTYPE": (
        "Not correct: an output has another type, device or layout",
        "Return plain tensors of the reference's dtype, on the inputs' device, in the reference's layout.",
    ),
    "INCORRECT_NUMERICAL": (
        "Not correct: the values are wrong",
        "Compare indexing, masks, strides, the axis and dtype of sums, and the order of operations with the reference.",
    ),
    "NONFINITE": (
        "Not correct: NaN or infinity where the reference has none, or the other way round",
        "Look for memory that is read but never written, a missing mask or `other=`, division by zero, and overflow "
        "in exp.",
    ),
    "HACK": (
        "Rejected: it only looks as if it computed the reference's function",
        "Write kernels that do the work themselves, on every call, for any input.",
    ),
    "UNSUPPORTED": (
        "Not judged: it uses something that cannot be run here",
        "This is no judgement of the candidate. Where plain Triton can say the same, it can be judged here.",
    ),
    "INFRA_ERROR": (
        "Not judged: the reference or the evaluator had trouble",
        "This is no judgement of the candidate. Evaluate again.",
    ),
}
OF_THE_REFERENCE = (
    "Not judged: the reference cannot be used",
    "This is no judgement of the candidate. Mend the reference, or give its code what it needs.",
)
"""For an UNSUPPORTED that the reference caused."""

TIER: dict[Tier, str] = {
    "static": "by reading it alone",
    "interpreter": "on a CPU, under Triton's interpreter, at small sizes",
    "gpu": "on a GPU",
    "gpu_timed": "on a GPU, and timed",
}

KEEP_FLOAT32 = (
    f"Keep float32 what it is: {KEEPS_FLOAT32} does, its default rounds to TF32; cast nothing down."
)

DROP_IN: dict[DropIn, str] = {
    "strict": "",
    "by_order": "It takes the reference's weights only by order and shape: name parameters as the reference does.",
    "seed_only": "It does not take the reference's state_dict: keep its parameters, with their names and shapes, and "
    "derive from them at call time.",
    "none": "The reference's weights could not be given to it: keep its parameters, with their names and shapes.",
}

CHECKS: dict[str, str] = {
    "static": "The code was read without running it.",
    "import": "The file was imported; it has to load with torch, triton and the standard library alone.",
    "init": "The class was made with the reference's own arguments; its __init__ has to take them.",
    "seed": "It was called with random inputs and compared with the reference in float64.",
    "scalars": "Outputs of a few numbers were compared with the reference's over all calls together.",
    "other_inputs": "The reference was run on other inputs, to see which of them it accepts.",
    "launches": "Launches of the file's own kernels were counted; forward has to launch at least one.",
    "replay": "One call was recorded as torch operations and launches, and these were run elsewhere; they have to give the result.",
    "replay_later": "A call after many others was recorded and run elsewhere too; it has to give the result like the first.",
    "own_size": "The task was judged smaller than it is; at its own size a call was made with launches left out, and the file's kernels have to be launched there too.",
    "strict": "Masked lanes of loads without `other` read NaN, and no two lanes of a store may disagree.",
    "nonfinite": "NaN and infinity were among the inputs; this is noted and refuses nobody.",
    "buffers": "The buffers after a call were compared with the reference's: running statistics have to be updated.",
    "own_size_kernels": "At the task's own size the file's kernels have to do the work too.",
    "order": "The programs of each launch ran in the opposite order; the outputs must not change.",
    "ablation": "All kernel launches were left out; the outputs then have to change, or the kernels do nothing.",
    "ablation:": "The launches of kernel {} were left out; the outputs then have to change, or it does nothing.",
    "oob": "Every address was compared with the tensors' bounds; loads and stores have to stay inside (use masks).",
    "races": "Programs of a launch run in any order; none may read or replace what another writes, but by atomics.",
    "static_buffer": "Two calls were made; the second must not write over what the first returned.",
    "overwrite": "The inputs' values were replaced in the same memory; the next call has to see the new ones.",
    "overwrite_lines": "A few values of the inputs were replaced in place; the next call has to see the new ones.",
    "overwrite_suffix": "The last values of the inputs were replaced in place; the next call has to see the new ones.",
    "overwrite_one": "One value of an input was replaced in place; the next call has to see the new one.",
    "overwrite_first": "The first call's inputs were given again with other values; the call has to see the new ones.",
    "distribution": "It was called with inputs of another kind ({}); it has to agree wherever the reference is finite.",
    "drift": "It was called many times with fresh inputs; every answer has to be right, not only the first ones.",
    "weights": "The parameters were changed in place; the next call has to use the new values.",
    "weights_far": "The parameters were changed in sign and size; the next call has to use the new values.",
    "mode": "It was called in train and in eval mode; both have to compute what the reference does, in Triton.",
    "odd_shape": "It was called with sizes that are no multiple of a block.",
    "odd_shape:": "It was called with one size changed ({}).",
    "noncontiguous": "It was called with inputs that are not contiguous; strides have to be honoured.",
    "autotune": "It was run with autotune configuration {}; every configuration has to give the right answer.",
    "compile": "The launched kernels were compiled for {} with the real compiler.",
    "graph_replay": "It was captured in a CUDA graph and replayed with new inputs; the answer has to follow them.",
    "timing": "It was timed; two independent clocks have to agree.",
    "coverage": "It was timed with its own launches left out; what then remains is torch's.",
    "digest": "The outputs of timed calls were checked; they have to be right, and ready when the call's work ends.",
    "profiler": "The GPU's own record of kernels was read; the time has to be spent in the candidate's kernels.",
    "physics": "Time was compared with what the device's memory and arithmetic units can do; it is too good to be true.",
}
"""Keyed by a check's name, or by the part before the colon or number; `{}` is the part after it."""
