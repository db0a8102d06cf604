"""Reads a journal or captures as a table: `spark.read.format("bccn")`.

A file of a journal is a partition. All captures of one host are one, as a verdict depends on earlier datagrams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.journal import layout, reader
from bccnd.journal.captures import CaptureSet, CaptureSettings
from bccnd.journal.reader import Wanted
from bccnd.pipeline.source.filters import take
from bccnd.pipeline.source.options import bad_option


@dataclass
class Partition(InputPartition):
    """A file of a journal, with its records before ``end``; or captures of one host."""

    file: layout.ObsFile | None
    end: int | None = None
    captures: tuple[str, ...] = ()


class _PushFilters:
    """Accepts filters from Spark. Appears to be the method of the base class, since Spark refuses a reader that
    overrides it while ``spark.sql.python.filterPushdown.enabled`` is off (the default)."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return take(self._wanted, filters)


class BatchReader(DataSourceReader):
    """Reads a journal or captures at ``path``; ``captures`` says how captures are checked."""

    def __init__(self, path: str, columns: StructType, captures: CaptureSettings | None) -> None:
        self._path = path
        self._schema = to_arrow_schema(columns, timezone="UTC")
        self._captures = captures
        self._wanted = Wanted()
        self.pushFilters: Any = _PushFilters(self._wanted)

    def partitions(self) -> list[InputPartition]:
        """Raises PipelineError: no_journal, bad_option."""
        place = reader.open_place(self._path)
        paths = reader.find_captures(place, self._path)
        if paths and self._captures is None:
            raise bad_option(f"{self._path} has captures, and the option host is missing", "name their host")
        if paths:
            return [Partition(None, captures=tuple(paths))]
        return [Partition(one.file, one.end) for one in reader.find(place, self._wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)  # noqa: S101 - as planned above
        place, file, wanted = reader.open_place(self._path), partition.file, self._wanted.expression
        if file is not None:
            for batch in reader.rows(place, file, file.first, partition.end, self._schema.names, wanted):
                yield batch.cast(self._schema)
        elif self._captures is not None:
            for table in CaptureSet(partition.captures, self._captures).tables():
                yield from table.filter(wanted).select(self._schema.names).cast(self._schema).to_batches()
