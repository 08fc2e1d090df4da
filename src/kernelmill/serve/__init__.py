"""The evaluator behind HTTP, for trainers: `kernelmill serve`.

    command     flags, the socket, signals, start and shutdown
    arrival     the connection: a request's headers have to come in time
    gate        ASGI middleware for every request: token, body size, open requests; then log and counters
    app         the endpoints
    pages       `/` and `/docs`, for people
    bodies      request bodies, and the response of `/eval`
    service     the queue: concurrency, deduplication and the verdict cache
    self_test   a pair with a known verdict, judged before the service reports that it is ready
    metrics     counters, for `prometheus_client`

Requests with a reference and a candidate come in, verdicts and rewards go out. A request's code never runs in
this process: `kernelmill.evaluate` runs it in a sandbox. Not included: TLS, users and quotas (put a proxy in
front), and a verdict store that outlives the process.
"""
