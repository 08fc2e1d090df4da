"""Sets of problems: in from KernelBench and others, checked; out as prompts for RL trainers, merged and verified."""
