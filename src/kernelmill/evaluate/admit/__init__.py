"""Task admission: find tasks that accept a candidate which does not compute them.

In: references. Out: one row per problem, with `admitted`, `reasons` and `details`.

    command   `kernelmill admit`, and the only module for use outside a sandboxed process
    worker    the sandboxed process that tries one problem
    cheats    the cheating candidates, and the honest ones that must pass
    cases     the calls they are tried on, with the right answers
"""
