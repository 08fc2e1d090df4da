"""A candidate's call as a program: recorded in its process, run in one that never loads the candidate.

In: a model that is built and called while a `Recorder` watches. Out: a `Trace`, which is data: the tensors
that the program starts from, torch operations, and launches with the text of each kernel. `Replayer` runs it
on any inputs. What a trace does not hold (torch with its modes off, numpy, another thread) is not in the
replay either, so its result is wrong on inputs that the candidate has not seen.

    steps          what a trace consists of, and its limits
    kernel_text    a kernel with all that the compiler would resolve, as data and back
    recorder       make a trace
    replayer       run one
    saving         traces as files
    candidate      both as requests of the judge, whose side is `judge.replaying`
"""
