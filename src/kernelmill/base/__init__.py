"""What everything else stands on: rows, answers, locks, the terminal, Python text.

Imports nothing of ours but `errors`. What `evaluate` and `rl` use of it needs the standard library alone.
"""
