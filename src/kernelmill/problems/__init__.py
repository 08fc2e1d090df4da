"""Problems: where modules come from, and what is known about one without asking a model.

    benchmark, benchmark_rows         benchmarks to compare with, and detection of benchmark rows
    module_rows, module_file          the module in a row, and in a problem file
    source, facts, analysis           facts from the source text, from a trace, and answers from facts alone
    trace_worker                      the traced process (imports torch)
    structure, operations             a module's code without its names, and the operations it computes
    modules, overlap, each_text       near duplicates, copies of problems, work on distinct texts
    sets                              imported problem sets (`kernelmill problems`)

Rows and source texts come in; modules, facts and matches go out. A problem's code is executed only by workers
in `kernelmill.sandbox`: call `module_file.load` and `trace_worker.handle` nowhere else.
"""
