"""Write parts as files: readable source, the tree and its picture.

In: a tree of `Part`s and the `Record`; for the picture, the finished tree file. Out: texts by path;
`decompose.model_folder` writes them to disk.

    files            all files of a model: `Files`
    emit             the class of one part
    class_body       the state of that class: layers, parameters and buffers; `Weight`
    parents          the class of a part that calls its children
    variables        the variables of a class's `forward`
    example_inputs   the inputs in `get_inputs`
    literals         names and sizes in emitted source
    naming           names of files and classes
    templates        the tests at the end of emitted files
    tree_json        emitted parts, and the tree of them
    tree_file        `decomposition_tree.json` with types, for its readers
    picture          `tree.svg`, and the tree in a terminal
"""
