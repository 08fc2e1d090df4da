"""Generation of candidate kernels for problems.

    synthesize   ask a writer for candidates, judge them, write evals rows (`kernelmill synthesize`)
    inductor     a writer that needs no model: torch's Inductor generates the kernels

Problems come in, evals rows go out. `synthesize` uses `inductor` only through `inductor.teacher` and
`inductor.variants`, which import no torch.
"""
