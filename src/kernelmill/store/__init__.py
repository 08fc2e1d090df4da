"""Row storage: one reader for every kind of source, one writer for every output.

In: the name of a source (file, folder, Hub dataset, bundled data). Out: `Row` objects in order; and, on the
writing side, the kept rows, the rejected rows and a manifest.

    source, parquet, hub, hub_http      reading, and downloads from the Hub
    progress_source                     a source that shows how far it was read
    output, row_file, manifest          writing, and finding manifests again

Only `Output` writes an output's files: a manifest there means that the output is complete.
"""

from kernelmill.store.output import Output
from kernelmill.store.source import Source, open_source

__all__ = ["Output", "Source", "open_source"]
