"""Counting tokens as a trainer would: vocabularies, chat templates, rows as chats.

In: rows with messages and the name of a tokenizer. Out: exact counts. Loads neither torch nor transformers.
"""
