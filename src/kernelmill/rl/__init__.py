"""The reward where the trainer is.

    client         asks `kernelmill serve`, again where that is worth it, and says reward or masked
    shared         one client for the whole process, from the environment: what the trainers' functions use
    local          the same results from an evaluator of this process
    slime          reward and generate functions for slime
    trl            reward functions for TRL's GRPOTrainer
    verl           `compute_score` for verl
    verifiers      an environment for the classic interface of verifiers
    taskset        the same for its `v1` interface, which prime-rl trains with
    prompt_rows    the rows that both read
    completions    what trainers call a completion, as text
    background     an event loop in a thread of its own

A reward is a number or None, which is masked: nobody could judge that candidate, and it is to be left out. Trouble on the
way is never a number. Nothing here imports a trainer before it is used.
"""
