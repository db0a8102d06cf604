"""Tables become facts: exact sums, and one line for what cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import PipelineError
from bccnd.pipeline.report import fact_queries
from bccnd.pipeline.report.delta_tables import Tables, TimeRange
from bccnd.pipeline.report.fact_queries import query_facts
from bccnd.pipeline.report.facts import (
    BusTraffic,
    Channel,
    Clock,
    Course,
    Delivery,
    Facts,
    Link,
    MissingRecords,
    Recording,
    Refusals,
    Start,
    Unordered,
    UnusableFile,
)
from tests.pipeline.reporting import COLUMNS, DAY, HOUR, MINUTE, START, put, write

HOSTS = ("h01", "h02", "h03")
SENDERS = ("h01/app/7", "h02/app/7", "relay/9")


def lossy(host: str, sender: str, minute: int) -> int:
    return 5 if host == "h02" and minute >= 30 else 0


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write(tmp_path, HOSTS, SENDERS, missed=lossy, unsent=lambda sender, minute: int(sender == "relay/9"))
    return tmp_path


def query(tables: Path, start: int | None = None, end: int | None = None) -> Facts:
    return query_facts(Tables(str(tables)), TimeRange(start, end))


def test_sums_are_exact(tables: Path) -> None:
    facts = query(tables)
    assert (facts.start, facts.end, facts.step) == (START, START + 60 * MINUTE, MINUTE)
    assert facts.hosts == HOSTS
    links = {(link.host, link.program): link for link in facts.links}
    assert len(links) == 9
    assert links["h02", "relay/9"] == Link("h02", "relay/9", 3600, 3540, 3390, 150, 60, 0, 0, 0)
    assert links["h02", "h01/app"].ratio == 150 / 3600
    assert links["h02", "h02/app"].lost == 0
    # h01 and h03 receive relay/9, h02 receives two others; messages of the own host do not count
    assert (facts.crossing.due, facts.crossing.lost) == (7 * 3600, 2 * 150 + 3 * 60)
    assert (facts.rest, facts.folded) == (None, {})
    assert facts.receivers["h02"] == Course((120,) * 60, (1,) * 30 + (11,) * 30, (0,) * 60)
    assert facts.receivers["h03"].lost == (1,) * 60
    assert facts.sending["relay"].lost == (3,) * 30 + (8,) * 30
    assert set(facts.sending) == {"h01", "h02", "relay"}
    assert (facts.before, facts.missing, facts.unusable) == ({}, (), ())


def at(minute: float) -> int:
    return START + round(minute * MINUTE)


_EPOCH = {"src": "b/x/1", "program": "b/x", "first_ts": START, "last_ts": START, "cause": "jump", "skipped": 5000}
_CLOCK = {"host": "h02", "ref_host": "h01", "p05_us": -5, "p50_us": 10, "p95_us": 20, "n": 100}
_SESSION = {"host": "h01", "start_ts": START, "end_ts": START + 9, "socket_drops": 2, "version": "1"}
_HOLE = {"host": "h02", "journal_id": "j", "first_rec": 5, "last_rec": 7, "low_us": at(1), "high_us": at(2)}
_REFUSED = {"win": START, "peer_ip": "192.0.2.66", "algo": "hmac", "verdict": "integrity_failed"}
_ALARM = {"chan": "alarm", "directed": False}
_LATER = "2026-11-22"

#: field of the facts -> rows of tables (by day), and what becomes of them
CASES: dict[str, tuple[dict[tuple[str, str], list[dict[str, Any]]], tuple[Any, ...]]] = {
    "starts": (
        {
            ("epochs", DAY): [
                _EPOCH | {"src": "a", "program": "a", "cause": "first"},
                _EPOCH | {"src": "a", "program": "a", "first_ts": START + 9, "cause": "masked", "skipped": None},
                _EPOCH,
                # of sources that number by the clock
                _EPOCH | {"program": "c", "first_key": START - 2**63 + 5},
                # others are told by `unordered`
                *(_EPOCH | {"src": "d", "program": "d", "first_ts": START + n, "cause": "restart"} for n in range(9)),
                _EPOCH | {"src": "d", "program": "d", "first_ts": START + 9, "cause": "unordered"},
            ]
        },
        (Start("b/x", START, "jump", 5000), Start("c", START, "jump"), Start("a", START + 9, "masked")),
    ),
    "unordered": (
        {("epochs", DAY): [_EPOCH | {"src": f"d/x/{n}", "first_ts": at(n), "cause": "unordered"} for n in range(3)]},
        (Unordered("b/x", 3, at(2)),),
    ),
    # over several days the middle is their weighted mean
    "clocks": (
        {
            ("skew", DAY): [{"host": "h01", "ref_host": "h01", "n": 5}, _CLOCK],
            ("skew", _LATER): [_CLOCK | {"p05_us": -9, "p50_us": 40, "p95_us": 50, "n": 300}],
        },
        (Clock("h02", "h01", -9, 33, 50, 400),),
    ),
    "recordings": (
        {
            ("_state/sessions", ""): [
                _SESSION | {"start_ts": START + 10, "end_ts": START + 99, "tap_gaps": 1, "version": "2"},
                _SESSION,
                _SESSION | {"start_ts": START - 99, "end_ts": START - 9, "host": "h09"},
            ]
        },
        (Recording("h01", START, START + 99, "2", 4, 1),),
    ),
    "missing": (
        {("_state/missing", ""): [_HOLE, _HOLE | {"low_us": at(-9), "high_us": at(-8)}, _HOLE | {"high_us": None}]},
        (
            MissingRecords("h02", "j", 5, 7, at(1), at(2)),
            MissingRecords("h02", "j", 5, 7, at(1), None),
        ),
    ),
    "unusable": (
        {("_state/damaged", ""): [{"path": "obs/x", "why": "unknown clock: 1970", "host": "h01"}]},
        (UnusableFile("h01", "obs/x", "unknown clock: 1970"),),
    ),
    # a datagram that many hosts refuse counts once
    "refusals": (
        {
            ("integrity", DAY): [
                _REFUSED | {"host": host, "claimed_src": src, "n": n, "first_ts": START + n, "last_ts": START + 99 + n}
                for host, src, n in (("h01", "a", 7), ("h01", "b", 2), ("h02", "a", 7), ("h03", None, 1))
            ]
        },
        (Refusals("192.0.2.66", "integrity_failed", 9, 3, ["a", "b"], 2, START + 1, START + 106),),
    ),
    "delivery": (
        {
            (table, day): rows
            for day, n in ((DAY, 3000), (_LATER, 7000))
            for table, rows in (
                ("receiver_sets", [{"set_id": 2**62, "hosts": ["h02"]}, {"set_id": 9, "hosts": []}]),
                ("delivery", [{"src": "a", "set_id": 2**62, "n": n}]),
            )
        },
        # behind those of `write`
        (Delivery(frozenset(HOSTS), 10_740), Delivery(frozenset({"h02"}), 10_000)),
    ),
    # with its busiest minute and program
    "channels": (
        {
            ("channel_traffic", DAY): [
                _ALARM | {"win": at(minute), "src": src, "msgs": n, "bytes": n * 9, "p99_len": n}
                for src, minute, n in (("a", 0, 5000), ("a", 1, 1), ("b", 1, 6000))
            ]
            + [
                _ALARM | {"win": START, "chan": chan, "src": "a", "msgs": 10, "bytes": 50}
                for chan in ("heartbeat/a", "heartbeat/b/c", "bccn/report/a")
            ],
            ("channel_loss", DAY): [
                {"host": host, "chan": "alarm", "win": START, "seen": 7, "lost_here": 2, "lost_everywhere": 1}
                for host in HOSTS
            ],
        },
        (
            Channel("alarm", 11_001, 99_009, 6000, 6001, "b", 6000, 30, 9),
            *(Channel(f"data/{src}", 3600, 360_000, 120, 60, src.removesuffix("/7"), 3600) for src in SENDERS),
        ),
    ),
}


@pytest.mark.parametrize("field", CASES)
def test_rows_become_facts(tables: Path, field: str) -> None:
    content, expected = CASES[field]
    for (table, day), rows in content.items():
        put(tables, table, rows, day)
    facts = query(tables)
    assert getattr(facts, field) == expected
    if field == "channels":
        # heartbeats and reports are counted, but no channels
        assert (facts.bus, facts.messages) == (BusTraffic(3, 30, 150), 11_001 + 30 + 3 * 3600)


def silence(src: str, start: int, end: int | None, kind: str, basis: str = "heartbeat") -> dict[str, object]:
    until = None if end is None else at(end)
    return {"host": None, "src": src, "from_ts": at(start), "to_ts": until, "kind": kind, "basis": basis}


def test_a_program_is_silent_while_none_of_its_processes_sends(tables: Path) -> None:
    """Each program, its processes (minutes of the first and last message) and silences, and what becomes of it."""
    cases: dict[str, tuple[list[tuple[int, int]], list[Any], str, list[int | None]]] = {
        "h1/restarted": ([(0, 20), (21, 59)], [(0, 20, None, "open")], "start", [21]),
        "h1/back_late": ([(0, 20), (40, 59)], [(0, 20, None, "open")], "start gap", [40, 20, 40]),
        "h1/dead": ([(0, 10), (11, 20)], [(0, 10, None, "open"), (1, 20, None, "open")], "start open", [11, 20, None]),
        "h1/one_of_two": ([(0, 20), (0, 59)], [(0, 20, None, "open")], "", []),
        "h1/both_end": ([(0, 20), (0, 20)], [(0, 20, None, "open"), (1, 20, None, "open")], "open", [20, None]),
        "h1/tool": ([(0, 1), (30, 31)], [(0, 1, None, "open", "any")], "", []),
        "h1/rebooted": ([(0, 20), (30, 59)], [(0, 20, None, "host_down", "any")], "start host_down", [30, 20, 30]),
        "h1/hung": ([(0, 59)], [(0, 20, 30, "gap")], "gap", [20, 30]),
        "h1/covered": ([(0, 59), (0, 59)], [(0, 20, 30, "gap")], "", []),
    }
    epochs, liveness = [], [silence("h1/seen/1", 1, None, "open") | {"host": "h01"}]
    for program, (runs, silences, _, _) in cases.items():
        for pid, (first, last) in enumerate(runs):
            span = {"first_ts": at(first), "last_ts": at(last)}
            epochs.append({"src": f"{program}/{pid}", "program": program, "cause": "first", **span})
        liveness += [silence(f"{program}/{pid}", *rest) for pid, *rest in silences]
    put(tables, "epochs", epochs)
    put(tables, "liveness", liveness)
    facts = query(tables)
    for program, (_, _, kinds, times) in cases.items():
        starts = [start for start in facts.starts if start.program == program]
        left = [quiet for quiet in facts.silences if quiet.program == program]
        assert " ".join(["start" for _ in starts] + [quiet.kind for quiet in left]) == kinds, program
        moments = [*(start.at for start in starts), *(time for quiet in left for time in (quiet.start, quiet.end))]
        assert moments == [None if minute is None else at(minute) for minute in times], program
    assert not [quiet for quiet in facts.silences if quiet.program == "h1/seen"]


def test_the_same_hours_of_the_day_before(tables: Path) -> None:
    day = 24 * HOUR
    counts = {"expected": 100, "any_seen": 100, "seen": 90, "lost_here": 10}
    row = {"host": "h01", "src": "h02/app/7", **counts}
    put(tables, "link_loss", [{**row, "win": time} for time in (START - day, START - day - MINUTE)], "2026-11-20")
    before = query(tables, START, START + HOUR).before
    assert (sum(before["h01"].due), before["h01"].lost[0]) == (100, 10)


def test_beyond_what_a_page_can_show_only_sums_are_kept(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = query(tables)
    monkeypatch.setitem(fact_queries.LIMITS, "pairs of hosts and programs", 4)
    facts = query(tables)
    assert facts.folded == {"pairs of hosts and programs": 5}
    # the worst are kept
    assert {(link.host, link.program) for link in facts.links[:2]} == {("h02", "relay/9"), ("h02", "h01/app")}
    assert len(facts.links) == 4
    assert facts.rest is not None
    total = [*facts.links, facts.rest]
    for name in Link._fields[2:]:
        assert sum(getattr(link, name) for link in total) == sum(getattr(link, name) for link in whole.links)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for table in COLUMNS:
        put(tmp_path / "no_rows", table, [])
    for name in ("spoiled", "removed"):
        write(tmp_path / name, HOSTS, SENDERS, minutes=1)
    put(tmp_path / "spoiled", "skew", [_CLOCK]).write_bytes(b"no parquet at all")
    put(tmp_path / "removed", "skew", [_CLOCK]).unlink()
    for place, reason, part in (
        (tmp_path / "nowhere", "no_tables", "no such folder"),
        (tmp_path / "file", "no_tables", "not a folder"),
        (tmp_path, "no_tables", "link_loss does not exist"),
        (tmp_path / "no_rows", "empty", "no rows"),
        ("no-such-scheme://x/y", "no_place", "no-such-scheme"),
        (tmp_path / "spoiled", "foreign", "skew/day=2026-11-21/"),
        (tmp_path / "removed", "renewed", "skew/day=2026-11-21/"),
    ):
        with pytest.raises(PipelineError, match=part) as caught:
            query_facts(Tables(str(place)))
        assert caught.value.reason == reason
        assert caught.value.remedy


def test_a_path_is_no_pattern(tmp_path: Path) -> None:
    for name in ("a*b?c", "axbyc"):
        write(tmp_path / name, HOSTS, SENDERS, minutes=1)
    assert query(tmp_path / "a*b?c").messages == 180
