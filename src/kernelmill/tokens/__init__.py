"""Exact token counts of rows, as a trainer would count them. Loads neither torch nor transformers.

In: rows with messages, and the name of a tokenizer. Out: token counts and rendered chats, never token ids.

    tokenizer_files     find or download a tokenizer
    chat_rows           read a row as a chat
    chat_template       render a chat
    chat_tokens         load a tokenizer: a vocabulary and its chat templates
    text_tokens, vocabulary     count a text's tokens; the embedded Qwen vocabulary
"""
