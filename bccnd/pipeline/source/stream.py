"""Follows the journals of live hosts: `spark.readStream.format("bccn")`.

Invariant: every record of a finished file comes once, in whatever order files appear; the offset is all that is
needed to continue. Records that retention removed before they were read are one `journal_gap`. Records that are missing
after a file that still exists are in a late file, for which the stream waits. Journals that are gone may come again.
"""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bccnd.core.formats.tap_record import JOURNAL_GAP
from bccnd.journal import file_names, reader, schema
from bccnd.pipeline.source import journal_reader
from bccnd.pipeline.source.journal_reader import FoundFile, Wanted

#: host -> journal -> number of the next record
Offsets = dict[str, dict[str, int]]
#: journals of a host that are gone and still remembered, some 50 bytes each in every checkpoint of a batch
MAX_GONE: Final = 256
#: files whose numbers of records are remembered, some 200 bytes each
MAX_COUNTED: Final = 100_000
_NO_LIMIT: Final = 2**62


@dataclass
class Piece(InputPartition):
    """Records of a file from ``first`` up to ``end``. As a ``gap``, records that are gone: one row, with the time of
    the first record in ``file``, which is the next file (without a day if there is none)."""

    file: file_names.ObsFile
    first: int
    end: int
    gap: bool = False


def cut(
    files: Iterable[FoundFile], first: int, count: Callable[[FoundFile], int], given_up: Callable[[FoundFile], bool]
) -> Iterator[Piece]:
    """Yield what can be read of one journal from a record on. ``files`` are its files in order, ``count`` returns the
    records of one, and ``given_up`` whether the wait for those missing before one is over."""
    position = first
    for number, file in enumerate(files):
        name = file.name
        if not number:  # recorders count from 1: record 0 is not missing
            position = max(position, min(1, name.first))
        if file.end is not None and file.end <= position:
            continue  # all of it was read
        if name.first > position:
            if number and not given_up(file):
                return
            yield Piece(name, position, name.first, gap=True)
            position = name.first
        end = name.first + count(file)
        if end > position:
            yield Piece(name, position, end)
            position = end


class StreamReader(SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Follows the journal at ``path``: at most ``most`` records a batch (0: all), waiting ``patience`` seconds for a
    missing file."""

    def __init__(self, path: str, columns: StructType, most: int, patience: float) -> None:
        self._path, self._schema = path, to_arrow_schema(columns, timezone="UTC")
        self._most, self._patience = most, patience
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only what exists now."""
        self._target = {
            host: {journal: files[-1].name.first + self._count(files[-1]) for journal, files in journals.items()}
            for host, journals in self._find().items()
        }

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """Return the end of a batch that begins at ``start``. Raises PipelineError: no_journal, bad_file."""
        journals = self._find()
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else _NO_LIMIT
        ends = {host: dict(numbers) for host, numbers in start.items()}
        # Each host gets its share before the rest is divided, so that a long journal does not delay the others.
        for share in (max(1, left // max(1, len(journals))), left):
            for host in journals:
                quota = min(share, left)
                for journal, files in journals[host].items():
                    position = ends.get(host, {}).get(journal, 0)
                    end, taken = self._advance(files, position, quota)
                    if end != position:
                        ends.setdefault(host, {})[journal] = end
                    quota, left = quota - taken, left - taken
        return start if ends == start else {host: _tidy(ends[host], journals.get(host, {})) for host in sorted(ends)}

    def _advance(self, files: list[FoundFile], position: int, most: int) -> tuple[int, int]:
        """Return where a batch with room for ``most`` rows ends in one journal, and how many it takes."""
        name, taken, now = files[0].name, 0, time.time()
        target = _NO_LIMIT if self._target is None else self._target.get(name.host, {}).get(name.journal_id, 0)
        for piece in cut(
            files if most else (), position, self._count, lambda file: now - file.written > self._patience
        ):
            end = piece.end if piece.gap else min(piece.end, target, piece.first + most - taken)
            if end > target or end <= piece.first or taken == most:
                break
            position, taken = end, taken + (1 if piece.gap else end - piece.first)
            if end < piece.end:
                break
        return position, taken

    def _find(self) -> dict[str, dict[str, list[FoundFile]]]:
        """List the files of each host and journal, in order."""
        place = reader.open_place(self._path)
        if place[0].get_file_info(place[1]).type == pafs.FileType.File:
            raise reader.no_journal(self._path, "it is a file, but only the folder of a journal can be followed")
        grouped: dict[str, dict[str, list[FoundFile]]] = defaultdict(lambda: defaultdict(list))
        for file in journal_reader.find(place, Wanted()):
            grouped[file.name.host][file.name.journal_id].append(file)
        return grouped

    def _count(self, file: FoundFile) -> int:
        """Return the number of records in a file; 0 if it was removed just now."""
        with suppress(FileNotFoundError):
            return _count_rows(self._path, file._replace(end=None))
        return 0

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Divide a batch into pieces. Records removed since it was planned are a gap."""
        journals = self._find()
        pieces: list[InputPartition] = []
        for host, numbers in end.items():
            for journal, last in numbers.items():
                position = start.get(host, {}).get(journal, 0)
                if last <= position:
                    continue
                for piece in cut(journals.get(host, {}).get(journal, []), position, self._count, lambda _: True):
                    if piece.first >= last:
                        break
                    pieces.append(piece if piece.gap else replace(piece, end=min(piece.end, last)))
                    position = piece.end
                if position < last:
                    pieces.append(Piece(file_names.ObsFile(host, "", journal, last), max(1, position), last, gap=True))
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)  # noqa: S101 - what was planned above
        place, file, names = reader.open_place(self._path), partition.file, self._schema.names
        if not partition.gap:
            for batch in journal_reader.rows(place, file, partition.first, partition.end, names):
                yield batch.cast(self._schema)
            return
        ts = datetime.datetime.now(datetime.UTC)
        for batch in journal_reader.rows(place, file, file.first, file.first + 1, ["ts"]) if file.day else ():
            ts = batch.column(0)[0].as_py()
        row = {"host": file.host, "journal_id": file.journal_id, "rec_no": partition.first, "ts": ts}
        gap = pa.RecordBatch.from_pylist([{**row, "verdict": JOURNAL_GAP}], schema=schema.OBS)
        yield gap.select(names).cast(self._schema)


@lru_cache(MAX_COUNTED)
def _count_rows(path: str, file: FoundFile) -> int:
    return journal_reader.count_rows(reader.open_place(path), file.name)


def _tidy(ends: dict[str, int], present: Container[str]) -> dict[str, int]:
    """Put a host's journals in order: first those that are gone, the latest last, and no more than `MAX_GONE`."""
    gone = [journal for journal in ends if journal not in present][-MAX_GONE:]
    return {journal: ends[journal] for journal in (*gone, *sorted(journal for journal in ends if journal in present))}
