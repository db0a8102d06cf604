"""`spark.readStream.format("bccn")`: follows the journals of live hosts.

Law: every record of a finished file comes once, in whatever order files appear; what is told of where a stream stands
({host: {journal: next record}}) is all that it needs to go on. Records that retention has taken before they were read
are one row, with the verdict `journal_gap`, the number of the first of them, and the time of the next that there is.

A hole behind a file that is still there is a file that is late, and is waited for; retention takes the oldest first.
Of journals that are gone altogether it is remembered how far they were read, so that a journal that comes again is not
read twice, and one that is still written goes on; of each host for the last `MAX_GONE` of them. Names say nothing about
that: a host whose clock was set back begins a journal whose name sorts before all others.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bccnd.core.observe import JOURNAL_GAP
from bccnd.journal import layout, schema
from bccnd.journal.listing import ListedFile
from bccnd.pipeline.source import journals
from bccnd.pipeline.source.batch import Shaper
from bccnd.pipeline.source.wanted import Wanted

#: host -> journal -> number of the next record
Offsets = dict[str, dict[str, int]]
#: journals of a host that are gone and still remembered, some 50 bytes each in every checkpoint of a batch
MAX_GONE: Final = 256
#: files whose numbers of records are remembered, some 200 bytes each
MAX_COUNTED: Final = 100_000


@dataclass
class Slice(InputPartition):
    """Records of one file, from ``first`` up to ``end``."""

    file: layout.ObsFile
    first: int
    end: int


@dataclass
class Gap(InputPartition):
    """Records from ``first`` on that nobody can read any more; ``next`` is the file in which the next ones are, if
    there is one."""

    host: str
    journal_id: str
    first: int
    next: layout.ObsFile | None


Piece = Slice | Gap


@dataclass(frozen=True)
class Step:
    """A piece and the number behind its last record."""

    piece: Piece
    end: int
    records: int


def steps(
    found: list[ListedFile], first: int, count: Callable[[layout.ObsFile], int], given_up: Callable[[float], bool]
) -> Iterator[Step]:
    """What can be read of one journal from a record on, piece by piece. ``found`` are its files in order, ``count``
    says how many records one has, ``given_up`` whether a file that was written then has waited long enough for those
    that are missing before it."""
    # Recorders count from 1; nobody is missing a record 0 that never was.
    position = max(first, min(1, found[0].file.first)) if found else first
    for number, one in enumerate(found):
        file = one.file
        following = found[number + 1].file.first if number + 1 < len(found) else None
        if following is not None and following <= position:
            continue  # all of it was read
        if file.first > position:
            if number and not given_up(one.written):
                return
            yield Step(Gap(file.host, file.journal_id, position, file), file.first, 1)
            position = file.first
        end = file.first + count(file)
        if end > position:
            yield Step(Slice(file, position, end), end, end - position)
            position = end


class StreamReader(SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Follows the journal at ``path``; at most ``most`` records a batch (0: all), and a file that is missing is waited
    for ``patience`` seconds."""

    def __init__(self, path: str, columns: StructType, most: int, patience: float) -> None:
        self._path = path
        self._columns = columns
        self._most = most
        self._patience = patience
        self._target: Offsets | None = None
        self._counted: dict[layout.ObsFile, tuple[int, float, int]] = {}

    # -- where it stands

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What is there now is all that is read."""
        self._target = {}
        for (host, name), found in self._find().items():
            last = found[-1]
            self._target.setdefault(host, {})[name] = last.file.first + self._count(last)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """How far a batch from ``start`` on goes. Raises PipelineError: no_journal, bad_file."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        journals_found = self._find()
        left = most
        ends = {host: dict(numbers) for host, numbers in start.items()}
        moved = False
        # A host that has much must not hold up the others: each has its share first, and then who comes has the rest.
        hosts = sorted({host for host, _ in journals_found})
        share = max(1, most // max(1, len(hosts)))
        for allowed in (share, most) if most else (0,):
            for host in hosts:
                mine = min(allowed, left) if most else 0
                for (of, name), found in journals_found.items():
                    if of != host or (most and mine <= 0):
                        continue
                    position = ends.get(host, {}).get(name, 0)
                    end, taken = self._go_on(found, position, mine if most else None)
                    if end != position:
                        ends.setdefault(host, {})[name] = end
                        mine, left, moved = mine - taken, left - taken, True
        return _tidy(ends, set(journals_found)) if moved else start

    def _go_on(self, found: list[ListedFile], position: int, most: int | None) -> tuple[int, int]:
        """How far to go in one journal, and how many rows that is."""
        taken = 0
        target = self._target_of(found)
        for step in self._steps(found, position):
            end, records = step.end, step.records
            if target is not None and end > target:
                if isinstance(step.piece, Gap) or position >= target:
                    break
                end, records = target, target - step.piece.first
            if most is not None and taken + records > most:
                if isinstance(step.piece, Gap):
                    break
                end, records = step.piece.first + most - taken, most - taken
            if records <= 0:
                break
            position, taken = end, taken + records
            if end < step.end:
                break
        return position, taken

    def _target_of(self, found: list[ListedFile]) -> int | None:
        if self._target is None:
            return None
        file = found[0].file
        return self._target.get(file.host, {}).get(file.journal_id, 0)

    # -- what is there

    def _place(self) -> tuple[pafs.FileSystem, str]:
        filesystem, root = journals.open_place(self._path)
        return filesystem, root

    def _find(self) -> dict[tuple[str, str], list[ListedFile]]:
        """The files of every journal, in order."""
        filesystem, root = self._place()
        if filesystem.get_file_info(root).type == pafs.FileType.File:
            raise journals.no_journal(self._path, "it is a file, and only the folder of a journal can be followed")
        grouped: dict[tuple[str, str], list[ListedFile]] = {}
        for one in journals.find(filesystem, root, Wanted()):
            grouped.setdefault((one.file.host, one.file.journal_id), []).append(one)
        return grouped

    def _steps(self, found: list[ListedFile], first: int) -> Iterator[Step]:
        sizes = {one.file: one for one in found}
        now = time.time()
        return steps(
            found, first, lambda file: self._count(sizes[file]), lambda written: now - written > self._patience
        )

    def _count(self, found: ListedFile) -> int:
        """The records in a file, looked at once. One that retention takes in this very moment has none."""
        known = self._counted.get(found.file)
        if known is not None and known[:2] == (found.size, found.written):
            return known[2]
        filesystem, root = self._place()
        try:
            rows = journals.count_rows(filesystem, root, found.file)
        except FileNotFoundError:
            return 0
        if len(self._counted) >= MAX_COUNTED:
            self._counted.clear()
        self._counted[found.file] = found.size, found.written, rows
        return rows

    # -- what a batch is

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        pieces: list[InputPartition] = []
        there = self._find()
        for host, numbers in end.items():
            for name, last in numbers.items():
                first = start.get(host, {}).get(name, 0)
                if last > first:
                    pieces += self._pieces(there.get((host, name), []), host, name, first, last)
        return pieces

    def _pieces(self, found: list[ListedFile], host: str, name: str, first: int, last: int) -> Iterator[InputPartition]:
        """What was planned to be read, of what is there now: what has gone since then is a gap."""
        sizes = {one.file: one for one in found}
        position = first
        for step in steps(found, first, lambda file: self._count(sizes[file]), lambda _: True):
            piece = step.piece
            if piece.first >= last:
                return
            yield Slice(piece.file, piece.first, min(piece.end, last)) if isinstance(piece, Slice) else piece
            position = step.end
        if position < last:
            yield Gap(host, name, max(1, position), None)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        filesystem, root = self._place()
        shaper = Shaper(self._columns)
        if isinstance(partition, Gap):
            yield shaper.shape(_gap_row(partition, _first_time(filesystem, root, partition.next)))
        elif isinstance(partition, Slice):
            wanted = (pc.field("rec_no") >= partition.first) & (pc.field("rec_no") < partition.end)
            for batch in journals.rows(filesystem, root, partition.file, wanted):
                yield shaper.shape(batch)

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: they do not plan."""
        return {**self.__dict__, "_counted": {}}


def _tidy(ends: Offsets, there: set[tuple[str, str]]) -> Offsets:
    """The same in one order: of each host first the journals that are gone, those that went last behind the others, and
    no more than `MAX_GONE` of them."""
    tidied: Offsets = {}
    for host in sorted(ends):
        numbers = ends[host]
        gone = [name for name in numbers if (host, name) not in there][-MAX_GONE:]
        kept = [name for name in sorted(numbers) if (host, name) in there]
        tidied[host] = {name: numbers[name] for name in (*gone, *kept)}
    return tidied


def _first_time(filesystem: pafs.FileSystem, root: str, file: layout.ObsFile | None) -> Any:
    """The time of the first record of a file; now, where there is none."""
    for batch in journals.rows(filesystem, root, file) if file is not None else ():
        return batch.column("ts")[0].as_py()
    return datetime.datetime.now(datetime.UTC)


def _gap_row(gap: Gap, ts: Any) -> pa.RecordBatch:
    known = {"host": gap.host, "journal_id": gap.journal_id, "rec_no": gap.first, "ts": ts, "verdict": JOURNAL_GAP}
    arrays = [pa.array([known.get(field.name)], field.type) for field in schema.OBS]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.OBS)
