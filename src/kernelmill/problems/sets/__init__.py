"""Imported problem sets: `kernelmill problems import|list|show|stats|export|merge|verify`.

    command                           flags and printing
    problem, importing, folder        a problem, the import, and the folder of an imported set
    checks, check_worker              the check of each problem at import, in sandboxed workers
    listing, distribution             an imported set for people, and the distribution of a merged one
    export, trainers, rl_rows         prompts for RL trainers, the formats, and the rows that slime reads
    levels, merge, verify             the level files, merging them, and verifying a merged file

Problems from KernelBench and other sources come in; level files of RL prompts go out. Only `folder` writes to
a set's folder, and the worker runs only in `kernelmill.sandbox`.
"""
