"""Problems: where modules come from, and what is known about one without asking a model.

    open_set                          open a problem set by name or location
    benchmark, benchmark_rows         benchmarks to compare with, and detection of benchmark rows
    module_rows, module_file          the module in a row, and in a problem file
    source, definitions, reached      facts from the source text: what it defines, and what `forward` reaches
    facts, analysis                   facts from a trace, and answers from facts alone
    trace_worker                      the traced process (imports torch)
    similarity                        near duplicates, and copies of problems
    sets                              imported problem sets (`kernelmill problems`)

Rows and source texts come in; modules, facts and matches go out. A problem's code is executed only by workers
in `kernelmill.sandbox`: call `module_file.load` and `trace_worker.handle` nowhere else.
"""
