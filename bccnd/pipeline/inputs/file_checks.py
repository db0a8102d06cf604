"""Reads files of a journal side by side, and says why one cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.types as kinds

from bccnd.errors import PipelineError
from bccnd.journal import schema as journal_schema
from bccnd.journal.damage import DamagedFileError
from bccnd.pipeline.inputs.journal_listing import ListedFile

#: the reason of an error that is over when the journal is listed again
CHANGED: Final = "changed"
#: files read side by side: waiting for a disk or a store, or computing checksums, which leaves Python's lock alone
_THREADS: Final = 8
#: Arrow has several types for one kind of value
_KINDS: Final = (
    kinds.is_integer,
    kinds.is_timestamp,
    lambda kind: kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind),
    lambda kind: kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind),
)
_Result = TypeVar("_Result")


def changed(path: str) -> PipelineError:
    """The error for a file that retention took while it was read."""
    return PipelineError(CHANGED, f"{path} was removed while it was read", "run it again")


def look_into(files: Iterable[ListedFile], read: Callable[[ListedFile], _Result]) -> list[_Result | str | None]:
    """What ``read`` returns for each file, or why the file cannot be used; None for one that is gone by now."""

    def look(file: ListedFile) -> _Result | str | None:
        try:
            return read(file)
        except FileNotFoundError:
            return None
        except DamagedFileError as error:
            return str(error) or "it is no Parquet file"
        except PermissionError as error:
            return f"it cannot be read: {error.strerror}"

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(look, files))


def check_columns(found: pa.Schema, wanted: pa.Schema) -> None:
    """Check that a table has all columns that are never null, and that columns of these names have such values. Raises
    DamagedFileError."""
    for column in wanted:
        index = found.get_field_index(column.name)
        if index < 0:
            if not column.nullable and column.name != journal_schema.SHARE:
                raise DamagedFileError(f"it has no column {column.name}")
            continue
        kind = found.field(index).type
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        if not any(is_kind(kind) and is_kind(column.type) for is_kind in _KINDS):
            raise DamagedFileError(f"its column {column.name} is {kind}, not {column.type}")
