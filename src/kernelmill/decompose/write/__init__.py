"""Parts as files: source that a person could have written, the tree, its analysis and its picture.

In: a tree of parts. Out: texts by path. Who puts them on the disk is `decompose.model_folder`.
"""
