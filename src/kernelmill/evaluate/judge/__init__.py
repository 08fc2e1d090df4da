"""The judge and the candidate, in two processes: what they say to each other, and whether an answer is right.

`worker`, `session` and the comparisons run on the judge's side; `candidate`, `guard` and `interpreted` in the candidate's process,
whose word proves nothing by itself.
"""
