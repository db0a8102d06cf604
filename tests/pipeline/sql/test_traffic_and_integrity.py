"""Tables of traffic and of refused datagrams; the truth has the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bccnd.core.wire.verdicts import NAMES
from bccnd.pipeline.units import combine
from tests.pipeline.fleets import Rows
from tests.pipeline.hand_made import Journal, row, since, tables


def of(rows: Rows, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of a table, times as seconds of the day."""
    times = ("win", "first_ts", "last_ts")
    found = [tuple(since(one[name]) if name in times else one[name] for name in columns) for one in rows[table]]
    return sorted(found, key=lambda one: [(value is not None, value) for value in one])


TRAFFIC = ("win", "chan", "src", "msgs", "bytes", "p50_len", "p99_len", "directed")


BAD: dict[str, Any] = {"verdict": "integrity_failed", "peer_ip": "192.0.2.1", "src": "x/y/1", "algo": "hmac"}
#: since when there are refused datagrams, and some of each verdict
REFUSED, EACH = 600, 1200


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The tables of two hosts that heard all of this."""
    named = [row(length / 10, length, length=length) for length in range(1, 101)]
    named += [row(11, 101, length=30, chan="!t"), row(12, 102, length=30, chan="!t"), row(61, 103, length=7)]
    nameless = [row(20, seq, src="?", length=5) for seq in (1, 1, 2)]
    copies = [row(11.5, 101, length=30, chan="!t", verdict="duplicate")]
    refused = [row(REFUSED + s, **BAD) for s in (1, 59.9, 60)]
    refused.append(row(REFUSED + 4, **{**BAD, "src": None, "verdict": "bad_body", "algo": None}))
    each = [row(EACH + place, 200 + place, verdict=name) for place, name in enumerate(NAMES)]
    heard = Journal("h1", [*named, *nameless, *copies, *refused, *each])
    return tables(tmp_path_factory.mktemp("rows"), heard, Journal("h2", [*named, *nameless, row(REFUSED + 3, **BAD)]))


def test_traffic_is_counted_by_minute_channel_and_source(rows: Rows) -> None:
    assert [one for one in of(rows, "channel_traffic", *TRAFFIC) if one[0] < REFUSED] == [
        (0, "!t", "m/p/1", 2, 60, 30, 30, True),
        (0, "data", "?", 2, 10, 5, 5, False),
        (0, "data", "m/p/1", 100, 5050, 50, 99, False),
        (60, "data", "m/p/1", 1, 7, 7, 7, False),
    ]


def test_refused_datagrams_are_counted_by_all_that_they_claim(rows: Rows) -> None:
    columns = ("win", "host", "peer_ip", "claimed_src", "algo", "verdict", "n", "first_ts", "last_ts")
    assert [one for one in of(rows, "integrity", *columns) if one[0] < EACH] == [
        (600, "h1", "192.0.2.1", None, None, "bad_body", 1, 604, 604),
        (600, "h1", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 2, 601, 659.9),
        (600, "h2", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 1, 603, 603),
        (660, "h1", "192.0.2.1", "x/y/1", "hmac", "integrity_failed", 1, 660, 660),
    ]


def test_every_verdict_is_either_refused_or_not(rows: Rows) -> None:
    assert {verdict for win, verdict in of(rows, "integrity", "win", "verdict") if win >= EACH} == {
        *("integrity_missing", "integrity_unknown", "integrity_failed", "replayed", "oversize", "bad_envelope"),
        *("bad_body", "bad_src", "bad_seq", "bad_channel", "bad_target"),
        *("length_mismatch", "unsupported_version", "internal_error"),
    }


def test_an_inventor_of_names_fills_no_more_rows_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combine, "CAP", 3)
    invented = [row(number, **{**BAD, "src": f"x/{number}"}) for number in range(10)]
    invented.append(row(20, **{**BAD, "src": "x/9"}))
    rows = tables(tmp_path, Journal("h1", invented), Journal("h2", [row(0, **{**BAD, "src": "x/0"})]))
    assert of(rows, "integrity", "host", "peer_ip", "claimed_src", "algo", "n", "first_ts", "last_ts") == [
        ("h1", None, "*", None, 7, 2, 8),
        ("h1", "192.0.2.1", "x/0", "hmac", 1, 0, 0),
        ("h1", "192.0.2.1", "x/1", "hmac", 1, 1, 1),
        ("h1", "192.0.2.1", "x/9", "hmac", 2, 9, 20),
        ("h2", "192.0.2.1", "x/0", "hmac", 1, 0, 0),
    ]
