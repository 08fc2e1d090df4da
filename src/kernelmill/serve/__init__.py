"""The evaluator behind HTTP, for trainers: `kernelmill serve`.

    command    flags, the socket, signals, the start and the end
    gate       what every request goes through first: token, size, how many at once; the log and the counts after it
    app        the endpoints
    pages      `/` and `/docs`, for people
    bodies     what they take, and what `/eval` answers
    service    the queue: how many are judged at once, what is judged only once, what is remembered
    known      a pair whose verdict is known, judged before the service says that it is ready
    metrics    what was counted, in Prometheus' text format

A request's code never runs in this process: `kernelmill.evaluate` sees to that. What is not here: TLS, users and
quotas (put a proxy in front), and any store of verdicts that outlives the process.
"""
