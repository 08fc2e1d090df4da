"""Which NVIDIA devices there are, as the driver says: without torch, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from kernelmill.errors import ConfigError
from kernelmill.evaluate.evaluator import Options

_ASK = """
import ctypes, json
names, number = [], ctypes.c_int()
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    cuda = None
if cuda is not None and cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    for place in range(number.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        cuda.cuDeviceGet(ctypes.byref(device), place)
        cuda.cuDeviceGetName(name, 256, device)
        names.append(name.value.decode("utf-8", "replace"))
print(json.dumps(names))
"""
_SECONDS = 60


def visible() -> list[str]:
    """The names of the devices, by number; CUDA_VISIBLE_DEVICES counts."""
    try:
        asked = subprocess.run([sys.executable, "-I", "-c", _ASK], capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the NVIDIA driver did not answer in {_SECONDS} s: try nvidia-smi") from None
    if asked.returncode:
        raise ConfigError(f"the NVIDIA driver could not be asked (status {asked.returncode}): try nvidia-smi")
    return [str(name) for name in json.loads(asked.stdout)]


def check(options: Options) -> None:
    """Refuse what needs a device that is not there. Does not ask where nobody needs one."""
    timed = options.tier in ("gpu", "gpu_timed")
    if timed and options.device == "cpu":
        raise ConfigError(f"--tier {options.tier} needs a GPU, and --device cpu has none")
    if options.devices and (options.device == "cpu" or options.tier in ("static", "interpreter")):
        raise ConfigError("--devices names GPUs, and nothing here runs on one")
    if not (timed or options.device == "cuda" or options.devices):
        return
    names = visible()
    asked = (
        f"--tier {options.tier}" if timed else "--device cuda" if options.device == "cuda" else "--devices"
    )
    if not names:
        raise ConfigError(f"{asked} needs an NVIDIA GPU, and none is visible here: try --device cpu")
    if absent := [number for number in options.devices if number >= len(names)]:
        raise ConfigError(f"--devices {absent[0]}: there are {len(names)}, numbered from 0")
