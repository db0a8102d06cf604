"""How much each channel carries: messages once each, lengths that occurred."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline.schema import conform
from bccnd.pipeline.tables.channel_traffic import channel_traffic
from tests.pipeline.frames import at, told

Row = tuple[float, str, str, str, int]


SHAPE = pa.schema(
    [
        *(("day", pa.date32()), ("win", pa.timestamp("us", "UTC")), ("src", pa.string()), ("chan", pa.string())),
        *(("form", pa.string()), ("len", pa.int32())),
    ]
)


def traffic(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Messages: second, src, chan, form, length."""
    day = datetime.date(2026, 3, 1)
    columns = zip(*((day, at(row[0] // 60 * 60), *row[1:]) for row in rows), strict=True)
    return spark.createDataFrame(pa.table([list(column) for column in columns], schema=SHAPE))


def test_messages_bytes_and_lengths_of_a_minute(spark: SparkSession) -> None:
    rows: list[Row] = [(1, "s", "a", "plain", length) for length in range(1, 101)]
    rows += [(61, "s", "a", "plain", 7), (2, "s", "!t", "directed", 30), (3, "s", "!t", "directed", 10)]
    table = conform("channel_traffic", channel_traffic(traffic(spark, rows)))
    assert told(table, "win", "chan", "src", "msgs", "bytes", "p50_len", "p99_len", "directed", "day") == [
        (0, "!t", "s", 2, 40, 10, 30, True, "2026-03-01"),
        (0, "a", "s", 100, 5050, 50, 99, False, "2026-03-01"),
        (60, "a", "s", 1, 7, 7, 7, False, "2026-03-01"),
    ]


ROWS = st.tuples(
    st.sampled_from([0.0, 60.0]), st.sampled_from("st"), st.sampled_from("ab"), st.just("plain"), st.integers(1, 12)
)


@settings(max_examples=5)
@given(st.lists(ROWS, min_size=1, max_size=300))
def test_percentiles_are_lengths_in_order(spark: SparkSession, rows: list[Row]) -> None:
    lengths: dict[tuple[float, str, str], list[int]] = defaultdict(list)
    for second, src, chan, _, length in rows:
        lengths[(second, chan, src)].append(length)
    expected = []
    for key, found in lengths.items():
        found.sort()
        p50, p99 = (found[math.ceil(len(found) * percent / 100) - 1] for percent in (50, 99))
        expected.append((*key, len(found), sum(found), p50, p99))
    columns = ("win", "chan", "src", "msgs", "bytes", "p50_len", "p99_len")
    assert told(channel_traffic(traffic(spark, rows)), *columns) == sorted(expected)
