"""What follows from a stored verdict: rewards, feedback for a repair turn, summaries. Pure functions; nothing is run."""
