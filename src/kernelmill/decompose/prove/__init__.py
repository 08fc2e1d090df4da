"""The proof that decomposed files compute what the model does, from the files alone.

In: a folder of a decomposed model, ours or anybody's. Out: verification results. Does not trust, and does not import, what wrote the files:
of the rest of `decompose` only the tree's format is shared.
"""
