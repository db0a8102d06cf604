"""Where Spark looks for the data source `bccn`: it imports every top-level module called ``pyspark_...``."""

from bccnd.pipeline.source.bccn import BccnSource as DefaultSource

__all__ = ["DefaultSource"]
