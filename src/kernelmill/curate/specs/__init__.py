"""Task specifications, written by a model or from a trace, and checked against the trace if there is one.

In: rows with a module. Out: rows with a specification as `prompt`.

    stage           the command `kernelmill specs`
    specification   the structure of a specification, as text and as JSON
    writer          write a specification from a trace
    checks          everything a specification must satisfy; `shapes` compares shapes and dtypes
"""
