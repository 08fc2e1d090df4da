"""Rollouts for problems: `kernelmill synthesize`.

A writer writes a Triton version of a module, and the evaluator judges it.

    command                        the command
    settings, synth_file           the settings, and the config file
    problems                       one row a rollout, from one or several sources
    writer                         the interface of a writer
    model_writer, teacher_writer   the writers: a model behind an endpoint, and the Inductor compiler
    grading                        the evaluator, with verdicts stored in the journal
    rollout                        a conversation: write, judge, send feedback, write again
    row, row_filter                the evals row, and which rollouts become one
    statistics                     pass@k, failures and costs over all rollouts
    runner                         one run, for any writer

Problems come in, evals rows go out. Answers and verdicts are stored only through the journal.
"""
