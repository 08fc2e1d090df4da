"""Running a stage: from its settings to its output file.

`cli` -> `call.call_stage` -> the stage's function in `flow` -> `run_answering_stage` (rows need an answer) or
`run_row_stage` (they do not).

    call, source_choice   a stage's settings and its run; which source it reads
    run_stage, answering  stages whose rows need an answer: plan, answer, write
    row_stage             stages that only transform rows
    progress, show        the progress line; `kernelmill show`

In: settings and a source. Out: an output file, its rejected rows, and its manifest, written last. What a
stage does with a row is in the stage's own module. `kernelmill run`, which runs several stages, is in
`pipeline`.
"""
