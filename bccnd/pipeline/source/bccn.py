"""Registers the data sink `bccn`: `df.write.format("bccn")`; docs/captures.md has its options."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from bccnd.pipeline.source.sink import SinkSettings, Writer, bad_option, read_settings


class BccnSource(DataSource):
    """Publishes rows. A journal is Parquet, so Spark reads it without this."""

    @classmethod
    def name(cls) -> str:
        return "bccn"

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: N802 - Spark's name
        return Writer(self._sink(schema, overwrite, "path", "checkpointLocation"))

    def _sink(self, schema: StructType, overwrite: bool, *more_options: str) -> SinkSettings:
        if overwrite:
            raise bad_option("messages cannot be overwritten", 'write .mode("append")')
        return read_settings(self.options, schema, *more_options)
