"""Curation: select, rate, strip, deduplicate and measure rows, and write task specifications.

In: rows of a source. Out: kept rows, rejected rows with reasons, and a manifest; `lengths` writes a report
instead.

    rate, difficulty, static_rater      reward threshold and difficulty rating
    unique, decontaminate, strip        duplicates, benchmark problems, reasoning
    lengths, length_report              token counts and recommended `seq_len`
    specs                               task specifications
    thoughts                            remove thoughts from an answer

Stages add columns and drop rows. Only `strip` rewrites existing values, and `specs` builds new rows.
"""
