"""What recorders of torch's calls share. Imports only the standard library and torch.

    tensors     the tensors inside nested values, and their dtypes as text
    recorder    recorders of operations: FLOPs, and calls that count as one operation
    snapshot    detect a run that changes torch
    op_kinds    the kind of an ATen operation; importable without torch

A dispatch or function mode belongs to the package that uses what it sees. It takes its rules from here, so
that an operation counts the same everywhere.
"""
