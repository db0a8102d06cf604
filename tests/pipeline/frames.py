"""What the scan makes of rows that are told shortly, and rows of frames back."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from bccnd.pipeline.records import task_records
from bccnd.pipeline.records.row_batch import COLUMNS, NAMES, Batch, Origin
from bccnd.pipeline.scanning import scan_records

#: microseconds
SECOND = 1_000_000
#: the day on which most tests happen, at midnight
DAY = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()) * SECOND

_PLACE = {"host": "h1", "journal_id": "j1", "segment": "lan", "peer_ip": "10.0.0.1", "peer_port": 5400}
_SAID = {"algo": None, "src": "h1/p/1", "epoch": 1, "chan": "data", "len": 100, "verdict": "accepted"}
_USUAL: dict[str, Any] = {**_PLACE, **_SAID}


def at(seconds: float) -> int:
    """So many seconds after the midnight with which `DAY` begins, in microseconds since 1970."""
    return DAY + round(seconds * SECOND)


def batch(*given: dict[str, Any]) -> Batch:
    """Rows of the journal: each says what is unusual about it; ``s`` is when, in seconds of `DAY`."""
    whole = [{**_USUAL, "rec_no": number, "seq_key": number, **row} for number, row in enumerate(given)]
    origins = list(dict.fromkeys(Origin(row["host"], row["journal_id"]) for row in whole))
    places = np.array([origins.index(Origin(row["host"], row["journal_id"])) for row in whole])
    for row in whole:
        row["ts"] = at(row.pop("s")) if "s" in row else row.get("ts", DAY)
    columns = {
        name: pa.chunked_array([pa.array([row[name] for row in whole], pa.string()).dictionary_encode()])
        if name in NAMES
        else pa.chunked_array([pa.array([row[name] for row in whole], pa.int64())])
        for name in COLUMNS
    }
    return Batch(origins, places, pa.table(columns))


def records(*given: dict[str, Any]) -> pa.Table:
    """What the scan emits of such rows."""
    return pa.Table.from_batches(list(scan_records.records(batch(*given), 1, 16, {})), task_records.RECORD)


def of_kind(kind: str, *given: dict[str, Any]) -> pa.Table:
    """Records of one kind; what is not said is 0, or `DAY` for the day."""
    usual = {"day": "2026-03-01", "host": "h1", "src": "h1/p/1", "chan": "data", "peer_ip": "10.0.0.1", "epoch": 1}
    names = task_records.KINDS[kind]
    columns = {name: [row.get(name, usual.get(name, 0)) for row in given] for name in names}
    return pa.Table.from_batches([task_records.make_records(kind, **columns)], task_records.RECORD)


def seconds(value: datetime.datetime | None) -> float | None:
    """A time from Spark as seconds of `DAY`."""
    if value is None:
        return None
    return round((value.replace(tzinfo=datetime.UTC).timestamp() * SECOND - DAY) / SECOND, 6)


def rows_of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a frame, these columns, sorted; times as seconds of `DAY`, days as text."""
    rows = []
    for row in frame.select(*columns).collect():
        values: list[Any] = []
        for value in row:
            if isinstance(value, datetime.datetime):
                value = seconds(value)
            elif isinstance(value, datetime.date):
                value = value.isoformat()
            values.append(value)
        rows.append(tuple(values))
    return sorted(rows, key=lambda row: [(value is not None, str(type(value)), value) for value in row])
