"""`kernelmill synthesize`: candidates for problems, written and judged in rollouts.

A writer (a model, or the compiler) writes a Triton version of a module, and the evaluator judges it. A rollout
is one such conversation: after a wrong answer the writer gets feedback and writes again.

    command                        the command
    settings, config_file          the settings, and the config file
    problems                       one row a rollout, from one or several sources
    writer                         the interface of a writer
    model_writer, teacher_writer   the writers: a model behind an endpoint, and the Inductor compiler
    grading                        the evaluator, with verdicts stored in the journal
    rollout                        a conversation: write, judge, send feedback, write again
    row, row_filter                the evals row, and the stage that decides which rollouts become one
    statistics                     pass@k, failures and costs over all rollouts
    runner                         one run, for any writer

Problems come in, evals rows go out. Answers and verdicts are stored only through the journal.
"""
