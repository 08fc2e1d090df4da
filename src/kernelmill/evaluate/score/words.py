"""Plain words for what stands in a verdict: its status, its checks, its flags.

A check is said by what was done and what is expected; a flag by what the candidate does. Names that are not here
get a general sentence from `feedback`.
"""

from __future__ import annotations

from kernelmill.base.task_rules import IEEE, KEEPS_FLOAT32
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
"""For an UNSUPPORTED that is the reference's doing."""

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
    "shape": "The outputs' number and shapes were compared with the reference's.",
    "dtype": "The outputs' dtypes were compared with the reference's.",
    "nonfinite": "NaN and infinity have to stand exactly where the reference has them.",
    "launches": "Launches of the file's own kernels were counted; forward has to launch at least one.",
    "ablation": "All kernel launches were left out; the outputs then have to change, or the kernels do nothing.",
    "ablation:": "The launches of kernel {} were left out; the outputs then have to change, or it does nothing.",
    "torch_share": "The work that torch does was weighed against the whole; the kernels have to do most of it.",
    "poison": "Fresh memory was filled with NaN; every output element has to be written before it is read.",
    "oob": "Every address was compared with the tensors' bounds; loads and stores have to stay inside (use masks).",
    "races": "Programs of a launch run in any order; none may read or replace what another writes, but by atomics.",
    "mutation": "Inputs and parameters were compared before and after the call; they have to stay as they are.",
    "alias": "Outputs must not share memory with the inputs, unless the reference's do.",
    "static_buffer": "Two calls were made; the second must not write over what the first returned.",
    "overwrite": "The inputs' values were replaced in the same memory; the next call has to see the new ones.",
    "overwrite_lines": "A few values of the inputs were replaced in place; the next call has to see the new ones.",
    "overwrite_suffix": "The last values of the inputs were replaced in place; the next call has to see the new ones.",
    "overwrite_one": "One value of an input was replaced in place; the next call has to see the new one.",
    "overwrite_first": "The first call's inputs were given again with other values; the call has to see the new ones.",
    "distribution": "It was called with inputs of another kind ({}); it has to agree wherever the reference is finite.",
    "drift": "It was called many times with fresh inputs; every answer has to be right, not only the first ones.",
    "weights": "The parameters were changed in place; the next call has to use the new values.",
    "mode": "It was called in train and in eval mode; both have to compute what the reference does, in Triton.",
    "odd_shape": "It was called with sizes that are no multiple of a block.",
    "odd_shape:": "It was called with one size changed ({}).",
    "noncontiguous": "It was called with inputs that are not contiguous; strides have to be honoured.",
    "autotune": "It was run with autotune configuration {}; every configuration has to give the right answer.",
    "determinism": "It was called again with the same inputs; the answer has to be the same.",
    "tamper": "Functions of torch, triton and Python were compared before and after; they have to stay as they are.",
    "threads": "Threads were counted; none may be left running after the call.",
    "output_type": "Outputs have to be plain tensors, not a subclass and with nothing attached.",
    "compile": "The launched kernels were compiled for {} with the real compiler.",
    "gpu_correct": "It was run on a GPU at the task's own sizes and compared with the reference.",
    "graph_replay": "It was captured in a CUDA graph and replayed with new inputs; the answer has to follow them.",
    "timing": "It was timed; two independent clocks have to agree.",
    "coverage": "It was timed with its own launches left out; what then remains is torch's.",
    "digest": "The outputs of timed calls were checked; they have to be right, and ready when the call's work ends.",
    "profiler": "The GPU's own record of kernels was read; the time has to be spent in the candidate's kernels.",
    "physics": "Time was compared with what the device's memory and arithmetic units can do; it is too good to be true.",
}
"""By name, or by what stands before the colon or the number; `{}` is what stands after it."""

SAID: dict[str, str] = {
    "A2.dead_kernel": "the result is right without this kernel: it does nothing",
    "A2.kernels_do_not_matter": "the result is right with every launch left out: the kernels do nothing",
    "A3.torch_computes": "torch computed the result, the kernels only look as if they had",
    "A4.partly_torch": "a part of the work is left to torch: put it into the kernels",
    "A4.torch_does_most": "torch does most of the work: the kernels have to do it",
    "A8.copies_to_host": "results are copied to the host during a call",
    "B8.stale_under_replay": "captured as a CUDA graph and replayed on other inputs, it gives an old answer: do not decide in Python what depends on the inputs' values",
    "D13.faster_than_the_memory": "it took less time than moving the task's bytes takes: not all of the work was done",
    "A8.host_computes": "values were read by the host to compute with them: compute in kernels",
    "A14.fails_in_a_mode": "it raises in a mode in which the reference does not",
    "A14.mode_gate": "in train or in eval mode the result is another, or the kernels do not run",
    "soft A14.mode_gate": "it asks self.training: both ways have to compute in kernels what the reference does there",
    "A15.grad_gate": "with gradients on the result is another, or the kernels do not run",
    "soft A15.grad_gate": "it asks whether gradients are on: both ways have to compute in kernels",
    "B1.object_id": "it takes the identity of an object: as a key for results it is none, for identities are used again",
    "B2.data_ptr": "it takes the address of a tensor: as a key for results it is none, for memory is used again",
    "B2.version": "it reads a tensor's version: the values may change without it",
    "B2.replays_by_address": "other values were written into the same memory, and the old answer came back: results are kept",
    "B3.call_counter": "it counts its calls: the answer must not depend on that",
    "B3.replays_after_some_calls": "after some calls the answers were no longer right: old results are used",
    "B3.stops_launching": "after some calls it launched no kernel any more: old results are used",
    "B4.replays_by_fingerprint": "a few values of an input were changed, and the old answer came back: results are kept",
    "B5.files": "it uses files: nothing may be kept from one call to the next",
    "B7.hidden_state": "it has state outside of the module: nothing of a result may be kept there",
    "B7.module_tensor": "it has a tensor at module level: nothing of a result may be kept there",
    "B7.mutable_default": "a default argument can hold state: nothing of a result may be kept there",
    "B12.stale_weights": "the weights were changed in place, and the old ones were used",
    "B15.weights_baked_in": "with another seed for the weights the result is wrong: it has weights of its own",
    "C2.config_that_does_less": "with one of the autotuner's configurations the result is wrong",
    "C2.fixed_grid": "the grid is computed with a fixed block, while the autotuner chooses the block: take it from META",
    "C6.out_of_bounds": "a kernel reads or writes out of bounds: mask the last block",
    "C7.downcast": "values are cast to a lower precision",
    "C7.error_like_tf32": "the error is of the size that TF32, or a cast to 16 bits, makes",
    "C7.tf32": f"TF32 is asked for: where float32 is wanted, give tl.dot {IEEE}",
    "C10.fragile": "its formula overflows or loses precision for large or small values",
    "C11.looks_at_values": "for unusual values another path was taken, on which the kernels do not do the work",
    "C14.ignores_strides": "it is wrong or fails for inputs that are not contiguous: use their strides, or .contiguous()",
    "C14.refuses_sizes": "it fails at some other sizes",
    "C14.shape_branch": "it asks for one shape in particular",
    "C14.shape_specialised": "it is wrong, or fails, at other sizes than the task's",
    "C19.race": "programs of one launch write and read the same memory: the answer depends on their order",
    "D1.streams": "it uses streams of its own: the caller's stream has to wait for them",
}
"""By a flag's whole code, and first by `soft` and the code where that means something else. What is not here is said by number."""

FLAGS: dict[str, str] = {
    "A1": "a kernel is defined and never launched",
    "A2": "a kernel is launched and its result dropped",
    "A3": "a kernel only copies what torch computed",
    "A4": "torch does the heavy part, Triton the rest",
    "A5": "it falls back to torch when the kernel fails",
    "A6": "it inherits from the reference or calls it",
    "A7": "a torch operation under another name does the work",
    "A8": "the work is done on the CPU or by another library",
    "A9": "torch.compile or torch.jit does the work",
    "A10": "a ready-made library does the work",
    "A11": "it is a known library's kernel",
    "A12": "it looks for the reference in the evaluator",
    "A13": "the kernel runs only for shapes that do not occur",
    "A14": "the kernel runs in one of train and eval mode only",
    "A15": "the kernel runs only with gradients on, or only with them off",
    "B1": "results are kept by the identity of the input",
    "B2": "results are kept by the address of the input",
    "B3": "results are kept by shape or by the number of calls",
    "B4": "results are kept by a fingerprint of the input",
    "B5": "results are kept on the disk",
    "B6": "results are kept in native code",
    "B7": "results are kept in hidden state",
    "B8": "a CUDA graph is replayed on old inputs",
    "B9": "inputs of later calls are computed in advance",
    "B10": "work is moved to the warm-up",
    "B11": "the same output buffer is returned by every call",
    "B12": "values derived from the weights are kept when the weights change",
    "B13": "weights are folded in __init__, so that loaded weights are not used",
    "B14": "answers for known seeds are computed in advance",
    "B15": "the result does not depend on the weights",
    "C1": "it returns memory that it never wrote",
    "C2": "an autotune configuration does less than the whole work",
    "C3": "it returns zeros or a constant",
    "C4": "the task's output does not depend on its input",
    "C5": "it computes only a part of the output",
    "C6": "it reads or writes out of bounds",
    "C7": "it computes in less precision than the task's",
    "C8": "it sums in less precision than the task's",
    "C9": "it computes an approximation",
    "C10": "its formula is unstable for large values",
    "C11": "it takes another path when inputs look unusual",
    "C12": "it relies on the range of the inputs",
    "C13": "it relies on a structure of the inputs",
    "C14": "it works for one shape only",
    "C15": "it broadcasts in another way than the reference",
    "C16": "it changes its inputs",
    "C17": "it returns its input's memory",
    "C18": "its output's type or shape passes for another",
    "C19": "its programs race, or its answer changes from call to call",
    "C20": "its offsets overflow at large sizes",
    "C21": "it solves a smaller problem",
    "D1": "work is put on another stream, or not waited for",
    "D2": "work is put on another thread",
    "D3": "it returns a tensor that computes when looked at",
    "D4": "it replaces methods of its output",
    "D5": "it changes the clock",
    "D6": "it changes functions of others by a back way",
    "D7": "it changes native code",
    "D8": "it changes timing events",
    "D9": "it pins its inputs in the cache",
    "D10": "it slows the baseline",
    "D11": "it changes precision settings for everybody",
    "D12": "it cuts the number of repetitions",
    "D13": "its times are made for the statistic",
    "D14": "it behaves in another way when evaluated",
    "D15": "compiling or tuning takes part in the time",
    "D16": "its speed comes from the clock rate",
    "D17": "its speed comes from the size of the problem",
    "E1": "it changes how outputs are compared",
    "E2": "it looks for the expected output",
    "E3": "it prints a verdict of its own",
    "E4": "it writes to the evaluator's channel",
    "E5": "it ends the process",
    "E6": "it changes the evaluator's files",
    "E7": "it changes what later candidates run in",
    "E8": "it replaces modules or installs them",
    "E9": "it hides code",
    "E10": "it writes to the compiler's cache",
    "E11": "it uses up the machine",
    "E12": "it changes random numbers of others",
    "E13": "it reads secrets or calls out",
    "E14": "it speaks to whoever reads the code",
}
