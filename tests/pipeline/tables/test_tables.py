"""Each table from a few records, and what holds for any number of them."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.testing import assertDataFrameEqual

from bccnd.core.wire.verdicts import NAMES
from bccnd.pipeline.records import task_records
from bccnd.pipeline.tables import schema
from bccnd.pipeline.tables.channel_traffic import channel_traffic
from bccnd.pipeline.tables.delivery import delivery
from bccnd.pipeline.tables.epochs import epochs, of_days
from bccnd.pipeline.tables.integrity import integrity
from bccnd.pipeline.tables.loss_by_minute import channel_loss, link_loss
from bccnd.pipeline.tables.missed_numbers import missed
from tests.pipeline.frames import DAY, of_kind, records, rows_of

MINUTE = DAY // task_records.MINUTE
MIDNIGHT = datetime.datetime(2026, 3, 1)


def table(spark: SparkSession, kind: str, *rows: dict[str, Any]) -> DataFrame:
    return task_records.of_kind(task_records.frame_of(spark, of_kind(kind, *rows)), kind)


def counts(seen: int, here: int = 0, everywhere: int = 0, away: int = 0, **more: Any) -> dict[str, Any]:
    counted = {"any_seen": seen + here + away, "lost_here": here, "lost_everywhere": everywhere, "not_listening": away}
    return {"minute": MINUTE, **counted, **more}


def expected(spark: SparkSession, name: str, *rows: tuple[Any, ...]) -> DataFrame:
    """Rows of a table, ``day`` left out where it is the usual one."""
    shape = StructType(list(schema.TABLES[name].fields)).add("day", "date")
    whole = [row if len(row) == len(shape) else (*row, MIDNIGHT.date()) for row in rows]
    return spark.createDataFrame(whole, shape)


CASES: list[tuple[str, Callable[[SparkSession], DataFrame], list[tuple[Any, ...]]]] = [
    (
        "link_loss",
        lambda spark: table(
            spark,
            "link",
            counts(3, here=1),
            counts(0, here=2, everywhere=2, late=1),
            counts(0, dup=5),
            counts(0, away=4, host="h2"),
            counts(1, chan="other", minute=MINUTE + 1),
        ).transform(link_loss),
        [
            ("h1", "h1/p/1", 1, MIDNIGHT, 8, 6, 3, 3, 2, 0, 5, 1, 5 / 8),
            ("h2", "h1/p/1", 1, MIDNIGHT, 4, 4, 0, 0, 0, 4, 0, 0, None),
            ("h1", "h1/p/1", 1, MIDNIGHT.replace(minute=1), 1, 1, 1, 0, 0, 0, 0, 0, 0.0),
        ],
    ),
    (
        "channel_loss",
        lambda spark: table(
            spark,
            "channel",
            counts(3, here=1),
            counts(1, everywhere=2),
            counts(0, away=4, host="h2"),
            counts(1, chan="x"),
        ).transform(channel_loss),
        [
            ("h1", "data", MIDNIGHT, 7, 4, 1, 2),
            ("h2", "data", MIDNIGHT, 0, 0, 0, 0),
            ("h1", "x", MIDNIGHT, 1, 1, 0, 0),
        ],
    ),
    (
        "delivery",
        lambda spark: table(
            spark,
            "delivered",
            {"set_id": 7, "n": 2, "example_key": 9},
            {"set_id": 7, "n": 3, "example_key": 5},
            {"set_id": 8, "n": 1, "example_key": 6},
        ).transform(delivery),
        [("h1/p/1", 1, 7, 5, 5), ("h1/p/1", 1, 8, 1, 6)],
    ),
    (
        "missed",
        lambda spark: table(
            spark,
            "missed",
            {"lo_key": 10, "hi_key": 12},
            {"lo_key": 14, "hi_key": 15},
            {"lo_key": 65_530, "hi_key": 65_535, "at_edge": 1},
            {"lo_key": 65_536, "hi_key": 65_540, "at_edge": 1},
            {"lo_key": 65_536, "hi_key": 65_536, "at_edge": 1, "host": None},
        ).transform(missed),
        [
            ("h1/p/1", 1, 10, 12, "h1"),
            ("h1/p/1", 1, 14, 15, "h1"),
            ("h1/p/1", 1, 65_530, 65_540, "h1"),
            ("h1/p/1", 1, 65_536, 65_536, None),
        ],
    ),
    (
        "epochs",
        lambda spark: epochs(
            of_days(
                table(
                    spark,
                    "epoch",
                    {"hosts": "h1\nh2", "from_ts": DAY, "to_ts": DAY + 1, "lo_key": 4, "hi_key": 9},
                    {"hosts": "h3", "from_ts": DAY + 1, "to_ts": DAY + 3, "lo_key": 1, "hi_key": 5},
                    {"hosts": "h1", "from_ts": DAY + 5, "to_ts": DAY + 6, "lo_key": 20, "hi_key": 21, "epoch": 2},
                )
            ),
            spark.createDataFrame(
                [("h1/p/1", 1, "first"), ("h1/p/1", 2, "jump")], "src string, epoch long, cause string"
            ),
        ),
        [
            ("h1/p/1", 1, "h1/p", MIDNIGHT, MIDNIGHT.replace(microsecond=3), 1, 9, 3, "first", None),
            (
                *("h1/p/1", 2, "h1/p", MIDNIGHT.replace(microsecond=5), MIDNIGHT.replace(microsecond=6)),
                *(20, 21, 1, "jump", 10),
            ),
        ],
    ),
    (
        "channel_traffic",
        lambda spark: table(
            spark,
            "lengths",
            *({"minute": MINUTE, "len": length, "n": 1} for length in range(1, 101)),
            {"minute": MINUTE, "chan": "!t", "len": 30, "n": 2},
            {"minute": MINUTE + 1, "len": 7, "n": 1},
        ).transform(
            channel_traffic,
            table(spark, "nameless", *({"minute": MINUTE, "len": 5, "seq_key": key} for key in (1, 1, 2))),
        ),
        [
            (MIDNIGHT, "data", "h1/p/1", 100, 5050, 50, 99, False),
            (MIDNIGHT, "!t", "h1/p/1", 2, 60, 30, 30, True),
            (MIDNIGHT.replace(minute=1), "data", "h1/p/1", 1, 7, 7, 7, False),
            (MIDNIGHT, "data", "?", 2, 10, 5, 5, False),
        ],
    ),
]


@pytest.mark.parametrize(("name", "made", "expected_rows"), CASES, ids=[case[0] for case in CASES])
def test_a_table_of_a_few_records(
    spark: SparkSession, name: str, made: Callable[[SparkSession], DataFrame], expected_rows: list[tuple[Any, ...]]
) -> None:
    assertDataFrameEqual(schema.conform(name, made(spark)), expected(spark, name, *expected_rows))


LENGTHS = st.tuples(st.integers(0, 1), st.sampled_from("st"), st.sampled_from("ab"), st.integers(1, 12))


@settings(max_examples=5, deadline=None)
@given(st.lists(LENGTHS, min_size=1, max_size=300))
def test_percentiles_are_lengths_in_order(spark: SparkSession, messages: list[tuple[int, str, str, int]]) -> None:
    lengths: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for minute, src, chan, length in messages:
        lengths[MINUTE + minute, chan, src].append(length)
    wanted = []
    for key, of_key in lengths.items():
        of_key.sort()
        p50, p99 = (of_key[math.ceil(len(of_key) * percent / 100) - 1] for percent in (50, 99))
        wanted.append((*key, len(of_key), sum(of_key), p50, p99))
    names = ("minute", "src", "chan", "len")
    parts = table(
        spark, "lengths", *({**dict(zip(names, (MINUTE + row[0], *row[1:]), strict=True)), "n": 1} for row in messages)
    )
    made = channel_traffic(parts, table(spark, "nameless"))
    assert rows_of(made, "minute", "chan", "src", "msgs", "bytes", "p50_len", "p99_len") == sorted(wanted)


BAD = {"verdict": "integrity_failed", "peer_ip": "192.0.2.1", "src": "x/y/1", "algo": "hmac"}


def refused(spark: SparkSession, *datagrams: dict[str, Any]) -> DataFrame:
    table = records(*datagrams)
    return task_records.of_kind(task_records.frame_of(spark, table), "refused")


def test_refused_datagrams_are_counted_by_minute_receiver_sender_and_verdict(spark: SparkSession) -> None:
    frame = refused(
        spark,
        {**BAD, "s": 1},
        {**BAD, "s": 59.9},
        {**BAD, "s": 60},
        {**BAD, "s": 3, "host": "h2"},
        {**BAD, "s": 4, "src": None, "verdict": "bad_body", "algo": None},
        {"s": 5},
        {"s": 5, "verdict": "duplicate"},
    )
    columns = ("win", "host", "peer_ip", "claimed_src", "algo", "verdict", "n", "first_ts", "last_ts", "day")
    assert rows_of(schema.conform("integrity", integrity(frame)), *columns) == [
        (0, "h1", "192.0.2.1", None, None, "bad_body", 1, 4, 4, "2026-03-01"),
        (0, "h1", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 2, 1, 59.9, "2026-03-01"),
        (0, "h2", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 1, 3, 3, "2026-03-01"),
        (60, "h1", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 1, 60, 60, "2026-03-01"),
    ]


def test_every_verdict_is_either_refused_or_not() -> None:
    table = records(*({"verdict": verdict} for verdict in (*NAMES, "journal_gap")))
    assert set(task_records.fields_of(table, "refused")["verdict"].to_pylist()) == {
        *("integrity_missing", "integrity_unknown", "integrity_failed", "replayed", "oversize", "bad_envelope"),
        *("bad_body", "bad_src", "bad_seq", "bad_channel", "bad_target"),
        *("length_mismatch", "unsupported_version", "internal_error"),
    }


def test_an_inventor_of_names_fills_no_more_rows_than_allowed(spark: SparkSession) -> None:
    datagrams = [{**BAD, "src": f"x/{number}", "s": number} for number in range(10)]
    datagrams += [{**BAD, "src": "x/9", "s": 20}, {**BAD, "src": "x/0", "s": 0, "host": "h2"}]
    columns = ("host", "peer_ip", "claimed_src", "algo", "n", "first_ts", "last_ts")
    assert rows_of(integrity(refused(spark, *datagrams), cap=3), *columns) == [
        ("h1", None, "*", None, 7, 2, 8),
        ("h1", "192.0.2.1", "x/0", "hmac", 1, 0, 0),
        ("h1", "192.0.2.1", "x/1", "hmac", 1, 1, 1),
        ("h1", "192.0.2.1", "x/9", "hmac", 2, 9, 20),
        ("h2", "192.0.2.1", "x/0", "hmac", 1, 0, 0),
    ]


def test_nothing_is_lost_where_records_are_divided_otherwise() -> None:
    """The same rows in one batch and in two give the same sums."""
    whole = [{"s": number, "verdict": verdict} for number, verdict in enumerate(("accepted", "stale", "bad_body") * 4)]
    for kind, counted in (("receiver", "rows"), ("refused", "n"), ("heard", "rows")):
        sums = {sum(_sum(part, kind, counted) for part in parts) for parts in ([whole], [whole[:5], whole[5:]])}
        assert len(sums) == 1
        assert sums != {0}


def _sum(datagrams: list[dict[str, Any]], kind: str, counted: str) -> int:
    total: int = pc.sum(task_records.fields_of(records(*datagrams), kind)[counted]).as_py()
    return total
