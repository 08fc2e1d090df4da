"""Prove from the files alone that a decomposed model computes what the model computes.

In: the folder of a decomposed model, ours or anybody's. Out: verification results in that folder, and a
`Proof`. The proof does not trust the code that wrote the files: it imports nothing from `cut` or `write`, and
`tree` reads the tree's format on its own. `tree`, `source` and `child` check text and run nothing. Everything
from `worker` down (`build`, `trace`, `record`, `numbers`, `values`, `files`, `intact`) runs in a sandboxed
process only. From outside, use `prover` (`Prover`, `prove_folder`, `Proof`), `command.model_folders`, and the
names in `tree`.
"""
