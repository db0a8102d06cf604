"""Finds the records of one message in a journal: in every file, by its statistics where these are enough."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from bccnd.core.observe import seq_key
from bccnd.errors import JournalError
from bccnd.journal.files import open_root
from bccnd.journal.listing import current, list_files
from bccnd.journal.schema import OBS as COLUMNS

#: records that are returned at most
_MOST = 1000


class Record(NamedTuple):
    """A copy of the message, as it was recorded; ``ts`` is in microseconds since 1970."""

    ts: int
    host: str
    segment: str
    peer: str
    verdict: str
    chan: str
    journal_id: str
    rec_no: int


def find_records(where: str, src: str, seq: int) -> list[Record]:
    """Return the copies of a message in a journal, in order of time. Raises JournalError."""
    try:
        filesystem, root = open_root(where)
        files = [f"{root}/{one.file.path}" for one in current(list_files(filesystem, root))]
        table = ds.dataset(files, COLUMNS, "parquet", filesystem).to_table(
            filter=(ds.field("seq_key") == seq_key(seq)) & (ds.field("src") == src)
        )
    except (OSError, pa.ArrowException) as error:
        raise JournalError(
            "unreadable_journal", f"the journal {where} cannot be read: {error}", "name its folder with --journal"
        ) from error
    found = [
        Record(
            int(row["ts"].timestamp() * 1e6),
            row["host"],
            row["segment"] or "",
            f"{row['peer_ip']}:{row['peer_port']}",
            row["verdict"],
            row["chan"] or "",
            row["journal_id"],
            row["rec_no"],
        )
        for row in table.to_pylist()
    ]
    return sorted(found)[:_MOST]
