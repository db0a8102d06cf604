"""Replay of the tracker log: a successor judges as the host that wrote it, wherever the log ends."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1, liveness, tracker_log
from bccnd.core.dedup import RELEASE_DELAY, DedupRules
from bccnd.core.liveness import ALIVE, UNWATCHED
from bccnd.core.tracker_replay import ReplayResult
from tests.core.material import examples
from tests.core.tracker_hosts import (
    EPOCH_US,
    HEADER,
    LOCAL,
    PEERS,
    RULES,
    SRCS,
    WATCH,
    Host,
    Life,
    assert_alike,
    assert_missing_kept,
    do,
    is_complete,
    lives,
    replay_into,
    restored,
    run_life,
    state_of,
)
from tests.core.world import datagram


def counters_of(host: Host) -> dict[str, Any]:
    """Return all counters of a host but gauges."""
    sources, watched = host.sources, host.liveness
    names = ("lost", "restarts", "jumps", "conflicts", "expired", "evicted", "own_evicted", "restarts_evicted")
    return {
        **{name: getattr(sources, name) for name in names},
        "lost_by_source": dict(sources.lost_by_source),
        "deaths": watched.deaths,
        "dead_evicted": watched.dead_evicted,
    }


@pytest.fixture
def host() -> Host:
    one = Host()
    one.start_logging()
    return one


@pytest.fixture(params=[1, 4, tracker_log.STEP])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write snapshots a few entries at a time, so that events happen in between."""
    monkeypatch.setattr(tracker_log, "STEP", request.param)


@pytest.mark.usefixtures("steps")
@given(lives(), st.data())
@examples(300)
def test_successor_judges_as_the_killed_daemon(life: Life, data: st.DataObject) -> None:
    rules, watch, history = life
    whole, _ = run_life(life)
    writes = data.draw(st.integers(1, len(whole.files.records)), label="killed in write")
    original, done = run_life(life, writes)
    assert len(original.files.records) == writes
    files = original.files.data
    after = whole.files.records[writes : writes + 1]
    if after and after[0] != HEADER:
        files[-1] += after[0][: data.draw(st.integers(0, len(after[0]) - 1), label="torn off at")]
    files = files[-1:] if is_complete(files[-1]) else files[-2:]

    successor = Host(rules, watch, original.now)
    early = {src for src in original.open if src == LOCAL[0]}
    for src in early:
        successor.claim(src)
    # No time passes between the one and the other.
    assert replay_into(successor, files, now=original.files.latest or original.now).problems == ()
    successor.start_logging()
    for src in original.open - early:
        successor.claim(src)
    successor.sent = original.sent[-1:]
    assert (successor.changes(), successor.sources.lost, successor.sources.restarts, successor.sources.jumps) == (
        "",
        0,
        0,
        0,
    )
    assert (
        successor.sources.evicted,
        successor.sources.expired,
        successor.anonymous.evicted,
        successor.liveness.deaths,
    ) == (0, 0, 0, 0)
    for host in (successor, original):
        host.sources.sweep(host.now)
    assert_alike(successor, original)
    assert_missing_kept(successor, original)

    # Both continue, and the successor has a log of its own. Silence is not checked, which the successor counts
    # from now on.
    for act in history[done:]:
        for host in (successor, original):
            host.now += act.quarters / 4
            host.sources.sweep(host.now)
        assert successor.tracker_log is not None
        successor.tracker_log.step(successor.now)
        peer = PEERS[len(act.raws) % 2]
        for raw in act.raws:
            assert successor.feed(raw, peer=peer) == original.feed(raw, peer=peer)
        for src in SRCS:
            assert successor.sources.epoch(src) == original.sources.epoch(src)
    assert_alike(successor, original)
    assert_missing_kept(successor, original)
    # Sent datagrams are local for the successor too.
    conflicts = successor.sources.conflicts
    for raw in successor.sent:
        if bccn1.read(raw).src in successor.open:
            assert successor.feed(raw) == ["looped"]
    assert successor.sources.conflicts == conflicts

    second = Host(rules, watch, successor.now)
    latest = max(original.files.latest, successor.files.latest)
    assert replay_into(second, files + successor.files.data, now=latest or successor.now).problems == ()
    for src in successor.open:
        second.claim(src)
    for host in (second, successor):
        host.sources.sweep(host.now)
    assert_alike(second, successor)


@given(lives())
@examples(100)
def test_unfinished_input_is_skipped_and_processed_again(life: Life) -> None:
    rules, watch, history = life
    host = Host(rules, watch)
    host.start_logging()
    for act in history:
        do(host, act)
    before = restored(host.files.data[-2:], host, rules, watch)
    raws = [datagram(src, seq) for src in SRCS[:3] for seq in (5, 6, 9, 7, 6)]
    verdicts = host.feed(*raws)
    assert host.tracker_log is not None
    successor = Host(rules, watch, host.now)
    replay_into(successor, host.files.data[-2:], skip_serial=host.tracker_log.serial)
    assert state_of(successor) == state_of(before)
    assert successor.feed(*raws) == verdicts


# -- what is not understood


def test_file_with_part_of_a_header_is_empty() -> None:
    for length in range(len(HEADER) + 1):
        assert replay_into(Host(), [HEADER[:length]]) == ReplayResult(0, 0, 0, False, ())


def test_file_of_another_version_or_kind_is_ignored(host: Host) -> None:
    host.receive(SRCS[0], 1)
    (data,) = host.files.data
    other_version = data.replace(tracker_log.MAGIC + b"\1", tracker_log.MAGIC + b"\2", 1)
    for strange in (other_version, b"x" + data, b"\0", b"\0" * 100):
        successor = Host()
        account = replay_into(successor, [strange])
        assert (account.sources, account.records, len(account.problems)) == (0, 0, 1)
        assert "version 1" in account.problems[0]
        # The next file is read nevertheless.
        assert replay_into(successor, [strange, data]).sources == 1


def record(*entries: bytes, kind: int = tracker_log.DIRECT, serial: int = 0, when: float = 1000.0) -> bytes:
    inside = b"".join(entries)
    return struct.pack("=IBQd", 17 + len(inside), kind, serial, when) + inside


def entry(kind: int, what: bytes) -> bytes:
    return struct.pack("=BH", kind, len(what)) + what


def pair(what: bytes) -> bytes:
    return bytes([len(what)]) + what


def test_unknown_records_and_entries_are_skipped_by_size() -> None:
    data = HEADER + record(pair(b"a:1"), entry(255, b"\x02a:9"), entry(255, b""), pair(b"a:2"))
    data += record(b"unknown", kind=9) + record(b"", kind=0) + struct.pack("=IB", 1, 77) + record(pair(b"a:3"))
    successor = Host()
    account = replay_into(successor, [data])
    assert successor.source(b"a").last == 3
    assert (account.sources, account.records, account.datagrams) == (1, 2, 3)
    numbers = [re.findall(r"\d+", doubt) for doubt in account.problems]
    # file, how many, and their kind
    assert sorted(numbers) == [["1", "1", "0"], ["1", "1", "77"], ["1", "1", "9"], ["1", "2", "255"]]


TIMES: Final = struct.pack("=ddd", 999.0, 999.0, 1.0)


def tracker_entry(**changed: Any) -> bytes:
    """Pack the entry of a tracker."""
    fields = {
        "first": 1, "last": 9, "heard": 999.0, "rank": 1000.0, "beat": 0.0, "gap": 0.0, "interval": 0.0, "epoch": 1,
        "state": 0, "src": b"a", "absent": b"\2", "missing": b"\2", "named": 1, "bits": 1, **changed,
    }  # fmt: skip
    numbers = [fields[name] for name in ("first", "last", "heard", "rank", "beat", "gap", "interval")]
    rest = [fields[name] for name in ("epoch", "state", "named", "bits")]
    return entry(
        246, struct.pack("=QQdddddiBBH", *numbers, *rest) + fields["src"] + fields["absent"] + fields["missing"]
    )


NAN: Final = float("nan")
INF: Final = float("inf")
DAMAGE: Final = [
    *(struct.pack("=I", size) + bytes(100) for size in (1 << 31, 0)),
    struct.pack("=IB", 5, tracker_log.DIRECT) + bytes(4),
    *(record(when=when) for when in (NAN, INF, -1.0, 1002.0)),
    # entries without a size, truncated, and longer than the record
    *(record(raw) for raw in (b"\0", b"\x05a:1", b"\xf1", struct.pack("=BH", 241, 2) + b"a")),
    # datagrams
    *(record(pair(raw)) for raw in (b"abc", b"abc:", b":1", b"?:1", b"b*:1", b"\xe4:1", b"abc:-1", b"abc:x")),
    record(pair(b"abc:%d" % 2**64)),
    # states, deaths, digests, identities
    *(record(entry(242, raw)) for raw in (b"", b"\x03abc")),
    *(record(entry(243, raw)) for raw in (b"abc", TIMES, TIMES + b"\xff", struct.pack("=ddd", INF, 0, 0) + b"abc")),
    *(record(entry(244, raw)) for raw in (struct.pack("=d", NAN) + bytes(16), b"1")),
    *(
        record(entry(245, raw))
        for raw in (b"abc", struct.pack("=dQQ", INF, 0, 0), struct.pack("=dQQ", NAN, 0, 0) + b"abc")
    ),
    # trackers
    record(entry(246, bytes(10))),
    record(tracker_entry(src=b"", named=0)),
    *(
        record(tracker_entry(**{field: value}))
        for field, value in (
            *(("src", b"?"), ("src", b"\xff"), ("bits", 9), ("first", 10), ("epoch", 0), ("state", 3)),
            *(("heard", 1002.0), ("heard", NAN), ("rank", NAN), ("rank", INF), ("beat", INF), ("gap", NAN)),
            ("interval", INF),
        )
    ),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_reading_ends_at_damage(damage: bytes) -> None:
    good, later = record(pair(b"before:1")), record(pair(b"behind:1"))
    successor = Host()
    account = replay_into(successor, [HEADER + good + damage + later, HEADER + record(pair(b"next:1"))])
    assert {source.src for source in successor.sources.latest(9)} == {b"before", b"next"}
    (doubt,) = account.problems
    assert f" byte {len(HEADER + good)} " in doubt


def test_records_of_the_table_are_valid_without_the_damage() -> None:
    successor = Host()
    assert (
        replay_into(
            successor, [HEADER + record(tracker_entry(), tracker_entry(src=b"b"), entry(243, TIMES + b"abc"))]
        ).problems
        == ()
    )
    assert (len(successor.sources), list(successor.liveness.dead)) == (2, [b"abc"])


@given(lives(), st.data())
@examples(150)
def test_damaged_files_never_raise(life: Life, data: st.DataObject) -> None:
    rules, watch, history = life
    original, _ = run_life(life)
    files = []
    for one in original.files.data[-2:]:
        spoiled = bytearray(one)
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(0, len(spoiled) - 1))
            spoiled[at] = data.draw(st.one_of(st.sampled_from([0, 1, 240, 246, 255]), st.integers(0, 255)))
        files.append(bytes(spoiled[: data.draw(st.sampled_from([len(spoiled), data.draw(st.integers(0, 400))]))]))
    successor = Host(rules, watch, original.now)
    replay_into(successor, files)
    # The host that read them continues.
    successor.sources.sweep(successor.now)
    for source in successor.sources.latest(100):
        assert source.src.decode("ascii")
        assert source.missing & ~source.absent == 0
    for act in history:
        do(successor, act)
    successor.until(successor.now + 20)


@given(st.binary(max_size=200))
@examples(300)
def test_noise_never_raises(noise: bytes) -> None:
    for data in (
        noise,
        HEADER + noise,
        HEADER + record(noise),
        HEADER + record(*(entry(k, noise) for k in range(240, 256))),
    ):
        replay_into(Host(), [data])


# -- rules that have changed, and caps


def test_newest_trackers_remain_above_the_cap(host: Host) -> None:
    for number in range(40):
        host.now += 1
        host.receive(b"h/%d" % (number % 20), number)
    host.rotate()
    for files in (host.files.data, host.files.data[1:]):
        successor = Host(replace(RULES, max_sources=5), now=host.now)
        assert replay_into(successor, files).sources == 20
        successor.sources.sweep(successor.now)
        assert [source.src for source in successor.sources.latest(9)] == [b"h/%d" % n for n in range(19, 14, -1)]
        assert successor.sources.evicted == 15


def test_rules_of_the_new_daemon_apply(host: Host) -> None:
    host.receive(SRCS[0], 1, 2, 30, 31)
    assert host.sources.jumps == 1
    wide = restored(host.files.data, host, DedupRules(sanity=64))
    assert (wide.source().epoch, wide.source().first, wide.sources.missing) == (1, 1, 27)
    host.receive(SRCS[1], 1, 16)
    host.rotate()
    narrow = restored(host.files.data[1:], host, DedupRules(sanity=4))
    assert narrow.source(SRCS[1]).absent == narrow.source(SRCS[1]).missing == 0b1110
    assert narrow.sources.missing == 3


def test_heartbeats_above_the_cap_are_not_watched(host: Host) -> None:
    for number in range(10):
        host.heartbeat(b"h/%d" % number, 1)
    successor = restored(host.files.data, host, watch=replace(WATCH, max_watched=4))
    states = [source.state for source in successor.sources.latest(10)]
    assert (states.count(ALIVE), states.count(UNWATCHED), successor.liveness.unwatched) == (4, 6, 6)


# -- scenarios: a host and its successor

ALIVE_NOW: Final = "^1 +1 ^2 changes:alive"
WORD: Final = re.compile(r"(?P<beat>\^?)(?P<src>[a-z\d]+/)?(?P<seq>\d+)(?::(?P<verdict>\w+))?")
SRC_OF: Final = {None: SRCS[0], "b/": SRCS[1], "own/": LOCAL[0], "own1/": LOCAL[1]}

#: ``b/4:stale``: a datagram of this source, by default of SRCS[0], and its verdict, by default accepted; ``^4``: a
#: heartbeat; ``+2``: seconds pass, with sweeps; ``away:2``: without; ``restart``: a successor replays the log;
#: ``changes:``: expected changes of states; ``claim``, ``release``, ``send``, ``sweep``, ``rotate``: see Host;
#: ``echo``: sent datagrams are received; ``sources.lost=2``: an attribute of the host
SCENARIOS: Final = {
    "what is missing has the horizon's time from now on and is lost once": (
        "1 3 away:0.75 b/1 b/4 away:5 restart sources.missing=3 sources.lost=0 +0.75 sources.missing=3 sources.lost=0"
        # A newer message shows that the source has not restarted, so the late one is just late.
        " b/5 b/2:stale +0.25 sources.missing=0 sources.lost=2"
    ),
    "what was lost before is not lost again": (
        "1 3 +3 sources.lost=1 b/1 restart sources.missing=0 sources.lost=0 +3 sources.lost=0 2:restart"
    ),
    "what was lost before is not lost again, in a new file": (
        "1 3 rotate +3 sources.lost=1 b/1 restart sources.missing=0 sources.lost=0 +3 sources.lost=0 2:restart"
    ),
    "what was lost before is not lost again although nothing came since": (
        "1 3 +3 sources.lost=1 restart sources.missing=0 sources.lost=0 +3 sources.lost=0"
    ),
    "what was not counted as lost before the restart is counted after it": (
        "1 3 away:5 b/1 sources.lost=0 restart sources.missing=1 +1.25 sources.missing=0 sources.lost=1"
    ),
    "silence during the restart is noticed in due time": (
        f"{ALIVE_NOW} away:60 restart +1.75 changes:silent liveness.silent=1"
        " +2 changes:dead liveness.silent=0 liveness.deaths=1"
    ),
    "a source that was silent still is, and no change is reported": (
        f"{ALIVE_NOW} +2 changes:silent restart liveness.silent=1 +3.25 changes: +0.5 changes:dead"
    ),
    "a silent source that sends is alive": f"{ALIVE_NOW} +2 restart +0.5 3 +1.5 changes:alive liveness.silent=0",
    "back from silence without a heartbeat": f"{ALIVE_NOW} +2 3 +1 changes:silent,alive restart source.state={ALIVE}",
    "sent datagrams are local and no conflict": (
        "claim claim:1 send send send:1 send:1 release:1 away:2 restart claim echo:looped sources.conflicts=0"
    ),
    "seqs continue above the used ones": "claim send send send restart claim away:0.25 send",
    "seqs continue above the used ones where the clock was set back": (
        "claim send rotate " + "send " * 1000 + "restart claim away:-999 send"
    ),
    "an identity that is not claimed again ends when its time is over": (
        f"claim claim:1 away:1 sweep release:1 +4 1 restart +{RELEASE_DELAY - 4.25} own1/1:looped +0.25 own1/1"
        " +3.75 own/1:looped +0.25 own/1"
    ),
    # The broadcast is still in the socket's buffer.
    "the time of an identity does not run out while the host hangs": (
        "claim send release 1 away:60 restart sweep echo:looped"
    ),
    "an identity that was local and then remote is remote": (
        f"claim release +{RELEASE_DELAY + 1} own/5 restart own/5:duplicate own/6"
    ),
}


def play(host: Host, words: str) -> Host:
    """Play a scenario; return the host or its successor."""
    for number, word in enumerate(words.split()):
        try:
            host = play_word(host, word)
        except AssertionError as wrong:
            raise AssertionError(f"word {number}, {word}") from wrong
    return host


def play_word(host: Host, word: str) -> Host:
    verb, _, argument = word.partition(":")
    if seen := WORD.fullmatch(word):
        receive = host.heartbeat if seen["beat"] else host.receive
        assert receive(SRC_OF[seen["src"]], int(seen["seq"])) == [seen["verdict"] or "accepted"]
    elif "=" in word:
        name, _, value = word.partition("=")
        part, attribute = name.split(".")
        assert getattr(host.source() if part == "source" else getattr(host, part), attribute) == float(value)
    elif word.startswith("+"):
        host.until(host.now + float(word))
    elif verb == "away":
        host.now += float(argument)
    elif verb == "changes":
        assert host.changes() == argument.replace(",", " ")
    elif verb == "restart":
        return restored(host.files.data[-1:], host)
    elif verb == "echo":
        assert set(host.feed(*host.sent)) == {argument}
    elif verb in ("rotate", "sweep"):
        getattr(host, verb)()
    else:
        getattr(host, verb)(LOCAL[int(argument or 0)])
    return host


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(host: Host, name: str) -> None:
    play(host, SCENARIOS[name])


@pytest.mark.parametrize("kept", [False, True])
def test_dead_sources_stay_dead_until_their_next_heartbeat(kept: bool) -> None:
    watch = replace(WATCH, keep_dead=kept)
    host = Host(watch=watch)
    host.start_logging()
    play(host, "^1 ^b/1 +1 ^2 ^b/2 +4 liveness.deaths=2")
    host.changes()
    successor = restored(host.files.data, host, watch=watch)
    assert list(successor.liveness.dead.items()) == list(host.liveness.dead.items())
    assert len(successor.sources) == (2 if kept else 0)
    play(successor, "liveness.deaths=0 +20 changes: ^b/3 changes:alive")
    assert list(successor.liveness.dead) == [SRCS[0]]


def test_returned_local_identity_is_not_dead(host: Host) -> None:
    play(host, "^own/1 +1 ^own/2 +4")
    assert list(host.liveness.dead) == [LOCAL[0]]
    host.heartbeat(LOCAL[0], 3)
    successor = Host(now=host.now)
    successor.claim(LOCAL[0])
    replay_into(successor, host.files.data)
    assert (len(successor.sources), len(successor.liveness.dead)) == (0, 0)


def test_each_source_is_in_the_timer_wheel_once(host: Host) -> None:
    for _ in range(4):
        play(host, "^1 +1 ^2 +4")
        assert host.sources.get(SRCS[0]) is None
    play(host, "^1 ^b/1 +1 ^2 ^b/2")
    successor = restored(host.files.data, host)
    for _ in range(3):
        standing = [one.src for entries in successor.liveness._wheel.values() for one in entries]
        assert sorted(standing) == sorted(SRCS[:2])
        for seq in (3, 4):
            successor.heartbeat(SRCS[0], 3 + seq)
            successor.heartbeat(SRCS[1], 3 + seq)
            successor.until(successor.now + 1)


# -- local identities


def test_identity_may_be_in_use_before_the_replay(host: Host) -> None:
    host.claim()
    raw = host.send()
    host.now += 1
    successor = Host(now=host.now)
    successor.claim()
    ahead = [successor.send() for _ in range(5)]
    replay_into(successor, host.files.data)
    successor.until(successor.now + 2 * RELEASE_DELAY)
    assert successor.feed(raw, *ahead, successor.send()) == ["looped"] * 7
    assert successor.sources.conflicts == 0


def test_seqs_ahead_of_the_clock_are_local(host: Host) -> None:
    host.claim()
    host.send()
    host.rotate()
    raws = [host.send() for _ in range(1000)]
    successor = Host(now=host.now)
    replay_into(successor, host.files.data[-1:], clock_us=EPOCH_US)
    assert set(successor.feed(*raws)) == {"looped"}
    assert successor.sources.conflicts == 0


def test_replay_changes_no_counter(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.finish()
    for src in SRCS[:2]:
        host.heartbeat(src, 1000, 1003, 5, 2000)  # two lost, a restart, a jump
    host.until(host.now + 10)
    assert host.liveness.deaths == 2
    monkeypatch.setattr(liveness, "MAX_DEAD", 1)
    successor = Host(now=host.now)
    before = counters_of(successor)
    assert replay_into(successor, host.files.data).problems == ()
    assert counters_of(successor) == before
    # What the daemon has lost itself stays.
    successor.receive(b"own/p/9", 1, 3)
    successor.until(successor.now + 2)
    replay_into(successor, host.files.data)
    assert (successor.sources.lost, successor.sources.lost_by_source) == (1, {b"own/p/9": 1})


def test_input_that_waited_prolongs_no_released_identity(host: Host) -> None:
    host.claim()
    host.release()
    host.now += 20
    host.receive(SRCS[0], 1)
    host.now -= 15
    host.receive(SRCS[0], 2)
    host.now += 15
    before, after = (one.sources.local_identity(LOCAL[0]) for one in (host, restored(host.files.data, host)))
    assert before is not None
    assert after is not None
    assert after.until == before.until


@pytest.mark.parametrize(("turned", "released"), [(False, True), (True, True), (True, False)])
def test_another_sender_with_a_local_identity_is_a_conflict(host: Host, turned: bool, released: bool) -> None:
    host.claim()
    own = bccn1.read(host.send()).seq
    if turned:
        host.rotate()
    if released:
        host.release()
    successor = restored(host.files.data[-1:], host)
    foreign = [own - 1, own + 10**12]
    assert successor.receive(LOCAL[0], own, *foreign) == ["looped"] * 3
    assert successor.sources.conflicts == 2


def test_claim_is_logged_at_once_even_if_its_input_is_skipped(host: Host) -> None:
    assert host.tracker_log is not None
    host.receive(LOCAL[0], 5)
    host.tracker_log.serial = 77
    host.claim()
    successor = Host(now=host.now)
    replay_into(successor, host.files.data, skip_serial=77)
    assert successor.receive(LOCAL[0], 6) == ["looped"]
    assert len(successor.sources) == 0
