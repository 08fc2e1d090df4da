"""Foundations that every other package uses: rows, answers, locks, terminal output, worker processes.

Imports nothing else of kernelmill but `errors`. The modules that `evaluate` and `rl` use need only the
standard library.

    rows, columns                   row formats: what stages read of them, and every column's type and meaning
    answers, task_rules             the code in a model's answer, the rules quoted in prompts
    control                         counters of a run, and how it stops
    locks, whole_file               one writer per file, atomic writes
    parallel, no_gc                 worker processes, garbage collector off
    event_loop_thread               an event loop in its own thread
    terminal, bar_chart             output formatting
    python_text, resources          parsing and formatting Python, bundled files
    problem_layout                  folders of problem files, and how to make KernelBench's
    missing                         how to install a missing package
"""
