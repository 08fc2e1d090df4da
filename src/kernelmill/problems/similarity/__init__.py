"""Similarity of modules as code: near duplicates among rows, and copies of benchmark problems.

    normal_form, statements   a module's code as tokens without its own names, and what is left out of it
    structure                 the hash and the shingles of those tokens
    operations                the operations that a module computes, in order
    modules                   groups of near duplicates
    overlap                   which problems of a benchmark a module contains
    each_text                 work on distinct texts, in several processes

Source texts come in; keys, groups and matches go out. Nothing is executed.
"""
