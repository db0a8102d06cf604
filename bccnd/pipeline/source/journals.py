"""The files of a journal, found by their names, and rows out of them.

Law: only finished files with a name that says what they are count, and of those only what is wanted is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.errors import PipelineError
from bccnd.journal import files, layout, schema
from bccnd.pipeline.source.wanted import Wanted

#: rows that are handed to Spark at once
BATCH: int = 16_384


@dataclass(frozen=True)
class Found:
    """A file with records: what its name says, how large it is and when it was written (seconds since 1970)."""

    file: layout.ObsFile
    size: int
    written: float


def open_place(where: str) -> tuple[pafs.FileSystem, str]:
    """The file system and the path that are meant. Raises PipelineError: no_journal."""
    try:
        return files.open_root(where)
    except (OSError, pa.ArrowInvalid) as error:
        raise no_journal(where, str(error).splitlines()[0]) from error


def no_journal(where: str, why: str) -> PipelineError:
    return PipelineError("no_journal", f"no journal and no capture at {where}: {why}", "name the folder of a journal")


def _below(filesystem: pafs.FileSystem, folder: str, prefix: str) -> Iterator[str]:
    """The folders of a kind, ``<prefix><value>``: their values."""
    for one in filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
        if one.type == pafs.FileType.Directory and one.base_name.startswith(prefix):
            yield one.base_name.removeprefix(prefix)


def find(filesystem: pafs.FileSystem, root: str, wanted: Wanted) -> list[Found]:
    """The files that can have rows that are wanted, ordered by host, journal and number."""
    found = []
    for host in _below(filesystem, f"{root}/{layout.OBS}", "host="):
        if wanted.hosts is not None and host not in wanted.hosts:
            continue
        for day in _below(filesystem, f"{root}/{layout.OBS}/host={host}", "day="):
            if not wanted.may_be_on(day):
                continue
            folder = f"{layout.OBS}/host={host}/day={day}"
            for one in filesystem.get_file_info(pafs.FileSelector(f"{root}/{folder}", allow_not_found=True)):
                unfinished = one.base_name.startswith(layout.UNFINISHED)
                name = None if unfinished else layout.read_path(f"{folder}/{one.base_name}")
                if name is not None and one.type == pafs.FileType.File and wanted.may_hold(name):
                    found.append(Found(name, int(one.size or 0), (one.mtime_ns or 0) / 1e9))
    return sorted(found, key=lambda one: (one.file.host, one.file.journal_id, one.file.first))


def count_rows(filesystem: pafs.FileSystem, root: str, file: layout.ObsFile) -> int:
    """The records in a file. Raises PipelineError: bad_file; FileNotFoundError."""
    try:
        return int(pq.read_metadata(f"{root}/{file.path}", filesystem=filesystem).num_rows)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowInvalid) as error:
        raise bad_file(file.path, error) from error


def bad_file(path: str, error: Exception) -> PipelineError:
    return PipelineError(
        "bad_file", f"{path} is no file of a journal: {str(error).splitlines()[0]}", "move it away, or copy it again"
    )


def rows(
    filesystem: pafs.FileSystem, root: str, file: layout.ObsFile, expression: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are wanted. Raises PipelineError: bad_file."""
    try:
        known = pq.read_schema(f"{root}/{file.path}", filesystem=filesystem)
        if not known.equals(schema.OBS):
            raise pa.ArrowInvalid("it has other columns than a journal has")
        data = ds.dataset(f"{root}/{file.path}", filesystem=filesystem, format="parquet", schema=schema.OBS)
        for batch in data.to_batches(filter=expression, batch_size=BATCH, use_threads=False, fragment_readahead=0):
            if batch.num_rows:
                yield batch
    except (OSError, pa.ArrowInvalid) as error:
        raise bad_file(file.path, error) from error
