"""One H100 on a machine without a GPU: everything is in the CPU's memory and only looks like CUDA.

    device     the GPU as torch and Triton describe it, and torch.cuda's answers about it
    driver     Triton's driver for it, which never touches a device
    cuda       torch as GPU code expects it: torch.cuda works, and tensors report that they are on cuda:0
    host       which tensors would be in host memory
    streams    streams and events, and which launches have been waited for

The interpreter runs kernels on it, and `compile.source` executes a candidate's module on it. Inductor
(`generate.inductor.fake_gpu`) does without `cuda` and `host`: its tensors have no memory at all. The `install`
functions patch torch and Triton permanently, so call them only in a process of your own.
"""
