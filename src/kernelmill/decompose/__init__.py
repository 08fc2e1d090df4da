"""Decompose a model into layers, fusions and kernels, each a problem of its own, and prove the result.

In: models (files, importable classes, transformers configurations). Out: one folder per model with its parts,
the tree, and the proof that the parts compute what the model computes. The stages, in the order data flows:

    sources   which models to decompose, and their source text
    record    one run of the model, recorded call by call
    cut       the record partitioned into a tree of parts
    write     the parts as source files, with the tree and its picture
    prove     the proof, from the files alone

A stage imports from the stages above it only, and `prove` only from `sources` and `record`. `literals`,
`levels`, `nested` and `errors` belong to several stages. What runs the stages:

    command        `kernelmill decompose`; `kernelmill prove` is `prove.command`
    batch          many models: decompose, prove, resume (`resume`), one folder for each
    worker         record, cut and write one model; run it only in a sandboxed process
    model_folder   write a worker's reply to the folder of its model
    analysis       `decomposition_analysis.md`, the report on one model
    collect        `kernelmill collect`: the distinct proven parts of many models

Other packages use only `collect`, `prove.command.model_folders` and `prove.tree.TREE`.
"""
