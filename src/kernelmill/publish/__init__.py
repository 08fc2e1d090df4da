"""Publishing: rows as a dataset in a folder or on the Hub, with a card that says how it was made.

In: the rows of a source and the manifests beside it. Out: Parquet files by split, `README.md`,
`kernelmill.json`.

    command, jobs                   the command `kernelmill publish`: which source goes where
    dataset                         build all files, with the four lines below
    splits                          which rows are for validation
    schema, batches                 columns and their types; rows as Arrow batches
    parquet_writer                  Parquet files
    lineage                         the earlier stages that made the source
    card, rebuild                   the dataset card, and the commands that rebuild the dataset
    target, folder, hub, changes    where the dataset goes, and what would change there

Only the targets (`folder`, `hub`) change a published dataset, atomically and as a whole.
"""
