"""Run a stranger's code in a process that has no secrets, no network and little else.

    with Isolate() as isolate:
        reply = await isolate.run({"code": code, "entry_point": "Model"})

The parent (`parent`) starts one *server* with an environment made from scratch. The server (`server`) imports
the worker module once (for torch that takes seconds) and forks one *child* a request, which takes
milliseconds. The child gives up what it does not need (`confine`), then calls the worker's `handle(request)`
and writes its reply to a private pipe, behind a nonce, so that nothing it prints can pass for a reply. What it
gives up:

    environment   PATH, LANG, HOME and TMPDIR in a scratch folder of its own, OMP_NUM_THREADS
    files         landlock: reads Python, its packages and the system's libraries; writes its scratch folder
    network       a network namespace of the server's own; seccomp refuses sockets as well
    processes     seccomp: no new process, no program but those named (`programs`), no signal to another process
    resources     rlimits: processor time, memory, file size, open files; no core dump
    disk          its scratch folder is a file system of its own, in memory and of limited size; where that cannot be
                  had, the server looks every 0.2 s at what was written and kills who wrote too much
    privileges    no capabilities, and none to be had (no_new_privs)
    life          a time-out, the server's end or the parent's end (also by kill -9) kills it

A request may have *companions*: further children, each confined in the same way, each with a socket to the child
alone. The worker's `handle(request, sockets)` then talks to its `companion(socket)`, which is how code that nobody
trusts is kept out of the process that judges it. They end with the request.

A child serves one request. With `reuse` it serves several, for work whose start is dear (a CUDA context): until the
worker's `reusable()` says no, a request fails, or it has served enough. What an earlier request left in the process is then
there for the next one, so this is for children that keep strangers' code to their companions, or can tell that nothing
was changed.

What a machine cannot give is not silently missing: `what_is_missing` names it. A child in which a protection
fails that the server has found to work runs nothing.

Not covered: a child can lie about the code it ran, for that code shares its process; and flaws of the kernel or the
processor are what they are.

The server imports this package before its worker: only the standard library and `kernelmill.errors` may be
imported here.
"""

from kernelmill.sandbox.parent import (
    CHILD_PATH,
    OVERDUE,
    START_SECONDS,
    Doing,
    Isolate,
    Reply,
    what_is_missing,
)
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
    "Isolate",
    "Reply",
    "what_is_missing",
]
