"""The dataset card.

In: the facts of a run (`CardFacts`). Out: `README.md` with the Hub's metadata, and the SVG plots it shows.
Unknown facts are stated as unknown, never guessed.

    facts               the facts, and the counts collected over the rows
    card                build the card from the facts; the entry point is `make_card`
    words, tables       the sentences and tables that depend on the facts
    markdown            escape untrusted values
"""
