"""Task specifications, written by a model or from a trace, and checked against the trace if there is one.

In: rows with a module. Out: rows with a specification as `prompt`.

    stage       the command `kernelmill specs`
    writer      write a specification from a trace
    checks      everything a specification must satisfy; uses hints, shapes and text
    hints, shapes, text     implementation hints; shapes and dtypes; parsing of the text
"""
