"""`spark.read.format("bccn")`: a journal or captures as a table.

Law: one partition for each file of a journal that can have rows that are wanted; captures of one host are one
partition, as what becomes of a datagram depends on those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.core.capture import Tally
from bccnd.errors import PipelineError
from bccnd.journal import files, layout
from bccnd.pipeline.captures import FIRST, CaptureSet, CaptureSettings, no_bccn, observations, parts
from bccnd.pipeline.source import journals
from bccnd.pipeline.source.filters import take
from bccnd.pipeline.source.wanted import Wanted


@dataclass
class FilePartition(InputPartition):
    """A file of a journal."""

    file: layout.ObsFile


@dataclass
class CapturePartition(InputPartition):
    """Captures of one host, read as one."""

    paths: tuple[str, ...]


class _Push:
    """What Spark calls to hand filters over. It refuses a reader that takes filters while
    ``spark.sql.python.filterPushdown.enabled`` is off, as it is at first; ours gives the same rows without them, only
    later, and so says that it does not."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return take(self._wanted, filters)


class Shaper:
    """Rows as Spark has asked for them: its columns, in its order, of its types."""

    def __init__(self, columns: StructType) -> None:
        self._schema = to_arrow_schema(columns, timezone="UTC")

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [batch.column(field.name).cast(field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class BatchReader(DataSourceReader):
    """Reads what stands at ``path``. ``captures`` says how captures are judged, if that is what is there."""

    def __init__(self, path: str, columns: StructType, captures: CaptureSettings | None) -> None:
        self._path = path
        self._columns = columns
        self._captures = captures
        self._wanted = Wanted()
        self.pushFilters: Any = _Push(self._wanted)

    def partitions(self) -> list[InputPartition]:
        """Raises PipelineError: no_journal, bad_option."""
        filesystem, root = journals.open_place(self._path)
        kind = filesystem.get_file_info(root).type
        if kind == pafs.FileType.NotFound:
            raise journals.no_journal(self._path, "there is nothing")
        if kind == pafs.FileType.File:
            return [self._of_captures([self._path])]
        if filesystem.get_file_info(f"{root}/{layout.OBS}").type == pafs.FileType.Directory:
            return [FilePartition(one.file) for one in journals.find(filesystem, root, self._wanted)]
        inside = filesystem.get_file_info(pafs.FileSelector(root))
        names = sorted(one.base_name for one in inside if one.type == pafs.FileType.File)
        names = [name for name in names if not name.startswith(layout.UNFINISHED)]
        if not names:
            raise journals.no_journal(self._path, "the folder has neither obs/ nor files")
        return [self._of_captures([f"{self._path.rstrip('/')}/{name}" for name in names])]

    def _of_captures(self, paths: list[str]) -> CapturePartition:
        if self._captures is None:
            raise PipelineError(
                "bad_option", f"{self._path} is no journal; of captures, the option host is needed", "name the host"
            )
        return CapturePartition(tuple(paths))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        shaper = Shaper(self._columns)
        if isinstance(partition, FilePartition):
            filesystem, root = journals.open_place(self._path)
            for batch in journals.rows(filesystem, root, partition.file, self._wanted.expression):
                yield shaper.shape(batch)
        elif isinstance(partition, CapturePartition) and self._captures is not None:
            for batch in _of_captures(partition.paths, self._captures):
                found = batch if self._wanted.expression is None else batch.filter(self._wanted.expression)
                if found.num_rows:
                    yield shaper.shape(found)


def _of_captures(paths: tuple[str, ...], settings: CaptureSettings) -> Iterator[pa.RecordBatch]:
    tally = Tally()
    captures = CaptureSet(paths, tally)
    if captures.first_stamp is None:
        raise no_bccn(paths, settings.port, tally)
    name = captures.journal_id(settings.host)
    first = FIRST
    for part in parts(observations(captures.packets(), settings, tally)):
        yield from files.obs_table(settings.host, name, first, part).to_batches()
        first += len(part)
    if first == FIRST:
        raise no_bccn(paths, settings.port, tally)
