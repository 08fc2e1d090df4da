"""Foundations that every other package uses: rows, answers, locks, terminal output, worker processes, Python parsing.

Imports nothing else of kernelmill but `errors`. The modules that `evaluate` and `rl` use need only the standard library.

    rows, answers, task_rules       row formats, the code in a model's answer, the rules quoted in prompts
    control, progress, counting     run control and progress display
    locks, whole_file, parallel, no_gc      one writer per file, atomic writes, worker processes, GC off
    terminal, bar_chart, python_text, resources, extras, missing    output, parsing, bundled files, hints for users
"""
