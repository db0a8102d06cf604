"""Tables become facts: exact sums, names instead of bits, memory that does not grow, one line for what is foreign."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import PipelineError
from bccnd.pipeline import schema
from bccnd.pipeline.report import gather as reading
from bccnd.pipeline.report.facts import Channel, Clock, Course, Delivery, Epoch, Link, Refusals, Silence
from bccnd.pipeline.report.gather import READ, Tables, Wanted, gather
from bccnd.pipeline.report.tally import Tally
from tests.pipeline.reporting import DAY, MINUTE, START, put, write
from tests.support import ROOT

HOSTS = ("h01", "h02", "h03")
SENDERS = ("h01/app/7", "h02/app/7", "relay/9")


def lossy(host: str, sender: str, minute: int) -> int:
    return 5 if host == "h02" and minute >= 30 else 0


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write(tmp_path, HOSTS, SENDERS, missed=lossy, unsent=lambda sender, minute: int(sender == "relay/9"))
    return tmp_path


def test_the_columns_that_are_read_are_those_that_are_written() -> None:
    kinds = {"text": {"string"}, "number": {"bigint", "int"}, "time": {"timestamp"}, "flag": {"boolean"}}
    for table, columns in READ.items():
        written = {one.name: one.dataType.simpleString() for one in schema.TABLES[table]}
        for name, kind in columns.items():
            assert written[name] in kinds[kind], (table, name)
    assert reading._bits((1 << 62, 1)) == [schema.WORD - 1, schema.WORD]


def test_sums_are_exact(tables: Path) -> None:
    facts = gather(Tables(str(tables)))
    assert (facts.start, facts.end, facts.step) == (START, START + 60 * MINUTE, MINUTE)
    assert (facts.hosts, facts.senders) == (HOSTS, 3)
    links = {(link.host, link.sender): link for link in facts.links}
    assert len(links) == 9
    assert links["h02", "relay/9"] == Link("h02", "relay/9", 3600, 3540, 3390, 150, 60, 0, 0, 0)
    assert links["h02", "h01/app/7"].ratio == 150 / 3600
    assert links["h02", "h02/app/7"].lost == 0
    # h01 and h03 hear relay/9, h02 hears two others; messages of the own host do not count
    assert (facts.due, facts.lost) == (7 * 3600, 2 * 150 + 3 * 60)
    assert (facts.rest, facts.folded, facts.missing) == (None, {}, ())
    assert facts.receivers["h02"] == Course((120,) * 60, (1,) * 30 + (11,) * 30, (0,) * 60)
    assert facts.receivers["h03"].lost == (1,) * 60
    assert facts.sending["relay"].lost == (3,) * 30 + (8,) * 30
    assert set(facts.sending) == {"h01", "h02", "relay"}


def test_a_host_that_was_not_there_has_not_lost_what_nobody_saw(tmp_path: Path) -> None:
    write(
        tmp_path,
        HOSTS,
        SENDERS,
        unsent=lambda sender, minute: int(sender == "relay/9"),
        absent=lambda host, minute: host == "h02" and minute < 20,
    )
    facts = gather(Tables(str(tmp_path)))
    links = {(link.host, link.sender): link for link in facts.links}
    assert (links["h02", "relay/9"].lost, links["h02", "relay/9"].due) == (40, 40 * 60)
    assert (links["h01", "relay/9"].lost, links["h01", "relay/9"].due) == (60, 60 * 60)
    assert facts.receivers["h02"].lost == (0,) * 20 + (1,) * 40


def test_only_the_time_that_was_asked_for_counts(tables: Path) -> None:
    wanted = Wanted(START + 20 * MINUTE, START + 40 * MINUTE)
    facts = gather(Tables(str(tables)), wanted)
    assert (facts.start, facts.end) == (wanted.start, wanted.end)
    links = {(link.host, link.sender): link for link in facts.links}
    assert links["h02", "h01/app/7"].lost_here == 50
    assert facts.all_messages == 20 * 60 * 3
    with pytest.raises(PipelineError, match="there is nothing in these tables from that time"):
        gather(Tables(str(tables)), Wanted(START + 100 * MINUTE, None))


def test_a_bit_is_the_host_that_it_is_on_its_day(tmp_path: Path) -> None:
    write(tmp_path, HOSTS, SENDERS, minutes=2)
    put(tmp_path, "host_dim", [{"host": "h02", "bit": 0}, {"host": "h09", "bit": 1}], day="2026-11-22")
    put(tmp_path, "delivery", [{"src": "h01/app/7", "seen_by": 0b10, "n": 70}], day="2026-11-22")
    put(tmp_path, "delivery", [{"src": "h01/app/7", "seen_by": 0b10, "n": 30}])
    facts = gather(Tables(str(tmp_path)))
    assert facts.delivery == (
        Delivery(frozenset(HOSTS), 360),
        Delivery(frozenset({"h09"}), 70),
        Delivery(frozenset({"h02"}), 30),
    )
    assert facts.hosts == (*HOSTS, "h09")


def test_more_hosts_than_a_word_has_bits(tmp_path: Path) -> None:
    hosts = [f"h{number:03d}" for number in range(70)]
    write(tmp_path, hosts[:2], SENDERS, minutes=1)
    put(tmp_path, "host_dim", [{"host": host, "bit": bit} for bit, host in enumerate(hosts)], day="2026-11-22")
    rows = [{"src": "a", "seen_by": 1 << 62, "seen_by_1": 0b101, "n": 4000}]
    put(tmp_path, "delivery", rows, day="2026-11-22", extra=("seen_by_1",))
    assert gather(Tables(str(tmp_path))).delivery[0] == Delivery(frozenset({"h062", "h063", "h065"}), 4000)


def test_everything_else_that_happened(tables: Path) -> None:
    first = {"src": "a", "epoch": 1, "first_ts": START, "last_ts": START, "hosts": 3, "cause": "first"}
    masked = {"src": "a", "epoch": 2, "first_ts": START + 9, "last_ts": START + 99, "hosts": 2, "cause": "masked"}
    jump = {"src": "b", "epoch": 2, "first_ts": START, "last_ts": START, "hosts": 1, "cause": "jump", "skipped": 5000}
    clock = {**jump, "src": "c", "first_key": START - 2**63 + 5}
    put(tables, "epochs", [first, masked, jump, clock])
    still = {"host": None, "src": "a", "from_ts": START + 5, "to_ts": None, "kind": "open", "basis": "heartbeat"}
    gap = {"host": "h01", "src": "a", "from_ts": START, "to_ts": START + 7, "kind": "gap", "basis": "any"}
    put(tables, "liveness", [still, gap])
    clock = {"host": "h02", "ref_host": "h01", "p05_us": -5, "p50_us": 10, "p95_us": 20, "n": 100}
    put(tables, "skew", [{"host": "h01", "ref_host": "h01", "n": 5}, clock])
    put(tables, "skew", [{**clock, "p05_us": -9, "p50_us": 40, "p95_us": 50, "n": 300}], "2026-11-22")
    put(tables, "messages", [{"src": "a", "first_ts": START + at} for at in range(11)])
    facts = gather(Tables(str(tables)))
    assert facts.epochs == (
        Epoch("b", 2, START, START, "jump", 1, 5000),
        Epoch("c", 2, START, START, "jump", 1),
        Epoch("a", 2, START + 9, START + 99, "masked", 2),
    )
    assert facts.silences == (
        Silence("h01", "a", START, START + 7, "gap", "any"),
        Silence(None, "a", START + 5, None, "open", "heartbeat"),
    )
    assert facts.clocks == (Clock("h02", "h01", -9, round(34_000 / 1000 + -1.5), 50, 400),)
    assert facts.messages == 11


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
    facts = gather(Tables(str(tables)))
    assert facts.channels[0] == Channel("alarm", 11_001, 99_009, 6000, True, 6001, "b", 6000)
    assert (facts.all_messages, facts.all_channels) == (11_001 + 3 * 3600, 4)


def test_beyond_what_a_page_can_show_only_sums_are_kept(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gather(Tables(str(tables)))
    monkeypatch.setattr(reading, "LINKS", 4)
    facts = gather(Tables(str(tables)))
    assert len(facts.links) == 4
    assert facts.folded == {"pairs of hosts and senders": 5}
    assert facts.rest is not None
    # the worst are kept
    assert {(link.host, link.sender) for link in facts.links[:2]} == {("h02", "relay/9"), ("h02", "h01/app/7")}
    total = [*facts.links, facts.rest]
    assert sum(link.expected for link in total) == sum(link.expected for link in whole.links)
    assert sum(link.lost for link in total) == sum(link.lost for link in whole.links)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 50), st.integers(0, 9)))),
    st.integers(min_value=1, max_value=10),
)
def test_a_tally_knows_its_sums_whatever_it_leaves_out(batches: list[list[tuple[str, int, int]]], cap: int) -> None:
    tally = Tally(["who"], {"n": "sum", "top": "max"}, "n", cap)
    shape = pa.schema([("who", pa.string()), ("n", pa.int64()), ("top", pa.int64())])
    sums: dict[str, int] = {}
    tops: dict[str, int] = {}
    for batch in batches:
        tally.add(pa.Table.from_pylist([dict(zip(shape.names, row, strict=True)) for row in batch], schema=shape))
        for name, number, top in batch:
            sums[name] = sums.get(name, 0) + number
            tops[name] = max(tops.get(name, 0), top)
    rows = tally.rows()
    assert len(rows) == min(cap, len(sums))
    assert sum(row["n"] for row in rows) + tally.rest["n"] == sum(sums.values())
    assert tally.folded == len(sums) - len(rows)
    assert [row["n"] for row in rows] == sorted(sums.values(), reverse=True)[:cap]
    assert all(row["top"] == tops[row["who"]] for row in rows)


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
        "from bccnd.pipeline.report.gather import Tables, gather\n"
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
    for table in schema.TABLES:
        put(tmp_path / "tables", table, [])
    for place, said in (
        (tmp_path / "nowhere", "no such folder"),
        (tmp_path / "file", "no folder"),
        (tmp_path / "empty", "host_dim and link_loss"),
        (tmp_path / "tables", "nothing in these tables"),
        ("no-such-scheme://x/y", "no-such-scheme"),
    ):
        assert said in refused(place)


def test_files_that_are_no_part_of_a_table(tables: Path) -> None:
    foreign = tables / "link_loss" / f"day={DAY}" / "foreign.parquet"
    wrong = pq.read_table(foreign.parent / "part-00000.parquet", partitioning=None)
    wrong = wrong.set_column(wrong.schema.get_field_index("seen"), "seen", pa.array(["1"] * len(wrong)))
    for table, said in (
        (pa.table({"host": ["a"], "src": ["b"]}), "link_loss: it has no column win"),
        (wrong, "it has seen as string"),
        (None, "cannot be read"),
    ):
        if table is None:
            foreign.write_bytes(b"no parquet at all")
        else:
            pq.write_table(table, foreign)
        detail = refused(tables)
        assert (str(foreign) in detail, said in detail) == (True, True), detail


def test_files_that_are_not_finished_are_left_out_and_tables_that_are_not_there_are_named(tables: Path) -> None:
    whole = gather(Tables(str(tables)))
    (tables / "link_loss" / f"day={DAY}" / ".part.parquet").write_bytes(b"half a file")
    (tables / "link_loss" / f"day={DAY}" / "_SUCCESS").write_bytes(b"")
    (tables / "_state").mkdir()
    assert gather(Tables(str(tables))) == whole
    shutil.rmtree(tables / "skew")
    assert gather(Tables(str(tables))).missing == ("skew",)


def test_a_journal_is_told_from_tables(tmp_path: Path, tables: Path) -> None:
    assert not Tables(str(tables)).is_journal
    (tmp_path / "journal" / "obs").mkdir(parents=True)
    assert Tables(str(tmp_path / "journal")).is_journal
