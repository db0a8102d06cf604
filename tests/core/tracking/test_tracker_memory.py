"""A successor goes on with the trackers that a killed daemon has left in memory, as if nothing had happened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking.dedup import RELEASE_DELAY
from bccnd.core.tracking.liveness import ALIVE, SILENT
from bccnd.core.tracking.local_identities import SPARE
from bccnd.core.wire import bccn1
from bccnd.core.wire.verdicts import DUPLICATE
from bccnd.native.memory import slot_layout as layout
from tests.core.material import examples
from tests.core.tracker_hosts import (
    LOCAL,
    PEERS,
    RULES,
    SRCS,
    Host,
    Life,
    assert_alike,
    assert_missing_kept,
    copied,
    counters_of,
    do,
    lives,
    state_of,
    successor_of,
)
from tests.core.world import datagram
from tests.rules import dedup_rules


@pytest.fixture
def host() -> Host:
    return Host()


@given(lives(), st.data())
@examples(300)
def test_successor_judges_as_the_killed_daemon(life: Life, data: st.DataObject) -> None:
    rules, watch, history = life
    original = Host(rules, watch)
    original.memory.record()
    done = data.draw(st.integers(0, len(history)), label="killed after")
    for act in history[:done]:
        do(original, act)

    successor = successor_of(original, rules, watch)
    for src in original.open:
        successor.claim(src)
    assert successor.changes() == ""
    assert counters_of(successor) == counters_of(original)
    assert_alike(successor, original)
    assert_missing_kept(successor, original)

    # Both continue. Silence is not checked, which the successor counts from now on.
    for act in history[done:]:
        for one in (successor, original):
            one.now += act.quarters / 4
            one.sources.sweep(one.now)
        peer = PEERS[len(act.raws) % 2]
        for raw in act.raws:
            assert successor.feed(raw, peer=peer) == original.feed(raw, peer=peer)
        for src in SRCS:
            assert successor.sources.epoch(src) == original.sources.epoch(src)
    assert_alike(successor, original)
    assert_missing_kept(successor, original)
    # Sent datagrams are local for the successor too.
    conflicts = successor.sources.counted["conflicts"]
    for raw in successor.sent:
        if bccn1.read(raw).src in successor.open:
            assert successor.feed(raw) == ["looped"]
    assert successor.sources.counted["conflicts"] == conflicts
    second = successor_of(successor, rules, watch)
    for src in successor.open:
        second.claim(src)
    assert_alike(second, successor)


@given(lives())
@examples(200)
def test_an_unfinished_input_is_taken_back_and_processed_again(life: Life) -> None:
    rules, watch, history = life
    host = Host(rules, watch)
    host.memory.record()
    for act in history:
        do(host, act)
    before = successor_of(host, rules, watch)
    raws = [datagram(src, seq) for src in SRCS[:3] for seq in (5, 6, 9, 7, 6)]
    verdicts = host.feed(*raws, commit=False)
    successor = successor_of(host, rules, watch)
    assert state_of(successor) == state_of(before)
    assert counters_of(successor) == counters_of(before)
    assert successor.counters.verdicts == before.counters.verdicts
    assert successor.feed(*raws) == verdicts
    host.memory.commit()
    heir = successor_of(host, rules, watch)
    for src in host.open:
        heir.claim(src)
    assert_alike(heir, host)


def test_what_was_committed_is_not_taken_back(host: Host) -> None:
    host.memory.record()
    host.receive(SRCS[0], 1, 2)
    host.feed(datagram(SRCS[0], 3), commit=False)
    memory = copied(host.memory)
    assert memory.restore(host.serial + 1) == 0  # another input was in progress
    assert memory.source(memory.find(SRCS[0], 0, len(SRCS[0]))).last == 3


def test_a_change_by_time_is_taken_back_without_an_input(host: Host) -> None:
    host.memory.record()
    host.receive(SRCS[0], 1, 5)
    assert host.memory.start()
    host.sources.forget(host.source())
    memory = copied(host.memory)
    assert memory.restore(0) == 0
    heir = Host(memory=memory)
    heir.load()
    assert (heir.sources.missing, heir.sources.counted["expired"], heir.sources.counted["lost"]) == (3, 0, 0)


def test_a_tracker_that_is_dropped_stays_dropped_unless_its_input_is_taken_back(host: Host) -> None:
    host.memory.record()
    host.receive(SRCS[0], 1)
    host.receive(SRCS[1], 1)

    def left(serial: int) -> list[bytes]:
        memory = copied(host.memory)
        assert memory.restore(serial) == 0
        return [memory.key(number) for number in memory.numbers(layout.SOURCE)]

    host.sources.drop(SRCS[0])
    assert left(0) == [SRCS[1]]
    host.memory.begin(7)
    host.sources.drop(SRCS[1])
    assert (left(0), left(7)) == ([], [SRCS[1]])


def test_missing_seqs_have_the_horizons_time_from_the_restart(host: Host) -> None:
    host.receive(SRCS[0], 1, 5)
    host.now += 0.9
    heir = successor_of(host)
    heir.now += 0.9
    heir.sweep()
    assert (heir.sources.missing, heir.sources.counted["lost"]) == (3, 0)
    heir.now += 0.2
    heir.sweep()
    assert (heir.sources.missing, heir.sources.counted["lost"], heir.sources.losses.by_src) == (0, 3, {SRCS[0]: 3})
    assert successor_of(heir).sources.losses.by_src == {SRCS[0]: 3}


def test_windows_of_any_size_are_kept() -> None:
    rules = dedup_rules(sanity=65_536, horizon=1e6)
    host = Host(rules)
    seqs = [1, *range(4, 60_000, 1009), 7, 9, 59_000]
    host.receive(SRCS[0], *seqs)
    heir = successor_of(host, rules)
    assert (heir.source().absent, heir.source().missing) == (host.source().absent, host.source().missing)
    assert heir.source().absent.bit_length() > 50_000
    host.receive(SRCS[0], 10**9)
    assert host.source().absent == 0


def test_liveness_goes_on(host: Host) -> None:
    host.heartbeat(SRCS[0], 1, 2)
    host.heartbeat(SRCS[1], 1)
    host.heartbeat(SRCS[2], 1)
    host.until(host.now + 1.4)
    host.receive(SRCS[1], 2)
    host.receive(SRCS[2], 2)
    host.until(host.now + 0.75)
    assert host.source().state == SILENT
    heir = successor_of(host)
    assert (heir.source().state, heir.source(SRCS[1]).state, heir.liveness.silent) == (SILENT, ALIVE, 1)
    heir.until(heir.now + 4.0)
    assert heir.liveness.counted["deaths"] == 3
    assert list(successor_of(heir).liveness.dead) == list(heir.liveness.dead)
    assert successor_of(heir).liveness.counted["deaths"] == 3


def silent_with_a_longer_interval(host: Host) -> Host:
    """Return the successor of a host, for which a source that sends each 2 s instead of each second is silent."""
    for seq in (1, 2, 3):
        host.heartbeat(SRCS[0], seq)
        host.until(host.now + 2.0)
    host.until(host.now + 2.0)
    assert host.source().state == SILENT
    heir = successor_of(host)
    assert heir.source().interval == 2.0
    return heir


def test_a_silent_source_stays_silent_after_a_restart_until_it_is_heard(host: Host) -> None:
    heir = silent_with_a_longer_interval(host)
    heir.until(heir.now + 2.0)
    assert (heir.changes(), heir.source().state) == ("", SILENT)
    heir.receive(SRCS[0], 4)
    heir.until(heir.now + 2.0)
    assert (heir.changes(), heir.source().state) == ("alive", ALIVE)


def test_a_silent_source_is_taken_for_alive_after_a_sleep_behind_a_restart(host: Host) -> None:
    heir = silent_with_a_longer_interval(host)
    heir.now += 60.0
    heir.sweep()
    assert (heir.changes(), heir.source().state) == ("alive", ALIVE)


def test_heartbeats_above_the_cap_are_not_watched(host: Host) -> None:
    for src in SRCS[:3]:
        host.heartbeat(src, 1)
    heir = successor_of(host, watching=dedup_rules(max_sources=1))
    assert sorted(source.state for source in heir.sources.latest(9)) == [0, 0, ALIVE]
    assert heir.liveness.counted["unwatched"] == 2


def test_identities_stay_local_until_their_broadcasts_cannot_come_any_more(host: Host) -> None:
    host.claim()
    raw = host.send()
    host.now += 5.0
    heir = successor_of(host)
    assert heir.feed(raw) == ["looped"]
    assert heir.sources.counted["conflicts"] == 0
    heir.until(heir.now + RELEASE_DELAY - 0.5)
    assert heir.feed(raw) == ["looped"]
    heir.until(heir.now + 1.0)
    assert heir.feed(raw) == ["accepted"]
    assert not successor_of(heir).sources.local.has(LOCAL[0])


def test_seqs_that_the_daemon_before_may_have_used_are_no_conflict(host: Host) -> None:
    host.claim()
    host.send()
    heir = successor_of(host)
    assert heir.feed(datagram(LOCAL[0], heir.clock_us + SPARE // 2)) == ["looped"]
    assert heir.sources.counted["conflicts"] == 0


def test_what_a_report_has_shown_to_be_lost_is_counted_once(host: Host) -> None:
    host.receive(SRCS[0], 1)
    daemon = host
    for _ in range(3):
        assert daemon.sources.take_report(SRCS[0], 1, 4, daemon.now)
        daemon.until(daemon.now + 3 * RULES.horizon)
        assert (daemon.sources.missing, daemon.sources.counted["lost"]) == (0, 2)
        daemon = successor_of(daemon)


def test_anonymous_datagrams_stay_known_for_the_horizon(host: Host) -> None:
    raw = datagram(b"?", 1)
    assert host.feed(raw) == ["accepted"]
    heir = successor_of(host)
    assert heir.feed(raw) == ["duplicate"]
    heir.now += RULES.horizon + 0.1
    assert heir.feed(raw) == ["accepted"]


def test_copies_from_before_a_restart_stay_known(host: Host) -> None:
    host.receive(SRCS[0], 1000)
    host.now += 5.0
    host.receive(SRCS[0], 1)
    heir = successor_of(host)
    assert heir.sources.judge(SRCS[0], 1000, heir.now, from_link=True) == DUPLICATE
    assert heir.sources.counted["jumps"] == 0


def test_memory_that_makes_no_sense_costs_only_itself(host: Host) -> None:
    for src in SRCS[:3]:
        host.receive(src, 1, 5, 9)
    memory = copied(host.memory)
    number = host.memory.find(SRCS[1], 0, len(SRCS[1]))
    start = layout.SLOTS + layout.SLOT * number
    memory.memory[start + 40 : start + 44] = (0xFFFFFF).to_bytes(4, "little")
    damaged = copied(memory)
    assert damaged.restore(0) == 1
    heir = Host(memory=damaged)
    heir.load()
    assert {source.src for source in heir.sources.latest(9)} == {SRCS[0], SRCS[2]}
    assert heir.receive(SRCS[1], 10) == ["accepted"]
