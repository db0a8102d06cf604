"""The journal as the pipeline reads it: which files there are, whether they are what they should be, and their rows.

Law: rows are taken from a journal only when every file that they come from is one that a recorder could have written,
lies where its records say that they belong, and holds records that no other file holds; else the run ends before
anything is changed, with the file's name.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bccnd.errors import PipelineError
from bccnd.journal import layout
from bccnd.journal import schema as journal_schema
from bccnd.pipeline import schema
from bccnd.pipeline.store import Folder

#: rows so near to midnight belong to the days on both sides of it: clocks differ, and copies come late
MARGIN: Final = datetime.timedelta(minutes=10)
#: footers read at once: waiting for a disk or a store, not computing
_READERS: Final = 8
#: how a type of Arrow may be called besides
_SAME: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
#: columns that a journal without them may leave out
_OPTIONAL: Final = ("payload",)
_ONE_DAY: Final = datetime.timedelta(days=1)


class Input(NamedTuple):
    """A file with records: what its name says, its path below the journal, and its size in bytes."""

    file: layout.ObsFile
    path: str
    size: int


class Journal:
    """A journal as it stood when it was looked at.

    Raises PipelineError: no_journal, foreign_file, twice; empty_journal unless it ``may_be_empty``.
    """

    def __init__(self, spark: SparkSession, where: str, *, may_be_empty: bool = False) -> None:
        self._spark = spark
        self.where = where
        self.folder = Folder(spark, where)
        if not self.folder.exists(layout.OBS):
            raise PipelineError(
                "no_journal",
                f"there is no journal at {where}: no folder {layout.OBS} in it",
                "name the folder that a recorder writes to (recorder.journal), or make one: bccn pipeline ingest",
            )
        self.files = list(self._listed())
        if not self.files and not may_be_empty:
            raise PipelineError(
                "empty_journal", f"the journal at {where} has no records yet", "see whether the recorder runs"
            )
        self.days = sorted({one.file.day for one in self.files})

    def _listed(self) -> Iterator[Input]:
        seen: dict[tuple[str, str, int], str] = {}
        for path, size in sorted(self._parquet(layout.OBS)):
            file = layout.read_path(path)
            if file is None:
                raise _foreign(self.folder.at(path), "its name is not one that a recorder gives")
            other = seen.setdefault((file.host, file.journal_id, file.first), path)
            if other != path:
                raise self._twice(path, other)
            yield Input(file, path, size)

    def _twice(self, path: str, other: str) -> PipelineError:
        return PipelineError(
            "twice",
            f"{self.folder.at(path)} holds the same records as {other}",
            "move one of them out of the journal",
        )

    def _parquet(self, under: str) -> list[tuple[str, int]]:
        """Paths below the journal, and sizes."""
        listed = (
            self._spark.read.format("binaryFile")
            .option("recursiveFileLookup", "true")
            .option("pathGlobFilter", "*.parquet")
            .load(self.folder.at(under))
            .select("path", "length")
        )
        return [(f"{under}/{row.path.rpartition(f'/{under}/')[2]}", row.length) for row in listed.collect()]

    def check(self, only: Collection[str] | None = None) -> None:
        """Look into the files, or those with these paths. Raises PipelineError: foreign_file, misplaced, twice."""
        chosen = [one for one in self.files if only is None or one.path in only]
        counts = self._check([one.path for one in chosen], journal_schema.OBS)
        ends: dict[tuple[str, str], tuple[int, str]] = {}
        for one, count in sorted(zip(chosen, counts, strict=True), key=lambda pair: pair[0].file.first):
            journal = one.file.host, one.file.journal_id
            end, other = ends.get(journal, (0, ""))
            if one.file.first < end:
                raise self._twice(one.path, other)
            ends[journal] = (one.file.first + count, one.path)

    def _check(self, paths: Sequence[str], columns: pa.Schema) -> list[int]:
        """`check`, by Spark's own means where the journal is on no local disk."""
        local = self.folder.local
        return check(local or self.folder.uri, paths, columns, None if local else self.folder.input)

    def obs(self, days: Collection[str] | None = None, margin: datetime.timedelta = MARGIN) -> DataFrame:
        """The rows of all days, or of these days and of a margin of at most a day around them; ``day`` says in which
        day's folder each was."""
        there = self.days
        reader = self._spark.read.schema(StructType(list(schema.OBS.fields)).add("day", "string"))
        reader = reader.option("basePath", self.folder.at(layout.OBS)).option("pathGlobFilter", "*.parquet")
        if days is not None:
            wanted = {day for one in days for day in _around(one)}
            there = [day for day in self.days if day in wanted]
        if not there:
            return self._spark.createDataFrame([], schema.OBS).withColumn("day", F.lit("").cast("string"))
        rows = reader.parquet(*[self.folder.at(f"{layout.OBS}/host=*/day={day}") for day in there])
        rows = rows.select(*schema.OBS.names, "day")
        return rows if days is None else rows.where(_near(days, margin))

    def sessions(self) -> DataFrame:
        """When receivers were recording. Raises PipelineError: foreign_file, misplaced."""
        if not self.folder.exists(layout.SESSIONS):
            return self._spark.createDataFrame([], schema.SESSIONS)
        paths = [path for path, _ in self._parquet(layout.SESSIONS)]
        self._check(paths, journal_schema.SESSIONS)
        reader = self._spark.read.schema(schema.SESSIONS).option("recursiveFileLookup", "true")
        return reader.option("pathGlobFilter", "*.parquet").parquet(self.folder.at(layout.SESSIONS))


def _around(day: str) -> list[str]:
    date = datetime.date.fromisoformat(day)
    return [str(date - _ONE_DAY), day, str(date + _ONE_DAY)]


def _near(days: Iterable[str], margin: datetime.timedelta) -> Column:
    """Whether a row is of one of these days, or of the margin around them; as few ranges as there can be, which readers
    of Parquet understand."""
    spans: list[tuple[datetime.datetime, datetime.datetime]] = []
    for day in sorted(days):
        begin = datetime.datetime.fromisoformat(day).replace(tzinfo=datetime.UTC)
        low, high = begin - margin, begin + _ONE_DAY + margin
        if spans and low <= spans[-1][1]:
            spans[-1] = (spans[-1][0], high)
        else:
            spans.append((low, high))
    near = F.lit(False)
    for low, high in spans:
        near = near | ((F.col("ts") >= F.lit(low)) & (F.col("ts") < F.lit(high)))
    return near


class _Contents(NamedTuple):
    """How many rows a file has, and what they say other than its place does, or nothing."""

    rows: int
    elsewhere: str


def check(
    where: str, paths: Sequence[str], columns: pa.Schema, opened: Callable[[str], pa.NativeFile] | None = None
) -> list[int]:
    """How many rows each file below a folder has; a file that retention has just taken has none. ``opened`` opens files
    where the folder is on no local disk. Raises PipelineError: foreign_file, misplaced, no_place."""
    local = pafs.LocalFileSystem()

    def one(path: str) -> _Contents:
        try:
            with local.open_input_file(f"{where}/{path}") if opened is None else opened(path) as file:
                return _contents(file, where, path, columns)
        except FileNotFoundError:
            return _Contents(0, "")
        except (pa.ArrowException, OSError) as error:
            raise _foreign(f"{where}/{path}", f"it cannot be read: {str(error).splitlines()[0]}") from None

    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(one, paths))
    wrong = [(path, each.elsewhere) for path, each in zip(paths, found, strict=True) if each.elsewhere]
    if wrong:
        path, why = wrong[0]
        more = f", and so do {len(wrong) - 1} other files" if len(wrong) > 1 else ""
        raise PipelineError(
            "misplaced",
            f"{where}/{path} lies in the wrong place: {why}{more}",
            "move it to the place that its records name, or out of the journal if they are there already",
        )
    return [each.rows for each in found]


def _contents(file: pa.NativeFile, where: str, path: str, columns: pa.Schema) -> _Contents:
    footer = pq.read_metadata(file)
    there = footer.schema.to_arrow_schema()
    for column in columns:
        index = there.get_field_index(column.name)
        if index < 0 and column.name in _OPTIONAL:
            continue
        if index < 0:
            raise _foreign(f"{where}/{path}", f"it has no column {column.name}")
        kind = there.field(index).type
        if _SAME.get(kind, kind) != column.type:
            raise _foreign(f"{where}/{path}", f"its column {column.name} is {kind}, not {column.type}")
    rows = int(footer.num_rows)
    return _Contents(rows, _elsewhere(pq.ParquetFile(file, metadata=footer), path) if rows else "")


def _elsewhere(file: pq.ParquetFile, path: str) -> str:
    """What the rows of a file say that its place does not say, or nothing. A file that lies below another host would
    make that host one that received everything."""
    name = layout.read_path(path)
    said: dict[str, tuple[Any, Any]]
    if name is not None:
        last = name.first + file.metadata.num_rows - 1
        said = {"host": (name.host, name.host), "journal_id": (name.journal_id, name.journal_id)}
        said |= {"ts": (name.day, name.day), "rec_no": (name.first, last)}
    else:
        host = layout.host_of_sessions(path)
        said = {} if host is None else {"host": (host, host)}
    for column, ends in said.items():
        found = _ends(file, column)
        if found != ends:
            several = found if found[0] != found[1] else found[:1]
            return f"its column {column} has {' to '.join(map(str, several))}"
    return ""


def _ends(file: pq.ParquetFile, column: str) -> tuple[Any, Any]:
    """The least and the greatest value of a column: from the footer, or, where that does not say, from the rows. Of
    times their days."""
    index = file.schema_arrow.get_field_index(column)
    groups = [file.metadata.row_group(number).column(index).statistics for number in range(file.num_row_groups)]
    if all(each is not None and each.has_min_max for each in groups):
        low, high = min(each.min for each in groups), max(each.max for each in groups)
    else:
        low, high = pc.min_max(file.read(columns=[column]).column(0)).as_py().values()
    if column == "ts":
        return low.date().isoformat(), high.date().isoformat()
    return low, high


def _foreign(path: str, why: str) -> PipelineError:
    return PipelineError(
        "foreign_file", f"{path} is no file of a journal: {why}", "move it out of the journal; what is there stays"
    )


def explained(error: Exception, log: str) -> PipelineError:
    """What Spark has failed with, in one line; ``log`` has the rest."""
    text = str(getattr(error, "java_exception", error))
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    cause = next((line for line in lines if line.startswith("Caused by: ")), lines[0]).removeprefix("Caused by: ")
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{error}\n")
    return PipelineError(
        "failed", f"Spark has failed: {cause[:500]}", f"the tables are as they were; what Spark has said is in {log}"
    )
