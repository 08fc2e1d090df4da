"""Write parts as files: readable source, the tree, its analysis and its picture.

In: a tree of `Part`s and the `Record`; for the analysis and the picture, the finished tree file. Out: texts
by path; `decompose.model_folder` writes them to disk. Entry points: `files.Files`, `analysis.analysis`,
`picture.svg`, `picture.rich_tree` and the types in `tree_file`. `record` uses `keep_whole` and `literals`.
`emit`, `class_body`, `naming` and `parents` are internal, except `class_body.Weight`.
"""
