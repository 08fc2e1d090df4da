"""Prove from the files alone that a decomposed model computes what the model computes.

In: the folder of a decomposed model, ours or anybody's. Out: verification results in that folder, and a
`Proof`. The proof does not trust the code that wrote the files: no module below imports `cut` or `write`, and
`tree` reads the tree's format on its own. Only `command`, which decides nothing, also updates the manifest by
`decompose.model_folder`.

    command      the command line of `prove`
    prover       prove a folder: `Prover`, `prove_folder`, `Proof`
    tree         read and check the tree and its files; run nothing
    rules        what a parent and a self-contained file may contain
    uses         check each file against its use in the model; which parts are proven

In a sandboxed process only, because these execute untrusted code:

    worker       prove one claim
    files        check one self-contained file
    build        build both sides of a claim, and look up their tensors
    trace        run a side, and record its operations
    op_recorder  the operations of one run
    operations   compare the operations of both sides
    sizes        smaller sizes at which a claim is compared
    numbers      compare the numbers of both sides
    values       inputs, weights and comparisons
"""
