"""From evaluated samples to good rows: threshold, difficulty, specifications."""
