"""Small frames of Spark for tests: rows of the journal as they are told, and rows of frames back."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bccnd.journal import schema as journal

#: microseconds
SECOND = 1_000_000
#: the day on which most tests happen, at midnight
DAY = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()) * SECOND

_PLACE = {"host": "h1", "journal_id": "j1", "segment": "lan", "peer_ip": "10.0.0.1", "peer_port": 5400}
_SAID = {"magic": "BCCN1", "src": "h1/p/1", "epoch": 1, "chan": "data", "form": "plain", "len": 100}
_USUAL: dict[str, Any] = {**_PLACE, **_SAID, "verdict": "accepted"}


def at(seconds: float) -> int:
    """So many seconds after the midnight with which `DAY` begins, in microseconds since 1970."""
    return DAY + round(seconds * SECOND)


def obs(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Rows of the journal: each says what is unusual about it; ``s`` is when, in seconds of `DAY`."""
    whole = []
    for number, row in enumerate(rows):
        told = {**_USUAL, "rec_no": number, "seq_key": number, **row}
        told["ts"] = at(told.pop("s", 0))
        whole.append(told)
    return spark.createDataFrame(pa.Table.from_pylist(whole, schema=journal.OBS))


def sessions(spark: SparkSession, *rows: tuple[str, str, float, float]) -> DataFrame:
    """Rows of sessions: host, journal, begin and end in seconds of `DAY`."""
    names = ("host", "journal_id", "start_ts", "end_ts", "socket_drops", "tap_gaps", "version")
    whole = [(host, name, at(begin), at(end), 0, 0, "1") for host, name, begin, end in rows]
    found = [dict(zip(names, row, strict=True)) for row in whole]
    return spark.createDataFrame(pa.Table.from_pylist(found, schema=journal.SESSIONS))


def seconds(value: datetime.datetime | None) -> float | None:
    """A time from Spark as seconds of `DAY`."""
    if value is None:
        return None
    return round((value.replace(tzinfo=datetime.UTC).timestamp() * SECOND - DAY) / SECOND, 6)


def told(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a frame, these columns, sorted; times as seconds of `DAY`, days as text."""
    found = []
    for row in frame.select(*columns).collect():
        values: list[Any] = []
        for value in row:
            if isinstance(value, datetime.datetime):
                value = seconds(value)
            elif isinstance(value, datetime.date):
                value = value.isoformat()
            values.append(value)
        found.append(tuple(values))
    return sorted(found, key=lambda row: [(value is not None, str(type(value)), value) for value in row])
