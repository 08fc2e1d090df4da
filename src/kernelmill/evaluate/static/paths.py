"""The rules on using outside modules: a table from dotted path to pattern and severity.

The longest entry that is the path or a parent of it applies, so `threading` is hard and `threading.Lock` is
soft. `None` exempts a path from its parent's rule. Only what has no honest use in a candidate is hard; a
language may add entries and exempt what it is made of (`StaticRules.paths`). The patterns are those of
docs/hacks.md.
"""

from __future__ import annotations

from kernelmill.evaluate.static.language import Rule, StaticRules
from kernelmill.evaluate.static.syntax import words


def _each(prefix: str, names: str, rule: Rule | None) -> dict[str, Rule | None]:
    return {f"{prefix}.{name}" if prefix else name: rule for name in names.split()}


PATHS: dict[str, Rule | None] = {
    # Code generated at run time
    **_each("builtins", "exec eval compile __import__ __builtins__", ("E9.exec", "hard")),
    **_each("", "marshal runpy code codeop imp zipimport", ("E9.exec", "hard")),
    "types.CodeType": ("E9.exec", "hard"),
    "importlib": ("E9.importlib", "soft"),
    "importlib.import_module": ("E9.importlib", "soft"),
    "importlib.reload": ("E7.reload", "hard"),
    "importlib.machinery": ("E8.loader", "hard"),
    **_each(
        "importlib.util", "module_from_spec spec_from_file_location spec_from_loader", ("E8.loader", "hard")
    ),
    **_each("", "base64 zlib codecs binascii lzma bz2 gzip", ("E9.encoded", "soft")),
    # Native code
    **_each("", "ctypes _ctypes cffi _cffi_backend mmap", ("D7.native", "hard")),
    **_each("", "setuptools distutils", ("A10.cpp_extension", "hard")),
    "torch.utils.cpp_extension": ("A10.cpp_extension", "hard"),
    "torch.ops.load_library": ("A10.cpp_extension", "hard"),
    "torch.classes.load_library": ("A10.cpp_extension", "hard"),
    "torch.cuda._compile_kernel": ("A10.cuda_source", "hard"),
    "torch.cuda.jiterator": ("A10.cuda_source", "soft"),
    # Third-party kernels
    **_each(
        "",
        "flash_attn flash_attn_interface flash_attn_2_cuda xformers liger_kernel apex transformer_engine bitsandbytes "
        "vllm sglang sgl_kernel flashinfer deep_gemm deepspeed fla mamba_ssm causal_conv1d unsloth cutlass tilelang "
        "aiter triton_kernels flag_gems cut_cross_entropy attorch torchao fbgemm_gpu torch_scatter "
        "torch_sparse torch_cluster pyg_lib cupy cupyx pycuda numba jax tensorflow onnxruntime tensorrt "
        "torch_tensorrt cuda cudnn nvmath tvm",
        ("A10.vendor_library", "hard"),
    ),
    # torch's compilers. Imports that Inductor's own output contains are only info.
    "torch.compile": ("A9.torch_compile", "hard"),
    **_each(
        "torch.jit", "script trace trace_module freeze optimize_for_inference load", ("A9.torch_jit", "hard")
    ),
    "torch._dynamo": ("A9.inductor_runtime", "info"),
    **_each(
        "torch._dynamo", "optimize optimize_assert eval_frame.optimize export", ("A9.torch_compile", "hard")
    ),
    "torch._inductor": ("A9.inductor_runtime", "info"),
    **_each(
        "torch._inductor", "compile compile_fx aot_compile standalone_compile", ("A9.torch_compile", "hard")
    ),
    **_each("torch._inductor", "aoti_compile_and_package aoti_load_package", ("A9.torch_compile", "hard")),
    "torch._inductor.async_compile": ("A9.async_compile", "soft"),
    "torch._inductor.codecache.AsyncCompile": ("A9.async_compile", "soft"),
    "torch._inductor.select_algorithm.extern_kernels": ("A4.extern_kernels", "info"),
    "functorch.compile": ("A9.torch_compile", "hard"),
    # Other processes and threads, the network
    **_each("", "threading _thread", ("D2.threads", "hard")),
    **_each("threading", "Lock RLock local current_thread get_ident main_thread", ("D2.threads", "soft")),
    **_each("", "multiprocessing concurrent asyncio", ("D2.processes", "hard")),
    "torch.multiprocessing": ("D2.processes", "hard"),
    **_each("multiprocessing", "Lock RLock", ("D2.processes", "soft")),
    "multiprocessing.cpu_count": None,
    **_each("", "subprocess pty", ("E11.processes", "hard")),
    **_each("os", "fork forkpty system popen posix_spawn posix_spawnp", ("E11.processes", "hard")),
    **_each("os", "execl execle execlp execlpe execv execve execvp execvpe", ("E11.processes", "hard")),
    **_each(
        "os", "spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe", ("E11.processes", "hard")
    ),
    **_each(
        "",
        "socket socketserver requests urllib http httpx aiohttp ftplib smtplib ssl",
        ("E13.network", "hard"),
    ),
    "pip": ("E8.pip", "hard"),
    # Exiting or signalling the process, writing to its file descriptors
    **_each("", "signal atexit", ("E5.exits", "hard")),
    **_each("os", "_exit abort kill killpg register_at_fork", ("E5.exits", "hard")),
    **_each("sys", "exit", ("E5.exits", "soft")),
    **_each("builtins", "exit quit SystemExit", ("E5.exits", "soft")),
    **_each(
        "os", "write pwrite writev pwritev dup dup2 pipe pipe2 close closerange", ("E4.descriptors", "hard")
    ),
    **_each("os", "fdopen open sendfile memfd_create", ("E4.descriptors", "soft")),
    **_each("", "fcntl select selectors resource", ("E4.descriptors", "soft")),
    # Inspecting the harness
    **_each("sys", "_getframe _current_frames settrace setprofile monitoring", ("A12.frames", "hard")),
    **_each("sys", "modules", ("A12.modules", "hard")),
    # Which modes of torch's are on: that somebody looks
    **_each(
        "torch._C",
        "_len_torch_dispatch_stack _get_dispatch_stack_at _len_torch_function_stack _get_function_stack_at",
        ("D14.environment", "hard"),
    ),
    **_each(
        "torch.overrides",
        "_get_current_function_mode _get_current_function_mode_stack",
        ("D14.environment", "hard"),
    ),
    **_each(
        "torch.utils._python_dispatch",
        "_get_current_dispatch_mode _get_current_dispatch_mode_stack _len_torch_dispatch_stack",
        ("D14.environment", "hard"),
    ),
    **_each("inspect", "stack trace getouterframes getinnerframes", ("A12.frames", "hard")),
    # A function's own frame tells where the file is. Going on from there, with f_back, is hard.
    **_each("inspect", "currentframe getframeinfo", ("A12.frames", "soft")),
    "inspect": ("D14.inspect", "soft"),
    **_each("inspect", "signature Parameter isfunction isclass isroutine cleandoc", ("D14.inspect", "info")),
    "traceback": ("D14.inspect", "info"),
    "gc": ("E2.gc", "soft"),
    **_each("gc", "get_objects get_referrers get_referents", ("E2.gc", "hard")),
    "kernelmill": ("A12.kernelmill", "hard"),
    "__main__": ("A12.modules", "hard"),
    **_each("sys", "argv orig_argv", ("D14.environment", "hard")),
    **_each("os", "environ environb getenv getppid", ("D14.environment", "soft")),
    **_each("", "time timeit", ("D14.clock", "soft")),
    "time.sleep": ("D12.sleep", "hard"),
    **_each("sys", "path", ("E8.sys_path", "soft")),
    **_each(
        "sys", "meta_path path_hooks path_importer_cache addaudithook setdlopenflags", ("E8.loader", "hard")
    ),
    "unittest.mock": ("E1.mock", "hard"),
    "mock": ("E1.mock", "hard"),
    # Files
    **_each("", "pickle shelve dbm sqlite3 tempfile shutil joblib diskcache", ("B5.files", "soft")),
    "torch.save": ("B5.writes_files", "hard"),
    "torch.load": ("B5.files", "soft"),
    **_each("builtins", "open", ("B5.files", "soft")),
    **_each(
        "os", "makedirs mkdir listdir remove unlink rename replace rmdir truncate chmod", ("B5.files", "soft")
    ),
    **_each("os", "symlink link scandir walk", ("B5.files", "soft")),
    "pathlib": ("B5.files", "soft"),
    # Hidden state, and streams
    "builtins.id": ("B1.object_id", "soft"),
    "contextvars": ("B7.hidden_state", "soft"),
    **_each("torch.cuda", "Stream stream ExternalStream set_stream", ("D1.streams", "soft")),
    **_each("torch.cuda", "CUDAGraph graph make_graphed_callables graphs", ("B8.cuda_graph", "soft")),
    **_each("torch", "manual_seed seed set_rng_state", ("B14.seeds", "soft")),
    **_each("torch.cuda", "manual_seed manual_seed_all", ("B14.seeds", "soft")),
    "random.seed": ("B14.seeds", "soft"),
    "numpy.random.seed": ("B14.seeds", "soft"),
    # Work outside Triton
    "scipy": ("A8.host_compute", "soft"),
    "torch.from_numpy": ("A8.host_compute", "soft"),
    "operator.matmul": ("A7.obscured_op", "soft"),
    "torch._C._nn": ("A7.obscured_op", "soft"),
    "torch._C._VariableFunctions": ("A7.obscured_op", "soft"),
    # torch settings that change the numbers or the speed of the whole process
    **_each("torch", "set_num_threads set_num_interop_threads", ("D10.slows_others", "hard")),
    "os.sched_setaffinity": ("D10.slows_others", "hard"),
    "torch.set_float32_matmul_precision": ("D11.precision_flags", "soft"),
    **_each("torch", "set_default_dtype set_default_device", ("D11.precision_flags", "soft")),
    **_each("torch", "is_grad_enabled is_inference_mode_enabled", ("A15.grad_gate", "soft")),
    # Tensors that are not plain
    **_each(
        "torch.Tensor", "_make_subclass _make_wrapper_subclass as_subclass", ("D3.tensor_subclass", "soft")
    ),
    **_each("torch.utils._python_dispatch", "TorchDispatchMode", ("D3.tensor_subclass", "soft")),
    **_each("torch.overrides", "TorchFunctionMode", ("D3.tensor_subclass", "soft")),
    # Printed text may look like a result.
    "builtins.print": ("E3.prints", "soft"),
    **_each("sys", "stdout stderr __stdout__ __stderr__", ("E3.prints", "soft")),
}

KNOWN_MODULES = words(
    "torch math cmath typing typing_extensions functools itertools collections dataclasses enum operator numpy "
    "contextlib warnings os sys time random abc copy logging string re numbers types __future__ packaging inspect "
    "builtins importlib io json hashlib statistics bisect heapq weakref struct textwrap platform fractions decimal "
    "pprint array uuid secrets traceback gc unittest argparse"
)


def rule_for(path: str, language: StaticRules) -> Rule | None:
    """The rule of the longest prefix of a path that has an entry. The language's own come first."""
    while path:
        if path in language.paths:
            return language.paths[path]
        if path in PATHS:
            return PATHS[path]
        path = path.rpartition(".")[0]
    return None


def known_module(name: str, language: StaticRules) -> bool:
    root = name.split(".")[0]
    return root in KNOWN_MODULES or language.owns(name) or rule_for(name, language) is not None


def rule_for_patch(path: str, language: StaticRules) -> Rule | None:
    """The rule for setting the attribute `path` of an outside module; None if that is allowed."""
    root = path.split(".")[0]
    if path.startswith(_SETTINGS) or path.startswith(language.settings):
        return "D11.precision_flags", "soft"
    if root == "time" or path.startswith(("torch.cuda.Event", "torch.cuda.synchronize", "torch.cuda.Stream")):
        return "D5.patches_clock", "hard"
    if path.startswith(
        ("torch.manual_seed", "torch.rand", "torch.Generator", "torch.random", "torch.normal")
    ):
        return "E12.patches_seeds", "hard"
    if root == "torch":
        return "E1.patches_torch", "hard"
    if language.owns(path):
        return language.patched
    if root in ("os", "builtins"):
        return "E7.patches_module", "hard"
    return ("E7.patches_module", "soft") if root in KNOWN_MODULES else None


# Settings of torch that are meant to be set.
_SETTINGS = (
    "torch.backends.",
    "torch._dynamo.config.",
    "torch._inductor.config.",
    "torch._functorch.config.",
    "torch.utils.deterministic.",
)
