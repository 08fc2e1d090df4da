"""Publishing: rows as a dataset that others can load, with a card that says how it was made."""
