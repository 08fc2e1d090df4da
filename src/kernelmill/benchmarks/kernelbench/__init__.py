"""A model over KernelBench's levels: `kernelmill bench-model`.

    command   runs `synthesize` for each level, which asks and judges
    results   converts its rows to `eval_results.json`, fast_p and pass@k

A checkout, a folder of levels or the Hub dataset comes in; a folder of results for each level goes out.
"""
