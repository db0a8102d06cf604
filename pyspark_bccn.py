"""Where Spark looks for the data source `bccn`: it imports every top-level module called ``pyspark_...``."""

import contextlib

# Without what it takes there is no such source, and Spark's others must not suffer from that.
with contextlib.suppress(ImportError):
    from bccnd.pipeline.source.bccn import BccnSource as DefaultSource

__all__ = ["DefaultSource"]
