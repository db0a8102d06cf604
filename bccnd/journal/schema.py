"""The columns of the journal, in one place.

`OBS` has the fields of `core.formats.tap_record.Observation` behind host, journal_id and rec_no, under their names in
files; `SESSIONS` says when a receiver was listening, and what it knows to have missed. No unsigned types: Spark has
none.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: the column with what is recorded of payloads
PAYLOAD: Final = "payload"
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
    ]
)
