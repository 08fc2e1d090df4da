"""Rewards for trainers.

    client         client of `kernelmill serve`, with retries: returns a reward, or masked
    shared         one client for the whole process, configured by the environment, for trainer functions
    local          the same results from an evaluator in this process
    slime          reward and generate functions for slime
    trl            reward functions for TRL's GRPOTrainer
    verl           `compute_score` for verl
    verifiers      an environment for the classic interface of verifiers
    taskset        the same for its `v1` interface, which prime-rl trains with
    prompt_rows    reader of the rows that both use
    completions    a trainer's completion as text
    post           one HTTP request with the standard library

A reference and a completion come in, a reward goes out. A reward is a number or None, which means masked: the
candidate could not be judged and is to be left out. A failure is never turned into a number. No trainer is
imported before it is used.
"""
