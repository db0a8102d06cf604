"""The tracker log: what is logged, and the snapshots and files that it is written in."""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest

from bccnd.core import tracker_log
from bccnd.core.dedup import DedupRules
from bccnd.core.ingress import Ingress
from bccnd.core.integrity import IntegrityChecker
from bccnd.core.tracker_snapshot import start_log
from tests.core.tracker_hosts import LOCAL, PEERS, RULES, SRCS, Host, is_complete, replay_into, restored
from tests.core.world import datagram


def logged(host: Host, *raws: bytes) -> bytes:
    """Return the entries that a batch logs, without the head of the record."""
    host.finish()
    before = len(host.files.written[-1])
    host.feed(*raws)
    written = host.files.written[-1][before:]
    assert len(written) <= 1
    return b"".join(written)[21:]


@pytest.fixture
def host() -> Host:
    one = Host()
    one.start_logging()
    return one


def test_batch_is_one_record_of_src_and_seq_in_order(host: Host) -> None:
    raws = [datagram(b"a", 7), datagram(b"a", 7), datagram(b"b", b"007"), datagram(b"a", 8), datagram(b"a", 9)]
    # The target makes no difference.
    raws += [datagram(b"d", 1, b"!elsewhere"), datagram(b"d", 2, b"!own/p/1")]
    assert logged(host, *raws) == b"\x03a:7\x05b:007\x03a:8\x03a:9\x03d:1\x03d:2"
    head = host.files.written[-1][-1][:21]
    assert struct.unpack("=IBQd", head) == (17 + 26, 1, 1, 1000.0)


def test_datagrams_that_change_no_tracker_are_not_logged(host: Host) -> None:
    host.claim(LOCAL[1])
    host.receive(SRCS[0], 5)
    refused = [datagram(SRCS[0], 5), datagram(LOCAL[1], 1), datagram(b"bad*", 1), b"noise", datagram(SRCS[0], b"x")]
    assert logged(host, *refused) == b""
    assert logged(host) == b""


@pytest.mark.parametrize("late", [False, True])
def test_late_datagram_is_logged_and_by_a_link_no_restart(late: bool) -> None:
    """Over links a message may be late by more than the horizon."""
    rules = replace(RULES, deliver_late=late)
    host = Host(rules)
    host.start_logging()
    assert logged(host, datagram(b"a", 1), datagram(b"a", 3), datagram(b"a", 2)) == b"\x03a:1\x03a:3\x03a:2"
    host.receive(SRCS[0], 5, 6, 8)
    host.now += 3 * rules.horizon
    host.ingress.feed_link(host.counters, 1, datagram(SRCS[0], 7), PEERS[0], host.now, 0)
    successor = Host(rules, now=host.now)
    assert replay_into(successor, host.files.data).problems == ()
    found, wanted = successor.source(), host.source()
    assert (found.last, found.epoch) == (wanted.last, wanted.epoch) == (8, 1)
    # By the segment it still is one.
    host.now = successor.now = successor.now + 3 * rules.horizon
    assert successor.receive(SRCS[0], 1) == host.receive(SRCS[0], 1) == ["restart"]


@pytest.mark.parametrize("zeros", [0, 100, 107, 108, 109, 500])
def test_seq_may_have_more_zeros_than_an_entry_holds(host: Host, zeros: int) -> None:
    src = b"s" * 128
    host.feed(datagram(src, b"0" * zeros + b"123"))
    assert restored(host.files.data, host).source(src).last == 123


def test_every_seq_is_restored(host: Host) -> None:
    seqs = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
    for seq in seqs:
        host.receive(b"a/%d" % seq, seq)
        host.receive(b"b/%d" % seq, max(seq - 1, 0), seq)
    successor = restored(host.files.data, host)
    assert all(successor.source(b"%b/%d" % (src, seq)).last == seq for src in (b"a", b"b") for seq in seqs)


def test_src_similar_to_the_anonymous_one_is_tracked(host: Host) -> None:
    for src in (b"?x", b"x", b"??", b"?"):
        host.receive(src, 5)
    successor = restored(host.files.data, host)
    assert len(successor.sources) == 3
    assert successor.receive(b"??", 5) == ["duplicate"]
    assert successor.receive(b"?", 5) == ["duplicate"]
    successor.now += 1.25
    assert successor.receive(b"?", 5) == ["accepted"]
    # A snapshot leaves out what was heard longer ago than the horizon.
    host.now += 1.25
    host.rotate()
    assert restored(host.files.data[1:], host).anonymous.digests() == []


def test_datagram_with_an_internal_error_is_logged(host: Host) -> None:
    def broken(_src: bytes, _now: float) -> None:
        raise RuntimeError("a bug")

    bugs: list[bytes] = []
    host.ingress = Ingress(
        IntegrityChecker(),
        host.sources,
        host.anonymous,
        host.routes,
        tracker_log=host.tracker_log,
        on_heartbeat=broken,
        on_bug=bugs.append,
    )
    assert host.heartbeat(SRCS[0], 5) == ["internal_error"]
    assert len(bugs) == 1
    assert restored(host.files.data, host).receive(SRCS[0], 5) == ["duplicate"]


# -- files and snapshots


def track_many(host: Host, count: int) -> None:
    for number in range(count):
        host.sources.judge_new(b"h/%d" % number, number, host.now)


def test_snapshot_is_written_in_steps_then_the_file_is_complete() -> None:
    host = Host(replace(RULES, max_sources=1000))
    track_many(host, 500)
    writer = host.start_logging()
    steps = 1
    while not writer.complete:
        assert writer.step(host.now) is not writer.complete
        steps += 1
        (file,) = host.files.data
        assert is_complete(file) is writer.complete
    assert steps > 500 // tracker_log.STEP
    successor = restored(host.files.data, host)
    assert len(successor.sources) == 500
    assert writer.size == len(host.files.data[0])
    # Nothing is left to be written.
    assert writer.step(host.now) is False
    assert writer.size == len(host.files.data[0])


def test_step_writes_no_more_than_its_share() -> None:
    host = Host(DedupRules(sanity=65_536, max_sources=1000))
    for number in range(300):
        src = b"h/%d" % number
        host.sources.judge_new(src, 1, host.now)
        host.sources.judge(src, 60_000, host.now)
    writer = host.start_logging()
    while writer.step(host.now):
        pass
    largest = max(map(len, host.files.written[0]))
    assert tracker_log.STEP_BYTES / 2 < largest < tracker_log.STEP_BYTES + (1 << 15)
    assert len(host.files.written[0]) > 300 / tracker_log.STEP
    successor = restored(host.files.data, host, DedupRules(sanity=65_536))
    assert successor.source(b"h/7").missing == host.source(b"h/7").missing != 0
    assert successor.sources.missing == 300 * 59_998


def test_new_file_is_due_after_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_log, "SMALLEST", 1)
    host = Host()
    track_many(host, 20)
    writer = host.start_logging()
    due = [writer.due]
    host.finish()
    snapshot = sum(map(len, host.files.written[0][1:]))
    seq = 0
    while writer.size <= tracker_log.GROWTH * snapshot:
        due.append(writer.due)
        seq += 1
        host.receive(b"a", seq)
    assert not any(due)
    assert len(due) > 10
    assert writer.due
    writer.rotate(host.files.create())
    assert writer.size == len(host.files.data[1])
    again = [writer.due]
    while not writer.complete:
        # Until then both files are needed.
        assert restored(host.files.data, host).receive(b"a", seq) == ["duplicate"]
        writer.step(host.now)
        again.append(writer.due)
    assert not any(again)
    assert restored(host.files.data[1:], host).receive(b"a", seq) == ["duplicate"]


def test_small_file_is_not_replaced(host: Host) -> None:
    assert host.tracker_log is not None
    host.finish()
    while host.tracker_log.size < tracker_log.SMALLEST - 5000:
        host.feed(*(datagram(b"h/%d" % number, host.tracker_log.size) for number in range(64)))
        assert not host.tracker_log.due
    host.feed(*(datagram(b"h" * 100 + b"/%d" % number, 1) for number in range(64)))
    assert host.tracker_log.due


class FullFile:
    """A file with room for some bytes."""

    def __init__(self, room: int, raises: bool) -> None:
        self.data = b""
        self._room = room
        self._raises = raises

    def write(self, record: bytes) -> int:
        fits = record[: self._room - len(self.data)]
        if len(fits) < len(record) and self._raises:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data += fits
        return len(fits)


@pytest.mark.parametrize("raises", [False, True])
def test_full_file_stops_no_datagram_and_stays_readable(raises: bool) -> None:
    host, full = Host(), FullFile(200, raises)
    writer = start_log(host.sources, host.anonymous, host.liveness, full.write, host.now)
    host.tracker_log = host.ingress.tracker_log = writer
    host.finish()
    for seq in range(1, 50):
        assert host.receive(SRCS[0], seq) == ["accepted"]
        host.sweep()
    assert ("No space" if raises else "there was room for") in writer.failed
    assert writer.size == len(full.data)
    successor = restored([full.data], host)
    assert 1 <= successor.source().last < 49
    # A new file has room.
    writer.rotate(host.files.create())
    host.finish()
    assert restored(host.files.data, host).source().last == 49


def test_snapshot_without_room_is_not_complete() -> None:
    host, full = Host(), FullFile(100, False)
    track_many(host, 20)
    writer = start_log(host.sources, host.anonymous, host.liveness, full.write, host.now)
    while writer.step(host.now):
        pass
    assert writer.failed
    assert not writer.complete
    assert not writer.due
