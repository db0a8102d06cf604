"""Captures as a journal: the same verdicts as a daemon gives, the same files every time, and nothing where it fails."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bccnd
from bccnd.core.formats.tap_record import observe, seq_of
from bccnd.core.wire.frames import read_tapped
from bccnd.errors import JournalError
from bccnd.journal import capture_import, file_names, record_writer, schema
from bccnd.journal.capture_import import CaptureSet, CaptureSettings, ingest
from bccnd.version import VERSION
from tests.core.captures import Frame, enhanced, ether, interface, ipv4, pcap, pcapng, section, statistics, udp
from tests.e2e.harness import Daemon, Wire, datagram, wait
from tests.pipeline.journals import T, frame
from tests.recorder.material import table
from tests.refusals import refused
from tests.support import cannot_here, need_root

SECOND = 10**9
SETTINGS = CaptureSettings("relay02")

Rows = list[dict[str, Any]]


def message_frame(at: float, seq: int, src: str = "relay01/a/1", chan: str = "a/b", payload: str = "x") -> Frame:
    return frame(at, datagram(src, seq, chan, payload))


def put(path: Path, data: bytes) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return str(path)


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def verdicts(frames: Iterable[Frame], settings: CaptureSettings, folder: Path) -> list[str]:
    ingest([put(folder / "x.pcap", pcap(frames))], str(folder / "journal"), settings)
    return [row["verdict"] for row in table(folder / "journal")]


def test_every_datagram_is_a_row(tmp_path: Path) -> None:
    foreign = Frame(T, ether(ipv4(udp(b"x", port=53))))
    last = Frame(T + 9 * SECOND, foreign.data)
    frames = [foreign, message_frame(1, 7), message_frame(2, 8, payload="yes"), frame(3, b"noise"), last]
    path = put(tmp_path / "x.pcap", pcap(frames))
    done = ingest([path], str(tmp_path / "j"), SETTINGS)
    (file,) = (tmp_path / "j/obs").rglob("*.parquet")
    assert pq.read_schema(file).equals(schema.OBS)
    rows = table(tmp_path / "j")
    assert [row["rec_no"] for row in rows] == [1, 2, 3]
    assert [row["verdict"] for row in rows] == ["accepted", "accepted", "bad_envelope"]
    assert [row.pop("ts").timestamp() - T // SECOND for row in rows] == [1, 2, 3]
    place = {"host": "relay02", "journal_id": done.journal_id, "rec_no": 2}
    observed = observe("accepted", "capture", 1, 0, "10.0.0.1:4000", datagram("relay01/a/1", 8, "a/b", "yes"))._asdict()
    observed["len"] = observed.pop("length")
    observed["share"] = schema.share_of("relay01/a/1", "relay02")
    assert {"ts": 0, **rows[1]} == {**place, **observed}
    (session,) = table(tmp_path / "j", "sessions")
    assert [session[name].timestamp() for name in ("start_ts", "end_ts")] == [1_700_000_000, 1_700_000_009]
    assert (session["socket_drops"], session["tap_gaps"], session["version"]) == (0, 0, VERSION)
    assert done.verdicts == {"accepted": 2, "bad_envelope": 1}
    assert (done.rows, done.files, done.tally.packets, done.tally.other) == (3, 1, 5, 2)
    # Without payloads, where they are not wanted; the rest is the same.
    ingest([path], str(tmp_path / "k"), CaptureSettings("relay02", payload=False))
    first, *_ = table(tmp_path / "k")
    assert (first["payload"], first["chan"], first["len"]) == (None, "a/b", 28)


def test_what_the_capturing_host_missed_is_in_the_session(tmp_path: Path) -> None:
    data = section() + interface() + enhanced(message_frame(1, 7)) + statistics(12)
    ingest([put(tmp_path / "x.pcapng", data)], str(tmp_path / "j"), SETTINGS)
    assert [row["socket_drops"] for row in table(tmp_path / "j", "sessions")] == [12]


def test_a_file_has_the_rows_of_one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "_MAX_BYTES", 500)
    monkeypatch.setattr(capture_import, "PART", 2)
    hour = 3600
    frames = [message_frame(number * hour / 2, number + 1) for number in range(8)]
    ingest([put(tmp_path / "x.pcap", pcap(frames))], str(tmp_path / "j"), SETTINGS)
    names = [
        file_names.read_path(str(path.relative_to(tmp_path / "j")))
        for path in sorted((tmp_path / "j").rglob("obs/**/*.parquet"))
    ]
    starts = [("2023-11-14", 1), ("2023-11-14", 3), ("2023-11-15", 5), ("2023-11-15", 7)]
    assert [(name.day, name.first) for name in names if name] == starts
    assert [row["rec_no"] for row in table(tmp_path / "j")] == list(range(1, 9))
    monkeypatch.undo()
    ingest([str(tmp_path / "x.pcap")], str(tmp_path / "j"), SETTINGS)
    # another division of the same rows: nothing of the first one is left
    assert [row["rec_no"] for row in table(tmp_path / "j")] == list(range(1, 9))


def test_verdicts_depend_on_the_time_of_the_stamps(tmp_path: Path) -> None:
    frames = [message_frame(at, seq) for at, seq in ((0, 1), (0.1, 1), (0.2, 3), (0.3, 2), (3, 3), (3.1, 4))]
    expected = ["accepted", "duplicate", "accepted", "stale", "restart", "accepted"]
    assert verdicts(frames, SETTINGS, tmp_path) == expected
    late = CaptureSettings("relay02", late="deliver")
    assert verdicts(frames, late, tmp_path)[3] == "reordered"
    # A clock that is set back is no time that passes backwards.
    frames = [message_frame(at, 1) for at in (100, 0, 1, 4)]
    assert verdicts(frames, SETTINGS, tmp_path / "set back") == ["accepted", "duplicate", "duplicate", "restart"]


def test_who_is_silent_for_a_day_is_forgotten_as_by_a_daemon(tmp_path: Path) -> None:
    beats = [message_frame(5 * number, number + 1, chan="heartbeat/relay01/a/1") for number in range(4)]
    frames = [*beats, message_frame(60, 1), message_frame(61, 2, src="b"), message_frame(61 + 25.5 * 3600, 2, src="b")]
    ingest([put(tmp_path / "x.pcap", pcap(frames))], str(tmp_path / "j"), SETTINGS)
    rows = table(tmp_path / "j")
    # a death begins everything anew, and so does a day
    assert [(row["verdict"], row["epoch"]) for row in rows] == [("accepted", 1)] * 7


def test_a_clock_that_is_set_begins_a_session(tmp_path: Path) -> None:
    seen = []
    for jump in (26 * 3600, 53 * 365 * 86_400):
        beats = [message_frame(5 * at - jump, at + 1, chan="heartbeat/relay01/a/1") for at in range(4)]
        rest = [(20, 3), (20.1, 3), (21, 900), (15, 5000), (16, 5000)]
        frames = [*beats, message_frame(20 - jump, 1, src="b"), *(message_frame(at, seq) for at, seq in rest)]
        folder = tmp_path / str(jump)
        ingest([put(folder / "x.pcap", pcap(frames))], str(folder / "j"), SETTINGS)
        seen.append([(row["verdict"], row["epoch"]) for row in table(folder / "j")])
        names = ("start_ts", "end_ts"), ("first_rec_no", "last_rec_no")
        assert [
            [*(row[name].timestamp() - T // SECOND for name in names[0]), *(row[name] for name in names[1])]
            for row in table(folder / "j", "sessions")
        ] == [[-jump, 20 - jump, 1, 5], [15, 16, 9, 10], [20, 21, 6, 8]]
    assert seen[0] == seen[1]
    assert [verdict for verdict, _ in seen[0][5:]] == ["accepted", "duplicate", "accepted", "accepted", "duplicate"]


def test_a_capture_again_or_grown_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    # longer than what its name is made from
    frames = [message_frame(number, number + 1, payload="x" * 1000) for number in range(100)]
    path = put(tmp_path / "x.pcap", pcap(frames[:80]))
    first = ingest([path], str(tmp_path / "j"), SETTINGS)
    before = all_files(tmp_path / "j")
    shutil.copy(path, tmp_path / "of another name")
    assert ingest([str(tmp_path / "of another name")], str(tmp_path / "j"), SETTINGS) == first
    assert all_files(tmp_path / "j") == before
    put(tmp_path / "x.pcap", pcap(frames))
    assert ingest([path], str(tmp_path / "j"), SETTINGS).journal_id == first.journal_id
    assert len(table(tmp_path / "j")) == 100
    assert len(table(tmp_path / "j", "sessions")) == 1
    assert ingest([path], str(tmp_path / "j"), CaptureSettings("relay03")).journal_id != first.journal_id


def test_captures_that_overlap_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    frames = [message_frame(number, number + 1) for number in range(30)]
    packed = put(tmp_path / "x.pcap.gz", gzip.compress(pcap(frames[::2])))
    paths = [packed, put(tmp_path / "odd", pcapng(frames[1::2]))]
    assert ingest(paths, str(tmp_path / "j"), SETTINGS).verdicts == {"accepted": 30}
    assert [seq_of(row["seq_key"]) for row in table(tmp_path / "j")] == list(range(1, 31))


def test_of_many_rotated_captures_one_is_open_at_a_time(tmp_path: Path) -> None:
    captures = CaptureSet([put(tmp_path / f"{n:02}", pcap([message_frame(n, n + 1)])) for n in range(60)], SETTINGS)
    before = len(os.listdir("/proc/self/fd"))
    opened = [len(os.listdir("/proc/self/fd")) - before for _ in captures.packets()]
    assert len(opened) == 60
    assert max(opened) <= 1


def broken(kind: str, folder: Path) -> list[str]:
    good = pcap(message_frame(number, number + 1) for number in range(50))
    made = {
        "empty": b"",
        "foreign": b"PAR1" * 100,
        "damaged": good + b"\xff" * 100,
        "cut gzip": gzip.compress(good)[:-20],
        "no packets": pcap([]),
        "nothing for us": pcap([Frame(T, ether(ipv4(udp(b"x", port=53))))]),
        "of another link": pcap([message_frame(1, 1)], link=127),
    }
    if kind in made:
        return [put(folder / "x.pcap", made[kind])]
    if kind == "one of two":
        return [put(folder / "good.pcap", good), put(folder / "x.pcap", b"")]
    return [str(folder / "x.pcap")] if kind == "missing" else [str(folder)]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        *(("empty", "bad_capture"), ("foreign", "bad_capture"), ("damaged", "bad_capture"), ("cut gzip", "unreadable")),
        *(("no packets", "no_bccn"), ("nothing for us", "no_bccn"), ("of another link", "no_bccn")),
        *(("one of two", "bad_capture"), ("missing", "unreadable"), ("a folder", "unreadable")),
    ],
)
def test_what_cannot_be_read_leaves_the_journal_as_it_was(
    tmp_path: Path, kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that what is damaged behind its beginning has filled some files by then.
    monkeypatch.setattr(record_writer, "_MAX_BYTES", 500)
    monkeypatch.setattr(capture_import, "PART", 5)
    journal = tmp_path / "j"
    ingest([put(tmp_path / "before.pcap", pcap([message_frame(-100, 1)]))], str(journal), SETTINGS)
    before = all_files(journal)
    with pytest.raises(JournalError) as caught:
        ingest(broken(kind, tmp_path), str(journal), SETTINGS)
    assert (caught.value.reason, bool(caught.value.remedy), "\n" in caught.value.detail) == (reason, True, False)
    assert all_files(journal) == before
    assert {path.name for path in journal.iterdir()} == {"obs", "sessions"}


def test_a_host_or_a_journal_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "x.pcap", pcap([message_frame(1, 1)]))
    for reason, place, host in (("bad_host", str(tmp_path / "j"), "../up"), ("unwritable", path, "relay02")):
        with refused(reason, kind=JournalError):
            ingest([path], place, CaptureSettings(host))


@pytest.mark.parametrize(
    "options", [["-i", "lo"], ["-i", "any", "-y", "LINUX_SLL2"], ["-i", "any", "-y", "LINUX_SLL"]], ids=" ".join
)
def test_what_tcpdump_captures_is_judged_as_a_daemon_judges_it(tmp_path: Path, options: list[str]) -> None:
    tcpdump = shutil.which("tcpdump") or cannot_here("there is no tcpdump")
    need_root("capturing")
    with Daemon(tmp_path / "a") as daemon, Wire(daemon.port) as wire:
        capture = str(tmp_path / "x.pcap")
        words = f"-U --immediate-mode -s 2048 -B 4096 -Z root udp port {daemon.port}".split()
        dump = subprocess.Popen([tcpdump, *options, "-w", capture, *words], stderr=subprocess.PIPE)
        try:
            assert dump.stderr is not None
            wait(lambda: b"listening on" in dump.stderr.readline(), "tcpdump")  # type: ignore[union-attr]
            traffic = [datagram(f"relay02/p/{n % 3}", n // 3 + 1, "a/b", "x" * n) for n in range(60)]
            traffic = [*traffic[:30], traffic[3], traffic[10], b"noise", *traffic[40:], traffic[33], b"BCCN1[2]ab"]
            traffic += [datagram("?", 1, "a", "same"), datagram("?", 1, "a", "same"), datagram("q", 1, "!x/y/1")]
            tapped = taps(daemon, wire, traffic)
            wait(lambda: traffic[-1] in Path(capture).read_bytes(), "the end of the capture")
        finally:
            dump.send_signal(signal.SIGINT)
            dump.communicate()
    done = ingest([capture], str(tmp_path / "j"), CaptureSettings("relay01", port=daemon.port))
    rows = table(tmp_path / "j")
    names = ("verdict", "src", "peer_port", "len")
    assert [[row[name] for name in names] for row in rows] == [[row[name] for name in names] for row in tapped]
    assert done.tally.datagrams == len(traffic)
    assert len({row["verdict"] for row in rows}) >= 6
    assert abs(rows[0]["ts"].timestamp() - time.time()) < 60


def taps(daemon: Daemon, wire: Wire, traffic: list[bytes]) -> Rows:
    """Send it, and give what the tap of a daemon tells of it."""
    with bccnd.connect(str(daemon.bus)) as tap:
        tap.subscribe("!/tap/")
        tap.sync()
        wire.send(*traffic)
        messages = [message for _, message in zip(traffic, tap, strict=False)]
    rows = [observe(*read_tapped(message.chan.encode(), message.payload)) for message in messages]
    return [{**row._asdict(), "len": row.length} for row in rows]
