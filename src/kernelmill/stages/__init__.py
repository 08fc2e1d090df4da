"""Running stages: batches of questions (plan, answer, write), stages that only transform rows, and `kernelmill run`.

In: settings and a source. Out: an output file, its rejected rows and its manifest, written last. What a stage does with a row stands
with the stage, not here.
"""
