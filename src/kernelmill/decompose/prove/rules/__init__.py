"""What the files of a decomposition may contain, checked on their syntax trees. Nothing is run.

In: the text of a file. Out: one line for each violation, with its line number.

    syntax       parse a file; the expressions that several rules recognise
    parent       a parent: it only calls its children
    child        a self-contained file: it only computes
    single_path  a self-contained file has only one code path (imports torch: in a sandboxed process only)
    torch_names  which names of torch give tensors, for `single_path`
"""
