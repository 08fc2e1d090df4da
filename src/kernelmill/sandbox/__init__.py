"""Run untrusted code in a sandboxed process without secrets, network or other privileges.

    with Sandbox(worker) as sandbox:
        reply = await sandbox.run({"code": code, "entry_point": "Model"})

The parent (`parent`) starts one *server* with a minimal environment. The server (`server`) imports the worker
module once, which takes seconds for torch. It then forks one *child* per request, which takes milliseconds.
The child drops its privileges (`confine`), calls the worker's `handle(request)` and writes the reply to a
private pipe behind a nonce, so nothing it prints can pass for a reply. The restrictions:

    environment   PATH, LANG, HOME and TMPDIR in a scratch folder of its own, OMP_NUM_THREADS
    files         landlock: read Python, its packages and the system libraries; write the scratch folder
    network       a network namespace of the server's own; seccomp also refuses sockets
    processes     seccomp: no new process, no program except `programs`, no signal to another process
    resources     rlimits: CPU time, memory, file size, open files; no core dump
    disk          the scratch folder is a tmpfs of limited size; where it cannot be mounted, the server checks
                  every 0.2 s how much was written and kills a child over the limit
    privileges    no capabilities, and no way to gain any (no_new_privs)
    lifetime      killed on timeout, and when the server or the parent ends (also by kill -9)

A request may have *companions*: further children, confined in the same way, each with a socket to the
request's child only. The worker's `handle(request, sockets)` talks to its `companion(socket)`. This keeps
untrusted code out of the process that judges it. A child may ask for one more
(`inside.server.new_companion`). Companions end with the request.

A child serves one request. With `reuse` it serves several, for work with an expensive start-up (a CUDA
context): until the worker's `reusable()` returns False, a request fails, or the limit is reached. State left
in the process by one request is visible to the next. Use it only for children that run untrusted code in
their companions, or that can detect whether anything was changed.

`what_is_missing` lists the protections that the machine does not support. A child runs nothing if a
protection fails that the server has found to work.

Not covered: a child can lie about the code it ran, because that code shares its process. Kernel and CPU
vulnerabilities are out of scope.

The modules:

    parent, reply               `Sandbox`, and the outcome of a request
    pool                        one sandbox for each set of environment variables
    wire                        the protocol between parent and server
    server, server_child        the server, and a child as the server sees it
    huge_pages                  cheap forks
    gpu_lock                    who may use the GPU, alone or together with others
    ending, scratch, own_time   end processes; the scratch folder; time without waiting for a CPU
    child, confine              a child's code, and how it drops its privileges
    inside, alarm               what a worker can use: the channel to the server, limits on a step
    gpu_vendors                 device files, variables and programs of a vendor's GPUs

From outside, import only the names below, `pool`, `own_time` and `gpu_vendors`, and in a worker `inside` and
`alarm`. The server imports this package before its worker, so it may import only the standard library,
`kernelmill.base.missing` and `kernelmill.errors`.
"""

from kernelmill.sandbox.parent import CHILD_PATH, START_SECONDS, Sandbox, what_is_missing
from kernelmill.sandbox.reply import OVERDUE, Doing, Reply
from kernelmill.sandbox.wire import MAX_OUTPUT, MAX_REPLY, MAX_REQUEST, MAX_SCRATCH

__all__ = [
    "CHILD_PATH",
    "MAX_OUTPUT",
    "MAX_REPLY",
    "MAX_REQUEST",
    "MAX_SCRATCH",
    "OVERDUE",
    "START_SECONDS",
    "Doing",
    "Reply",
    "Sandbox",
    "what_is_missing",
]
