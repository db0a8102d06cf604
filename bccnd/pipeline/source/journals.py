"""The files of a journal, found by their names, and rows out of them.

Law: only finished files with a name that says what they are count, and of those only what is wanted is opened.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.errors import PipelineError
from bccnd.journal import files, layout, schema
from bccnd.journal.listing import ListedFile, current, list_files
from bccnd.pipeline.source.wanted import Wanted

#: rows that are handed to Spark at once
BATCH: int = 16_384


def open_place(where: str) -> tuple[pafs.FileSystem, str]:
    """The file system and the path that are meant. Raises PipelineError: no_journal."""
    try:
        return files.open_root(where)
    except (OSError, pa.ArrowInvalid) as error:
        raise no_journal(where, str(error).splitlines()[0]) from error


def no_journal(where: str, why: str) -> PipelineError:
    return PipelineError("no_journal", f"no journal and no capture at {where}: {why}", "name the folder of a journal")


def find(filesystem: pafs.FileSystem, root: str, wanted: Wanted) -> list[ListedFile]:
    """The files that can have rows that are wanted, ordered by host, journal and number."""
    listed = list_files(filesystem, root, hosts=wanted.hosts, first_day=wanted.first_day, last_day=wanted.last_day)
    found = [one for one in current(listed) if wanted.may_hold(one.file)]
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
