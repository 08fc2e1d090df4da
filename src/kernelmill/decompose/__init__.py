"""Decompose a model into layers, fusions and kernels, each a problem of its own, and prove the result.

In: models (files, importable classes, transformers configurations). Out: one folder per model with its parts,
the tree, and the proof that the parts compute what the model computes. The stages, in the order data flows:

    sources   which models to decompose, and their source text
    record    one run of the model, recorded call by call
    cut       the record partitioned into a tree of parts
    write     the parts as source files, with the tree and its picture
    prove     the proof, from the files alone

A stage imports from the stages above it only, and `prove` only from `sources` and `record`. `literals`,
`levels`, `nested` and `errors` belong to several stages.

`command`, `prove.command` and `collect` are the command line. Other packages use only `collect`,
`prove.command.model_folders` and `prove.tree.TREE`. Run `worker` only in a sandboxed process.
"""
