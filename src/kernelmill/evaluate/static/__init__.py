"""Static checks: examine a candidate's source without running or importing it.

In: source text. Out: a `StaticReport` with a status, flags and the kernels that may be launched.

    examine   the entry point; from outside, import only this and `language`
    rules     hard and soft rules on what the code uses or changes, with the table in `paths`
    style     soft rules on how the code is written
    language  what differs from one language of kernels to another
    reach     which code may run and which kernels may be launched
    names     name resolution, on the AST helpers in `syntax`
"""
