"""Registers the data source `bccn`; docs/captures.md has its options."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bccnd.core.trust.integrity import usual_algorithm
from bccnd.errors import BadKey
from bccnd.journal import schema as journal_schema
from bccnd.journal.capture_import import CaptureSettings
from bccnd.key_files import read_key
from bccnd.pipeline.source.batch import BatchReader
from bccnd.pipeline.source.options import Options, bad_option
from bccnd.pipeline.source.sink import OPTIONS, SinkSettings, Writer, read_settings
from bccnd.pipeline.source.stream import StreamReader

#: the columns of rows
OBS: Final = from_arrow_schema(pa.schema([field for field in journal_schema.OBS if field.name != journal_schema.SHARE]))
_CAPTURES: Final = ("host", "port", "segment", "keys", "algorithm", "required")
_STREAM: Final = ("maxRecordsPerBatch", "patience")


class BccnSource(DataSource):
    """``path`` is a journal, a capture, or a folder of captures."""

    @classmethod
    def name(cls) -> str:
        return "bccn"

    def schema(self) -> StructType:
        return OBS

    def reader(self, schema: StructType) -> BatchReader:
        options = Options(self.options, ("path", *_CAPTURES))
        return BatchReader(options.path(), schema, _captures(options))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        options = Options(self.options, ("path", *_STREAM))
        most = int(options.number("maxRecordsPerBatch", 0, 1, 10**12))
        return StreamReader(options.path(), schema, most, options.number("patience", 600.0, 0.0, 10**9))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: N802 - Spark's name
        return Writer(self._sink(schema, overwrite, "path", "checkpointLocation"))

    def _sink(self, schema: StructType, overwrite: bool, *more_options: str) -> SinkSettings:
        if overwrite:
            raise bad_option("messages cannot be overwritten", 'write .mode("append")')
        return read_settings(Options(self.options, (*more_options, *OPTIONS)), schema)


def _captures(options: Options) -> CaptureSettings | None:
    """Read how captures are checked; None if no host is given. Raises PipelineError: bad_option."""
    host = options.text("host")
    if not host:
        return None
    paths = [path for path in options.text("keys").split(",") if path]
    algorithm = options.one_of("algorithm", ("none", "crc32", "hmac"), usual_algorithm(paths, ()))
    port, segment = int(options.number("port", 5400, 1, 65_535)), options.text("segment", "capture")
    try:
        keys = tuple(read_key(path) for path in paths)
        settings = CaptureSettings(host, port, segment, algorithm, keys, required=options.flag("required"))
        settings.checker()
    except (BadKey, ValueError) as error:
        raise bad_option(str(error).splitlines()[0], "see the options keys and algorithm") from error
    return settings
