"""Tables of traffic and of refused datagrams from a few records; driver/test_compute.py has the others."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from bccnd.core.wire.verdicts import NAMES
from bccnd.pipeline.records import task_records
from bccnd.pipeline.tables import schema
from bccnd.pipeline.tables.channel_traffic import channel_traffic
from bccnd.pipeline.tables.integrity import integrity
from tests.pipeline.frames import DAY, of_kind, records, rows_of

MINUTE = DAY // task_records.MINUTE


def table(spark: SparkSession, kind: str, *rows: dict[str, Any]) -> DataFrame:
    return task_records.of_kind(task_records.frame_of(spark, of_kind(kind, *rows)), kind)


def test_traffic_is_counted_by_minute_channel_and_source_and_the_nameless_together(spark: SparkSession) -> None:
    usual: dict[str, Any] = {"minute": MINUTE, "n": 1}
    lengths = [{**usual, "len": length} for length in range(1, 101)]
    lengths += [{**usual, "chan": "!t", "len": 30, "n": 2}, {**usual, "minute": MINUTE + 1, "len": 7}]
    nameless = [{"minute": MINUTE, "len": 5, "seq_key": key} for key in (1, 1, 2)]
    made = channel_traffic(table(spark, "lengths", *lengths), table(spark, "nameless", *nameless))
    assert rows_of(schema.conform("channel_traffic", made), *schema.TABLES["channel_traffic"].names, "day") == [
        (0, "!t", "h1/p/1", 2, 60, 30, 30, True, "2026-03-01"),
        (0, "data", "?", 2, 10, 5, 5, False, "2026-03-01"),
        (0, "data", "h1/p/1", 100, 5050, 50, 99, False, "2026-03-01"),
        (60, "data", "h1/p/1", 1, 7, 7, 7, False, "2026-03-01"),
    ]


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
