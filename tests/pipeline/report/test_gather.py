"""Tables become facts: exact sums, bounded memory, and one line for a file that is not part of a table."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import PipelineError
from bccnd.pipeline.report import gather as reading
from bccnd.pipeline.report.facts import Channel, Clock, Course, Delivery, Link, Recording, Refusals, Start
from bccnd.pipeline.report.gather import Sums, gather
from bccnd.pipeline.report.table_reader import COLUMNS as READ
from bccnd.pipeline.report.table_reader import Tables, TimeRange
from tests.pipeline.reporting import COLUMNS, DAY, HOUR, MINUTE, START, put, write
from tests.support import ROOT

HOSTS = ("h01", "h02", "h03")
SENDERS = ("h01/app/7", "h02/app/7", "relay/9")


def lossy(host: str, sender: str, minute: int) -> int:
    return 5 if host == "h02" and minute >= 30 else 0


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write(tmp_path, HOSTS, SENDERS, missed=lossy, unsent=lambda sender, minute: int(sender == "relay/9"))
    return tmp_path


def test_sums_are_exact(tables: Path) -> None:
    facts = gather(Tables(str(tables)))
    assert (facts.start, facts.end, facts.step) == (START, START + 60 * MINUTE, MINUTE)
    assert facts.hosts == HOSTS
    links = {(link.host, link.program): link for link in facts.links}
    assert len(links) == 9
    assert links["h02", "relay/9"] == Link("h02", "relay/9", 3600, 3540, 3390, 150, 60, 0, 0, 0)
    assert links["h02", "h01/app"].ratio == 150 / 3600
    assert links["h02", "h02/app"].lost == 0
    # h01 and h03 receive relay/9, h02 receives two others; messages of the own host do not count
    assert (facts.crossing.due, facts.crossing.lost) == (7 * 3600, 2 * 150 + 3 * 60)
    assert (facts.rest, facts.folded, facts.missing) == (None, {}, ())
    assert facts.receivers["h02"] == Course((120,) * 60, (1,) * 30 + (11,) * 30, (0,) * 60)
    assert facts.receivers["h03"].lost == (1,) * 60
    assert facts.sending["relay"].lost == (3,) * 30 + (8,) * 30
    assert set(facts.sending) == {"h01", "h02", "relay"}


def test_only_the_time_that_was_asked_for_counts(tables: Path) -> None:
    wanted = TimeRange(START + 20 * MINUTE, START + 40 * MINUTE)
    facts = gather(Tables(str(tables)), wanted)
    assert (facts.start, facts.end) == (wanted.start, wanted.end)
    links = {(link.host, link.program): link for link in facts.links}
    assert links["h02", "h01/app"].lost_here == 50
    assert facts.messages == 20 * 60 * 3
    with pytest.raises(PipelineError, match="these tables have no rows from that time"):
        gather(Tables(str(tables)), TimeRange(START + 100 * MINUTE, None))


def test_sets_of_receivers_by_name_and_over_days(tmp_path: Path) -> None:
    write(tmp_path, HOSTS, SENDERS, minutes=2)
    for day, messages in ((DAY, 30), ("2026-11-22", 70)):
        put(tmp_path, "receiver_sets", [{"set_id": 2**62, "hosts": ["h02"]}, {"set_id": 9, "hosts": []}], day)
        put(tmp_path, "delivery", [{"src": "a", "set_id": 2**62, "n": messages}], day)
    assert gather(Tables(str(tmp_path))).delivery == (
        Delivery(frozenset(HOSTS), 360),
        Delivery(frozenset({"h02"}), 100),
    )


def test_everything_else_that_happened(tables: Path) -> None:
    first = {"src": "a", "program": "a", "first_ts": START, "last_ts": START, "cause": "first"}
    masked = {**first, "first_ts": START + 9, "cause": "masked"}
    jump = {**first, "src": "b/x/1", "program": "b/x", "cause": "jump", "skipped": 5000}
    clock = {**jump, "program": "c", "first_key": START - 2**63 + 5}
    put(tables, "epochs", [first, masked, jump, clock])
    clock = {"host": "h02", "ref_host": "h01", "p05_us": -5, "p50_us": 10, "p95_us": 20, "n": 100}
    put(tables, "skew", [{"host": "h01", "ref_host": "h01", "n": 5}, clock])
    put(tables, "skew", [{**clock, "p05_us": -9, "p50_us": 40, "p95_us": 50, "n": 300}], "2026-11-22")
    session = {"host": "h01", "start_ts": START, "end_ts": START + 9, "socket_drops": 2, "version": "1"}
    later = {**session, "start_ts": START + 10, "end_ts": START + 99, "tap_gaps": 1, "version": "2"}
    long_ago = {**session, "start_ts": START - 99, "end_ts": START - 9, "host": "h09"}
    put(tables, "_state/sessions", [later, session, long_ago])
    facts = gather(Tables(str(tables)))
    assert facts.starts == (
        *(Start("b/x", START, "jump", 5000), Start("c", START, "jump"), Start("a", START + 9, "masked")),
    )
    assert facts.clocks == (Clock("h02", "h01", -9, round(34_000 / 1000 + -1.5), 50, 400),)
    assert facts.recordings == (Recording("h01", START, START + 99, "2", 4, 1),)


def silence(src: str, start: int, end: int | None, kind: str, basis: str = "heartbeat") -> dict[str, object]:
    until = None if end is None else START + end * MINUTE
    return {"host": None, "src": src, "from_ts": START + start * MINUTE, "to_ts": until, "kind": kind, "basis": basis}


def test_a_program_is_silent_only_while_none_of_its_processes_sends(tables: Path) -> None:
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
    for program, (runs, silences, _, _) in cases.items():
        sources = [{"src": f"{program}/{pid}", "program": program, "cause": "first"} for pid in range(len(runs))]
        spans = [{"first_ts": START + first * MINUTE, "last_ts": START + last * MINUTE} for first, last in runs]
        put(tables, "epochs", [source | span for source, span in zip(sources, spans, strict=True)])
        put(tables, "liveness", [silence(f"{program}/{pid}", *rest) for pid, *rest in silences])
    put(tables, "liveness", [silence("h1/seen/1", 1, None, "open") | {"host": "h01"}])
    facts = gather(Tables(str(tables)))
    for program, (_, _, kinds, times) in cases.items():
        starts = [start for start in facts.starts if start.program == program]
        silences_left = [quiet for quiet in facts.silences if quiet.program == program]
        assert " ".join(["start" for _ in starts] + [quiet.kind for quiet in silences_left]) == kinds, program
        moments = [*(start.at for start in starts), *(at for quiet in silences_left for at in (quiet.start, quiet.end))]
        assert moments == [None if at is None else START + at * MINUTE for at in times], program
    assert not [quiet for quiet in facts.silences if quiet.program == "h1/seen"]


def test_the_same_hours_of_the_day_before(tables: Path) -> None:
    assert gather(Tables(str(tables))).before == {}
    day = 24 * HOUR
    counts = {"expected": 100, "any_seen": 100, "seen": 90, "lost_here": 10}
    row = {"host": "h01", "src": "h02/app/7", **counts}
    put(tables, "link_loss", [{**row, "win": at} for at in (START - day, START - day - MINUTE)], "2026-11-20")
    before = gather(Tables(str(tables)), TimeRange(START, START + HOUR)).before
    assert (sum(before["h01"].due), before["h01"].lost[0]) == (100, 10)


def test_a_datagram_that_many_hosts_refuse_counts_once(tables: Path) -> None:
    same = {"win": START, "peer_ip": "192.0.2.66", "algo": "hmac", "verdict": "integrity_failed"}
    rows = [
        {**same, "host": host, "claimed_src": claimed, "n": n, "first_ts": START + n, "last_ts": START + 100 + n}
        for host, claimed, n in (("h01", "a", 7), ("h01", "b", 2), ("h02", "a", 7), ("h03", None, 1))
    ]
    put(tables, "integrity", rows)
    assert gather(Tables(str(tables))).refusals == (
        Refusals("192.0.2.66", "integrity_failed", 9, 3, ("a", "b"), 2, START + 1, START + 107),
    )


def test_channels_with_their_busiest_minute_and_sender(tables: Path) -> None:
    rows = [
        {"win": START + minute * MINUTE, "chan": "alarm", "src": src, "msgs": n, "bytes": n * 9, "p50_len": 9}
        | {"p99_len": n, "directed": src == "b"}
        for src, minute, n in (("a", 0, 5000), ("a", 1, 1), ("b", 1, 6000))
    ]
    put(tables, "channel_traffic", rows)
    lost = {"chan": "alarm", "win": START, "seen": 7, "lost_here": 2, "lost_everywhere": 1}
    put(tables, "channel_loss", [{**lost, "host": host} for host in HOSTS])
    facts = gather(Tables(str(tables)))
    assert facts.channels[0] == Channel("alarm", 11_001, 99_009, 6000, 6001, "b", 6000, 30, 9)
    assert (facts.messages, len(facts.channels)) == (11_001 + 3 * 3600, 4)


def test_beyond_what_a_page_can_show_only_sums_are_kept(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gather(Tables(str(tables)))
    monkeypatch.setitem(reading.GROUPS, "pairs of hosts and programs", 4)
    facts = gather(Tables(str(tables)))
    assert len(facts.links) == 4
    assert facts.folded == {"pairs of hosts and programs": 5}
    assert facts.rest is not None
    # the worst are kept
    assert {(link.host, link.program) for link in facts.links[:2]} == {("h02", "relay/9"), ("h02", "h01/app")}
    total = [*facts.links, facts.rest]
    assert sum(link.expected for link in total) == sum(link.expected for link in whole.links)
    assert sum(link.lost for link in total) == sum(link.lost for link in whole.links)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 50), st.integers(0, 9)))),
)
def test_grouped_sums_are_right_however_often_a_group_returns(batches: list[list[tuple[str, int, int]]]) -> None:
    shape = pa.schema([("name", pa.string()), ("n", pa.int64()), ("top", pa.int64())])
    sums: dict[str, int] = {}
    tops: dict[str, int] = {}
    for name, number, top in (row for batch in batches for row in batch):
        sums[name] = sums.get(name, 0) + number
        tops[name] = max(tops.get(name, 0), top)
    added = Sums(["name"], {"n": "sum", "top": "max"})
    for batch in batches:
        added.add(pa.Table.from_pylist([dict(zip(shape.names, row, strict=True)) for row in batch], schema=shape))
    rows = added.table().to_pylist()
    assert {row["name"]: row["n"] for row in rows} == sums
    assert {row["name"]: row["top"] for row in rows} == tops
    assert [row["n"] for row in rows] == sorted(sums.values(), reverse=True)


def test_the_busiest_minute_is_that_of_every_channel_and_nothing_is_called_left_out(tables: Path) -> None:
    for day in range(2):
        wins = range(START + day * 24 * HOUR, START + (day * 24 + 10) * HOUR, MINUTE)
        traffic = [
            {"win": win, "chan": f"c/{chan:02}", "src": "h01/app/7", "msgs": 1 + chan, "p99_len": 1}
            for chan in range(40)
            for win in wins
        ]
        put(tables, "channel_traffic", traffic, f"2026-11-{21 + day}")
    facts = gather(Tables(str(tables)))
    peaks = {channel.name: channel.peak for channel in facts.channels if channel.name.startswith("c/")}
    assert peaks == {f"c/{chan:02}": 1 + chan for chan in range(40)}
    assert facts.folded == {}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_tables(tmp_path: Path) -> None:
    rows = 1_600_000
    write(tmp_path, HOSTS, SENDERS, minutes=1)
    path = put(tmp_path, "link_loss", [])
    shape = pq.read_schema(path)
    chance = random.Random(3)
    sources = [f"h{number:02d}/app/{number}" for number in range(40)]
    with pq.ParquetWriter(path, shape) as file:
        for _ in range(rows // 50_000):
            columns = {
                "host": pa.array([HOSTS[chance.randrange(3)] for _ in range(1000)] * 50),
                "src": pa.array([sources[chance.randrange(40)] for _ in range(1000)] * 50),
                "win": pa.array([START + chance.randrange(1440) * MINUTE for _ in range(1000)] * 50),
            }
            arrays = [columns.get(field.name, pa.array([1] * 50_000)).cast(field.type) for field in shape]
            file.write_table(pa.Table.from_arrays(arrays, schema=shape))
    code = (
        "import sys, pyarrow as pa\n"
        "from bccnd.pipeline.report.gather import gather\n"
        "from bccnd.pipeline.report.table_reader import Tables\n"
        "pa.set_memory_pool(pa.system_memory_pool())\n"
        "facts = gather(Tables(sys.argv[1]))\n"
        "print(sum(link.expected for link in facts.links), pa.default_memory_pool().max_memory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected, most = map(int, done.stdout.split())
    assert expected == rows + 3 * 3 * 60
    assert most < 90_000_000


def refused(where: Path | str) -> str:
    with pytest.raises(PipelineError) as caught:
        gather(Tables(str(where)))
    assert caught.value.remedy
    return caught.value.detail


def test_places_without_tables(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for table in COLUMNS:
        put(tmp_path / "tables", table, [])
    for place, part in (
        (tmp_path / "nowhere", "no such folder"),
        (tmp_path / "file", "not a folder"),
        (tmp_path / "empty", "link_loss does not exist"),
        (tmp_path / "tables", "these tables have no rows"),
        ("no-such-scheme://x/y", "no-such-scheme"),
    ):
        assert part in refused(place)


def test_files_that_are_not_what_was_written(tables: Path) -> None:
    spoiled = tables / "link_loss" / f"day={DAY}" / "part-00000.parquet"
    wrong = pq.read_table(spoiled, partitioning=None)
    wrong = wrong.set_column(wrong.schema.get_field_index("seen"), "seen", pa.array(["x"] * len(wrong)))
    for table, part in (
        (wrong.drop_columns(["win"]), "link_loss: it lacks win"),
        (wrong, "cannot be read: Failed to parse string"),
        (None, "cannot be read"),
    ):
        if table is None:
            spoiled.write_bytes(b"no parquet at all")
        else:
            pq.write_table(table, spoiled)
        detail = refused(tables)
        assert (str(spoiled) in detail, part in detail) == (True, True), detail


def test_files_of_no_build_are_left_out_and_tables_that_are_not_there_are_named(tmp_path: Path, tables: Path) -> None:
    whole = gather(Tables(str(tables)))
    for name in ("part-00009.parquet", ".part.parquet", "_SUCCESS"):
        (tables / "link_loss" / f"day={DAY}" / name).write_bytes(b"half a file")
    (tables / "_state").mkdir()
    assert gather(Tables(str(tables))) == whole
    put(tmp_path / "some", "link_loss", [{"host": "h01", "src": "a", "win": START}])
    missing = gather(Tables(str(tmp_path / "some"))).missing
    assert missing == tuple(sorted({name for name in READ if not name.startswith("_")} - {"link_loss"}))


def test_a_journal_is_distinguished_from_tables(tmp_path: Path, tables: Path) -> None:
    assert not Tables(str(tables)).is_journal
    (tmp_path / "journal" / "obs").mkdir(parents=True)
    assert Tables(str(tmp_path / "journal")).is_journal
