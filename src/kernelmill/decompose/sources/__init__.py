"""Find the models to decompose, and their source text.

In: what the command line names. Out: `ModelFile`s, each the source of one model as a single text. No code of
the model runs here.

    problem_files   problem files and folders of them; `ModelFile`
    importable      a class that can be imported (`--module`)
    hf              a transformers configuration (`--hf-config`)
    local_imports   inlines the local modules that a source imports
    source_parts    extracts parts of a source for emitted files
"""
