"""Opens a journal or captures, and reads records from the files of a journal. Nothing here needs Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from bccnd.core.formats.uri import is_uri
from bccnd.errors import PipelineError
from bccnd.journal import checksums, file_names, files, schema
from bccnd.journal.capture_file import is_stream
from bccnd.journal.damage import DamagedFileError, detect_damage

#: rows that are yielded at once
BATCH: Final = 16_384
#: the file system and the folder of a journal
Place = tuple[pafs.FileSystem, str]


def open_place(where: str) -> Place:
    """Raises PipelineError: no_journal."""
    try:
        return files.open_root(where)
    except (OSError, pa.ArrowInvalid) as error:
        raise no_journal(where, str(error).splitlines()[0]) from error


def no_journal(where: str, why: str) -> PipelineError:
    return PipelineError("no_journal", f"no journal and no capture at {where}: {why}", "name the folder of a journal")


def find_captures(where: str) -> list[str]:
    """List the captures at ``where``, one or a folder of them; none if it is a journal. Raises PipelineError:
    no_journal."""
    is_file, is_journal, names = _look(where)
    if is_file or is_journal:
        return [where] if is_file else []
    paths = [f"{where.rstrip('/')}/{name}" for name in sorted(names) if not name.startswith(file_names.UNFINISHED)]
    if not paths:
        raise no_journal(where, "the folder has neither obs/ nor files")
    return paths


def _look(where: str) -> tuple[bool, bool, list[str]]:
    """Whether there is a file or a stream, whether there is a journal, and the names of the files in the folder. Raises
    PipelineError: no_journal."""
    if is_stream(where):
        return True, False, []
    if not is_uri(where):  # not by pyarrow, which takes only names in UTF-8
        if not os.path.isdir(where):
            if not os.path.isfile(where):
                raise no_journal(where, "there is nothing")
            return True, False, []
        with os.scandir(where) as entries:
            files_there = [entry.name for entry in entries if entry.is_file()]
        return False, os.path.isdir(os.path.join(where, file_names.OBS)), files_there
    filesystem, root = open_place(where)
    kind, obs = (info.type for info in filesystem.get_file_info([root, f"{root}/{file_names.OBS}"]))
    if kind == pafs.FileType.NotFound:
        raise no_journal(where, "there is nothing")
    if kind == pafs.FileType.File or obs == pafs.FileType.Directory:
        return kind == pafs.FileType.File, obs == pafs.FileType.Directory, []
    inside = files.entries(filesystem, pafs.FileSelector(root))
    return False, False, [info.base_name for info in inside if info.type == pafs.FileType.File]


def rows(
    place: Place, file: file_names.ObsFile, columns: Sequence[str], wanted: pc.Expression = None
) -> Iterator[pa.RecordBatch]:
    """Verify a file and yield the wanted records in the order of their numbers, some at a time. Raises PipelineError:
    bad_file."""
    filesystem, root = place
    chosen = pa.schema([schema.OBS.field(name) for name in dict.fromkeys([*columns, "rec_no"])])
    try:
        checksums.verify(filesystem, f"{root}/{file.path}")
        with detect_damage(), filesystem.open_input_file(f"{root}/{file.path}") as opened:
            fragment = ds.ParquetFileFormat().make_fragment(opened)
            names = schema.columns_to_read(fragment.physical_schema.names, chosen)
            table = schema.conform(fragment.to_table(columns=names, filter=wanted, use_threads=False), chosen)
    except (OSError, DamagedFileError) as error:
        why = "it was removed meanwhile" if isinstance(error, FileNotFoundError) else error
        detail = f"{file.path} does not belong to a journal: {why}"
        raise PipelineError("bad_file", detail, "move it away, or copy it again") from error
    yield from table.sort_by("rec_no").select(list(columns)).to_batches(BATCH)
