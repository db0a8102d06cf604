"""The columns of the journal, and how tables of other writers are brought to them.

`OBS` has the fields of `core.formats.tap_record.Observation` behind host, journal_id and rec_no, under their names in
files; `SESSIONS` says when a receiver was listening, and what it knows to have missed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bccnd.journal.damage import DamagedFileError, detect_damage

#: the column with what is recorded of payloads
PAYLOAD: Final = "payload"
#: the column by which the sources are divided into 256 parts
SHARE: Final = "share"
#: the order of rows in a file: a reader of one share skips the row groups of the others
ORDER: Final = (SHARE, "src", "seq_key", "rec_no")
_TIME: Final = pa.timestamp("us", tz="UTC")

#: one row for each datagram that a receiver read
OBS: Final = pa.schema(
    [
        pa.field("host", pa.string(), nullable=False),
        pa.field("journal_id", pa.string(), nullable=False),
        pa.field("rec_no", pa.int64(), nullable=False),
        pa.field("ts", _TIME, nullable=False),
        pa.field("segment", pa.string()),
        pa.field("peer_ip", pa.string()),
        pa.field("peer_port", pa.int32()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("magic", pa.string()),
        pa.field("algo", pa.string()),
        pa.field("src", pa.string()),
        pa.field("seq_key", pa.int64()),
        pa.field("epoch", pa.int32()),
        pa.field("chan", pa.string()),
        pa.field("form", pa.string()),
        pa.field("len", pa.int32()),
        pa.field(PAYLOAD, pa.binary()),
        # the only unsigned type; Spark reads it as a short
        pa.field(SHARE, pa.uint8(), nullable=False),
    ]
)

#: one row for each period in which a receiver was listening without a break
SESSIONS: Final = pa.schema(
    [
        pa.field("host", pa.string(), nullable=False),
        pa.field("journal_id", pa.string(), nullable=False),
        pa.field("start_ts", _TIME, nullable=False),
        pa.field("end_ts", _TIME, nullable=False),
        pa.field("socket_drops", pa.int64(), nullable=False),
        pa.field("tap_gaps", pa.int64(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        # why it began: see `recorder.sessions`; null for captures
        pa.field("cause", pa.string()),
        # of its records; the last one is that of the latest finished file, and the first one less 1 if there is none
        pa.field("first_rec_no", pa.int64()),
        pa.field("last_rec_no", pa.int64()),
    ]
)


def share_of(src: str | None, host: str) -> int:
    """Return the share of a source; rows without a source belong to that of the receiving host."""
    return hashlib.md5((host if src is None else src).encode(), usedforsecurity=False).digest()[0]


def shares_of(src: pa.ChunkedArray | pa.Array, host: pa.ChunkedArray | pa.Array | pa.Scalar) -> pa.Array:
    """Return the share of each row, as `share_of` does for one."""
    names = pc.coalesce(src.cast(pa.string()), host.cast(pa.string()))
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    encoded = names.dictionary_encode()
    shares = [share_of(name, "") for name in encoded.dictionary.to_pylist()]
    return pa.array(shares, pa.uint8()).take(encoded.indices)


def columns_to_read(present: Iterable[str], wanted: pa.Schema = OBS) -> list[str]:
    """Return the columns that must be read of a file with these columns, so that `conform` can make the wanted ones.
    Raises DamagedFileError."""
    present = set(present)
    names = [field.name for field in wanted if field.name in present]
    if SHARE in wanted.names and SHARE not in present:
        names += [name for name in ("host", "src") if name in present and name not in names]
        wanted = wanted.append(OBS.field("host")) if "host" not in wanted.names else wanted
    for name in (field.name for field in wanted if not field.nullable and field.name != SHARE):
        if name not in present:
            raise DamagedFileError(f"it has no column {name}")
    return names


def conform(table: pa.Table, wanted: pa.Schema = OBS) -> pa.Table:
    """Return a table with the wanted columns, found by name: columns that may be null can be missing, and so can
    `SHARE`; others than the wanted ones are left out. Raises DamagedFileError."""
    columns_to_read(table.column_names, wanted)
    columns = []
    for field in wanted:
        if field.name in table.column_names:
            column = table[field.name]
        elif field.name == SHARE:
            src = table["src"] if "src" in table.column_names else pa.nulls(table.num_rows, pa.string())
            column = shares_of(src, table["host"])
        else:
            column = pa.nulls(table.num_rows, field.type)
        try:
            with detect_damage():
                # Times of other units lose what is below a microsecond.
                columns.append(column.cast(field.type, safe=not pa.types.is_timestamp(field.type)))
        except DamagedFileError as error:
            raise DamagedFileError(f"its column {field.name} is {column.type}, not {field.type}: {error}") from error
        if column.null_count and not field.nullable:
            raise DamagedFileError(f"its column {field.name} has nulls")
    return pa.Table.from_arrays(columns, schema=wanted)
