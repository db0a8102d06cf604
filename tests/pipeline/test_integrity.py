"""Who sent what was refused: each datagram once, and no more rows than anybody reads."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from bccnd.core.verdicts import NAMES
from bccnd.pipeline.schema import conform
from bccnd.pipeline.tables import integrity as module
from bccnd.pipeline.tables.integrity import integrity
from tests.pipeline.frames import obs, told

COLUMNS = ("win", "host", "peer_ip", "claimed_src", "algo", "verdict", "n", "first_ts", "last_ts", "day")


def test_refused_datagrams_are_counted_by_minute_receiver_sender_and_verdict(spark: SparkSession) -> None:
    bad = {"verdict": "integrity_failed", "peer_ip": "192.0.2.1", "src": "x/y/1", "algo": "hmac"}
    rows = obs(
        spark,
        {**bad, "s": 1},
        {**bad, "s": 59.9},
        {**bad, "s": 60},
        {**bad, "s": 3, "host": "h2"},
        {**bad, "s": 4, "src": None, "verdict": "bad_body", "algo": None},
        {"s": 5},
        {"s": 5, "verdict": "duplicate"},
    )
    assert told(conform("integrity", integrity(rows)), *COLUMNS) == [
        (0, "h1", "192.0.2.1", None, None, "bad_body", 1, 4, 4, "2026-03-01"),
        (0, "h1", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 2, 1, 59.9, "2026-03-01"),
        (0, "h2", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 1, 3, 3, "2026-03-01"),
        (60, "h1", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 1, 60, 60, "2026-03-01"),
    ]


def test_every_verdict_is_either_refused_or_not(spark: SparkSession) -> None:
    rows = obs(spark, *({"verdict": verdict} for verdict in (*NAMES, "journal_gap")))
    refused = {row.verdict for row in integrity(rows).collect()}
    assert refused == {
        *("integrity_missing", "integrity_unknown", "integrity_failed", "replayed", "oversize", "bad_envelope"),
        *("bad_body", "bad_src", "bad_seq", "bad_channel", "bad_target"),
        *("length_mismatch", "unsupported_version", "internal_error"),
    }


def test_who_invents_names_fills_no_more_rows_than_allowed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CAP", 3)
    bad = {"verdict": "integrity_failed", "peer_ip": "192.0.2.1", "algo": "hmac"}
    rows = [{**bad, "src": f"x/{number}", "s": number} for number in range(10)]
    rows += [{**bad, "src": "x/9", "s": 20}, {**bad, "src": "x/0", "s": 0, "host": "h2"}]
    assert told(integrity(obs(spark, *rows)), "host", "peer_ip", "claimed_src", "algo", "n", "first_ts", "last_ts") == [
        ("h1", None, "*", None, 7, 2, 8),
        ("h1", "192.0.2.1", "x/0", "hmac", 1, 0, 0),
        ("h1", "192.0.2.1", "x/1", "hmac", 1, 1, 1),
        ("h1", "192.0.2.1", "x/9", "hmac", 2, 9, 20),
        ("h2", "192.0.2.1", "x/0", "hmac", 1, 0, 0),
    ]
