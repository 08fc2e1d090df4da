"""Candidates for problems: `rollouts` asks a writer and judges what it wrote, `inductor` is the writer that needs no model."""
