"""Model calls: ask an OpenAI-compatible endpoint many questions and never lose a paid answer.

In: a stage's questions (`engine.Asking`) and settings. Out: answers in a journal, and an outcome per
question.

    engine              answers a stage's questions: retries, unusable answers, the circuit breaker
    client              builds, hashes and sends one request, and classifies its failure
    journal             stores every answer durably; only `Journal` writes the file
    limiter, retry      calls in flight, call rate and pauses
    budget, unusable    stop at `--max-cost`, or for a model that cannot do the job
    structured          answers in JSON: the schema to send, and the validation
    prompts, command    prompt templates, and `kernelmill journal`
"""
