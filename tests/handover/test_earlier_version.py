"""State of version 1.0: its logs of sources become memory."""

from __future__ import annotations

import struct
from typing import Final

import pytest

from bccnd.core.tracking.dedup_rules import DedupRules
from bccnd.core.tracking.liveness import ALIVE, SILENT
from bccnd.handover import earlier_version as version_1
from bccnd.native.memory.private_memory import private_memory
from tests.core.tracker_hosts import RULES, Host
from tests.core.world import datagram
from tests.rules import heartbeat_rules

NOW: Final = 1000.0
HEADER: Final = version_1.MAGIC + struct.pack("=I", 1)
WATCH: Final = heartbeat_rules(interval=1.0, dead_after=3)


def record(*entries: bytes, when: float = NOW - 1, serial: int = 0, kind: int = version_1.DIRECT) -> bytes:
    body = b"".join(entries)
    return struct.pack("=IBQd", 17 + len(body), kind, serial, when) + body


def seqs(src: bytes, *numbers: int) -> bytes:
    return b"".join(bytes((len(text),)) + text for text in (b"%b:%d" % (src, number) for number in numbers))


def entry(kind: int, body: bytes) -> bytes:
    return struct.pack("=BH", kind, len(body)) + body


def tracker(src: bytes, first: int, last: int, absent: int = 0, missing: int = 0, state: int = 0) -> bytes:
    bits = [number.to_bytes((number.bit_length() + 7) // 8, "little") for number in (absent, missing)]
    head = struct.pack("=QQdddddiBBH", first, last, NOW - 2, NOW - 2, NOW - 2, 0, 1.0, 3, state, len(src), len(bits[0]))
    return entry(version_1.TRACKER, head + src + bits[0] + bits[1])


def heir(*files: bytes, rules: DedupRules = RULES, skip: int = 0, problems: int = 0) -> Host:
    memory = private_memory(2048)
    assert len(version_1.convert(files, memory, rules, WATCH, NOW, skip=skip)) == problems
    host = Host(rules, WATCH, NOW, memory)
    host.load()
    return host


def test_datagrams_are_followed_and_nothing_is_counted() -> None:
    log = HEADER + record(seqs(b"a", 1, 2, 5)) + record(seqs(b"b", 7)) + record(seqs(b"b", 3), when=NOW)
    host = heir(log)
    assert {one.src: (one.first, one.last, one.missing) for one in host.sources.latest(9)} == {
        b"a": (1, 5, 0b110),
        b"b": (3, 7, 0),
    }
    assert not any(host.sources.counted.all().values())
    assert host.receive(b"a", 5, 3, 6) == ["duplicate", "stale", "accepted"]


def test_whole_trackers_replace_earlier_ones() -> None:
    host = heir(HEADER + record(seqs(b"a", 100)), HEADER + record(tracker(b"a", 1, 50, 0b100, 0b100, SILENT)))
    source = host.source(b"a")
    assert (source.first, source.last, source.absent, source.missing, source.epoch) == (1, 50, 4, 4, 3)
    assert (source.state, host.liveness.silent, host.sources.missing) == (SILENT, 1, 1)


def test_the_unfinished_input_is_left_out() -> None:
    log = HEADER + record(seqs(b"a", 1)) + record(seqs(b"a", 2), serial=8) + record(seqs(b"b", 1), serial=9)
    host = heir(log, skip=9)
    assert [one.src for one in host.sources.latest(9)] == [b"a"]


def test_identities_deaths_and_anonymous_datagrams_are_taken_over() -> None:
    own = entry(version_1.IDENTITY, struct.pack("=dQQ", float("inf"), 10, 20) + b"own/p/1")
    dead = entry(version_1.DEATH, struct.pack("=ddd", 5.0, 4.0, 1.0) + b"late")
    beat = seqs(b"c", 1) + entry(version_1.HEARTBEAT, b"c")
    told = entry(version_1.STATE, bytes((SILENT,)) + b"c")
    gone = seqs(b"d", 1) + entry(version_1.REMOVED, b"d")
    host = heir(HEADER + record(own, dead, beat, told, gone))
    assert host.feed(datagram(b"own/p/1", 15)) == ["looped"]
    assert list(host.liveness.dead) == [b"late"]
    assert {one.src: one.state for one in host.sources.latest(9)} == {b"c": SILENT}
    assert host.heartbeat(b"c", 2) == ["accepted"]
    assert host.source(b"c").state == ALIVE


def test_losses_by_time_are_followed() -> None:
    log = HEADER + record(seqs(b"a", 1, 5), when=NOW - 9) + record(when=NOW - 5)
    assert heir(log).source(b"a").missing == 0


@pytest.mark.parametrize(
    "damage",
    [
        b"something else",
        HEADER[:-1] + b"\7",
        HEADER + record(b"\5a"),
        HEADER + record(b"\2ab"),
        HEADER + record(seqs(b"?", 1)),
        HEADER + record(seqs(b"*", 1)),
        HEADER + record(seqs(b"a", 1), when=NOW + 5),
        HEADER + record(tracker(b"a", 9, 5)),
        HEADER + record(tracker(b"a", 1, 5, state=7)),
        HEADER + record(entry(version_1.STATE, b"\7a")),
        HEADER + record(entry(version_1.DEATH, b"short")),
    ],
)
def test_what_is_damaged_is_said_and_the_rest_is_kept(damage: bytes) -> None:
    host = heir(HEADER + record(seqs(b"b", 1)), damage + record(seqs(b"late", 1)), problems=1)
    assert [one.src for one in host.sources.latest(9)][-1:] == [b"b"]
    assert b"late" not in host.sources


def test_a_log_that_ends_anywhere_is_no_damage() -> None:
    log = HEADER + record(seqs(b"a", 1)) + record(seqs(b"b", 1))
    for size in range(len(log)):
        assert {one.src for one in heir(log[:size]).sources.latest(9)} <= {b"a", b"b"}
