"""The dataset card. In: facts of a run. Out: `README.md` with the Hub's metadata, tables and plots; what is not known is said to be unknown."""
