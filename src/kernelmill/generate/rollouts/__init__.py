"""Candidates for problems: somebody writes a Triton version of a module, the evaluator judges it, and both make an evals row.

settings, synth_file   what can be told, and the config file
problems               a row a rollout, of one or several sources
writer, model_writer   who writes: the seam, and a model behind an endpoint
grading                the evaluator, with verdicts kept in the journal
rollout                a conversation: write, judge, say what was wrong, write again
row, keeping           the evals row, and which rollouts become one
statistics             what all rollouts say together
runner                 a run, whoever writes
command                `kernelmill synthesize`
"""
