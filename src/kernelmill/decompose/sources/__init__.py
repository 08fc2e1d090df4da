"""Which models to decompose: problem files and folders, importable classes, configurations of transformers.

Out: a `ModelFile` with the model's text in one piece. Nothing of the model is run here.
"""
