"""The GPU tiers: judge and time candidates on a device.

In: a reference and a candidate. Out: a record of the checks, times and baselines. The server (`sandbox`)
grants the lock of the GPU, and `gpu_memory` shares out its memory.

    gpu_judges   one GPU as the orchestrator sees it: requests, baselines, health
    gpu_memory   which tasks may be on the GPU together
    judge        the worker that judges; it talks to a candidate by `session`, which `runtime` answers
    arena        GPU memory shared between the judge and the candidate
    stopwatch    timing, with `clock`, `plan`, `ratio`, `wall_clock` and `baselines`

From outside, import only `gpu_judges` (the orchestrator), `gpu_memory` (`task.reference`) and `session`
(`probes.on_gpu`). `gpu_judges`, `gpu_memory`, `plan`, `ratio` and `wall_clock` import no torch.
"""
