"""A daemon goes on with the trackers that the one before has left, as if there had been one daemon."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.image_sections import Column, Section, pack_section
from bccnd.core.tracking.dedup import RELEASE_DELAY
from bccnd.core.tracking.liveness import ALIVE, SILENT
from bccnd.core.tracking.tracker_image import source_section
from bccnd.core.wire import bccn1
from bccnd.core.wire.verdicts import DUPLICATE
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
    do,
    lives,
    resumed,
    successor_of,
    tracker,
)
from tests.core.world import datagram
from tests.rules import dedup_rules


@pytest.fixture
def host() -> Host:
    return Host()


@given(lives(), st.data())
@examples(300)
def test_the_next_daemon_judges_as_the_one_before(life: Life, data: st.DataObject) -> None:
    rules, watch, history = life
    original = Host(rules, watch)
    done = data.draw(st.integers(0, len(history)), label="stopped after")
    for act in history[:done]:
        do(original, act)

    successor = successor_of(original, rules, watch)
    assert successor.changes() == ""
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
    assert_missing_kept(successor, original)
    # Sent datagrams are local for the successor too.
    conflicts = successor.sources.counted["conflicts"]
    for raw in successor.sent:
        if bccn1.read(raw).src in successor.open:
            assert successor.feed(raw) == ["looped"]
    assert successor.sources.counted["conflicts"] == conflicts


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
    assert heir.source().sender.lost == 3


def test_windows_of_any_size_are_kept() -> None:
    rules = dedup_rules(sanity=65_536, horizon=1e6)
    host = Host(rules)
    host.receive(SRCS[0], 1, *range(4, 60_000, 1009), 7, 9, 59_000)
    heir = successor_of(host, rules)
    assert (heir.source().absent, heir.source().missing) == (host.source().absent, host.source().missing)
    assert heir.source().absent.bit_length() > 50_000


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
    assert dict(successor_of(heir).liveness.dead) == dict(heir.liveness.dead)


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
    heir = successor_of(host, dedup_rules(max_sources=1))
    assert sorted(source.state for source in heir.sources.latest(9)) == [0, 0, ALIVE]
    assert heir.liveness.counted["unwatched"] == 2


def test_identities_stay_local_until_their_broadcasts_cannot_come_any_more(host: Host) -> None:
    host.claim()
    raw = host.send()
    host.release()
    host.now += 5.0
    heir = successor_of(host)
    assert heir.feed(raw) == ["looped"]
    assert heir.sources.counted["conflicts"] == 0
    heir.until(heir.now + RELEASE_DELAY - 5.5)
    assert heir.feed(raw) == ["looped"]
    heir.until(heir.now + 1.0)
    assert heir.feed(raw) == ["accepted"]


def test_an_identity_in_use_goes_on_with_its_run(host: Host) -> None:
    host.claim()
    host.send()
    last = bccn1.read(host.send()).seq
    host.now += 5.0
    heir = successor_of(host)
    assert bccn1.read(heir.send()).seq == last + 1
    assert heir.builder.runs() == [(LOCAL[0], last - 1, last + 2)]


def test_what_a_report_has_shown_to_be_lost_is_counted_once(host: Host) -> None:
    host.receive(SRCS[0], 1)
    assert host.sources.take_report(SRCS[0], 1, 4, host.now)
    host.until(host.now + 3 * RULES.horizon)
    assert host.sources.counted["lost"] == 2
    heir = successor_of(host)
    assert heir.sources.take_report(SRCS[0], 1, 4, heir.now)
    heir.until(heir.now + 3 * RULES.horizon)
    assert (heir.sources.missing, heir.sources.counted["lost"]) == (0, 0)


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


def test_sources_that_were_written_in_any_order_are_put_in_order(host: Host) -> None:
    for src in SRCS[:3]:
        host.receive(src, 1)
        host.now += 5.0
    shuffled = [host.source(SRCS[number]) for number in (1, 2, 0)]
    heir = resumed(Host(now=host.now), pack_section(source_section(shuffled)), ordered=False)
    assert [source.src for source in heir.sources.all()] == list(SRCS[:3])


def test_columns_and_kinds_of_a_neighbouring_version_are_ignored_and_missing_ones_have_defaults(host: Host) -> None:
    columns: dict[str, Column] = {
        "src": ("s", [SRCS[0]]),
        "last": ("Q", [7]),
        "first": ("Q", [5]),
        "mood": ("d", [0.5]),
    }
    image = pack_section(Section("weather", {"sun": True})) + pack_section(Section("sources", {"x": 1}, columns))
    heir = resumed(host, image)
    source = heir.source(SRCS[0])
    assert (source.first, source.last, source.epoch, source.state, source.absent) == (5, 7, 1, 0, 0)
    assert heir.receive(SRCS[0], 8) == ["accepted"]
    assert tracker(source)[:2] == (5, 8)
