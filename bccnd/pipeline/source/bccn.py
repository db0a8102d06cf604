"""The data source itself: what Spark finds by the name `bccn`.

Law: here options become parts, and nothing else happens. See docs/captures.md for what can be said.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bccnd.core.integrity import usual_algorithm
from bccnd.journal import schema as journal_schema
from bccnd.pipeline.captures import CaptureSettings
from bccnd.pipeline.source.batch import BatchReader
from bccnd.pipeline.source.options import Options, bad

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

#: the columns of rows
OBS: Final = from_arrow_schema(journal_schema.OBS)
_CAPTURES: Final = ("host", "port", "segment", "keys", "algorithm", "required")
_STREAM: Final = ("maxRecordsPerBatch", "patience")
_SINK: Final = ("socket", "key", "rate", "dryRun", "checkBytes", "job", "summary")


class BccnSource(DataSource):
    """``path`` is a journal, a capture, or a folder of captures."""

    @classmethod
    def name(cls) -> str:
        return "bccn"

    def schema(self) -> StructType:
        return OBS

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options(_plain(self.options), ("path", *_CAPTURES))
        path = options.required("path", "write .load(PATH)")
        return BatchReader(path, schema, _captures(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from bccnd.pipeline.source.stream import StreamReader

        options = Options(_plain(self.options), ("path", *_STREAM))
        return StreamReader(
            options.required("path", "write .load(JOURNAL)"),
            schema,
            int(options.number("maxRecordsPerBatch", 0, 1, 10**12)),
            options.number("patience", 600.0, 0.0, 10**9),
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from bccnd.pipeline.source.sink import Writer, read_settings

        if overwrite:
            raise bad("what was published cannot be overwritten", 'write .mode("append")')
        return Writer(read_settings(Options(_plain(self.options), _SINK), schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from bccnd.pipeline.source.sink import StreamWriter, read_settings

        if overwrite:
            raise bad("what was published cannot be overwritten", 'write .outputMode("append")')
        return StreamWriter(
            read_settings(Options(_plain(self.options), ("path", "checkpointLocation", *_SINK)), schema)
        )


def _plain(options: MutableMapping[str, str]) -> dict[str, str]:
    return {str(name): str(value) for name, value in options.items()}


def _captures(options: Options) -> CaptureSettings | None:
    """How captures are judged; None where no host was named. Raises PipelineError: bad_option."""
    from bccnd.client.keys import read_key
    from bccnd.errors import BadKey

    host = options.text("host")
    if not host:
        return None
    paths = [path for path in options.text("keys").split(",") if path]
    algorithm = options.one_of("algorithm", ("none", "crc32", "hmac"), usual_algorithm(paths, ()))
    try:
        settings = CaptureSettings(
            host,
            port=int(options.number("port", 5400, 1, 65_535)),
            segment=options.text("segment", "capture"),
            algorithm=algorithm,
            keys=tuple(read_key(path) for path in paths),
            required=options.flag("required"),
        )
        settings.door()
    except (BadKey, ValueError) as error:
        raise bad(str(error).splitlines()[0], "see the options keys and algorithm") from error
    return settings
