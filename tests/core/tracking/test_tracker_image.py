"""A daemon goes on with the trackers that the one before has left, as if there had been one daemon."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.image_sections import Column, Section, pack_section
from bccnd.core.tracking.dedup import RELEASE_DELAY, TrackerTable
from bccnd.core.tracking.liveness import ALIVE, Death
from bccnd.core.tracking.losses import Closed, Restart
from bccnd.core.tracking.tracker_image import resume_identities, source_section
from bccnd.core.wire import bccn1
from tests.core import scenario
from tests.core.material import examples
from tests.core.tracker_hosts import (
    LOCAL,
    PEERS,
    SRCS,
    Host,
    Life,
    image_of,
    lives,
    resumed,
    successor_of,
)
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
        act.do(original)

    successor = successor_of(original, rules, watch)
    assert successor.changes() == ""
    assert image_of(successor) == image_of(original)
    assert successor.sources.missing == sum(source.missing.bit_count() for source in successor.sources.all())
    assert successor.liveness.silent == original.liveness.silent

    # Both continue. Silence is not checked, which the successor counts from now on.
    for act in history[done:]:
        for one in (successor, original):
            one.now += act.quarters / 4
            one.sources.sweep(one.now)
        peer = PEERS[len(act.raws) % 2]
        for raw in act.raws:
            assert successor.arrive(raw, peer=peer) == original.arrive(raw, peer=peer)
        for src in SRCS:
            assert successor.sources.epoch(src) == original.sources.epoch(src)
    # Sent datagrams are local for the successor too.
    conflicts = successor.sources.counted["conflicts"]
    for raw in successor.sent:
        if bccn1.read(raw).src in successor.open:
            assert successor.arrive(raw) == ["looped"]
    assert successor.sources.counted["conflicts"] == conflicts


HISTORIES = {
    "missing seqs have the horizon's time from the restart": (
        "1 5 @0.9 restart missing=3 @1.8 sweep lost=0 @1.9 sweep missing=0 lost=3"
    ),
    "windows of any size are kept": (
        "1 4 5 60000 7:stale 59000:stale restart 7:duplicate 59000:duplicate 8:stale 59001:stale missing=59992"
    ),
    "a loss that a report has shown is counted once": "1 report:4 +3 lost=2 restart report:4 +3 lost=0 missing=0",
    "copies from before a restart of their source stay known": "100000 @5 1:restart restart ~100000:duplicate 2",
    "identities stay local until no broadcast can come any more": (
        f"uses:7:9 release:{RELEASE_DELAY} @5 restart 7:looped used:7 foreign:9 conflicts=1 @{RELEASE_DELAY - 0.5}"
        f" sweep 7:looped @{RELEASE_DELAY} sweep 7"
    ),
    "one that was in use stays local as long from the restart": (
        f"uses:7:9 @5 restart @{RELEASE_DELAY} sweep 7:looped @{RELEASE_DELAY + 5} sweep 7"
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    scenario.play(TrackerTable(dedup_rules(sanity=65_536, horizon=1.0)), HISTORIES[name])


def test_heartbeats_above_the_cap_are_not_watched(host: Host) -> None:
    for src in SRCS[:3]:
        host.heartbeat(src, 1)
    heir = successor_of(host, dedup_rules(max_sources=1))
    assert sorted(source.state for source in heir.sources.latest(9)) == [0, 0, ALIVE]
    assert heir.liveness.counted["unwatched"] == 2


def test_sources_written_in_any_order_are_put_in_order(host: Host) -> None:
    for src in SRCS[:3]:
        host.receive(src, 1)
        host.now += 5.0
    shuffled = [host.source(SRCS[number]) for number in (1, 2, 0)]
    heir = resumed(Host(now=host.now), pack_section(source_section(shuffled)), ordered=False)
    assert [source.src for source in heir.sources.all()] == list(SRCS[:3])


def test_sections_of_neighbouring_versions_are_read(host: Host) -> None:
    """Unknown columns are ignored, and missing ones have defaults; a source is taken once."""
    host.claim(LOCAL[1])
    columns: dict[str, Column] = {
        "src": ("s", [SRCS[0], SRCS[0], b"", LOCAL[1]]),
        "last": ("Q", [7, 9, 1, 1]),
        "first": ("Q", [5, 5, 1, 1]),
        "mood": ("d", [0.5] * 4),
        "of a later type": ("q", [-1] * 4),
    }
    named: dict[str, Column] = {"src": ("s", [b"x"])}
    sections = [Section("weather", {"sun": True}), Section("sources", {"x": 1}, columns)]
    sections += [Section(kind, {}, named) for kind in ("restarts", "closed", "dead")]
    heir = resumed(host, b"".join(map(pack_section, sections)))
    (source,) = heir.sources.all()
    assert (source.src, source.first, source.last, source.epoch) == (SRCS[0], 5, 7, 1)
    assert (source.state, source.absent, source.heard) == (0, 0, 0.0)
    assert dict(heir.sources.restarts.items()) == {b"x": Restart(0.0, 0)}
    assert dict(heir.sources.reported.closed.items()) == {b"x": Closed(0, 0)}
    assert dict(heir.liveness.dead) == {b"x": Death(0.0, 0.0, 0.0)}
    assert heir.receive(SRCS[0], 8) == ["accepted"]
    resume_identities({"identities": [Section("identities", {}, named)]}, heir.sources, heir.now)
    own = dict(heir.sources.local.items())[b"x"]
    assert (own.first, own.next, own.run, own.until, own.started) == (0, 0, 0, 0.0, False)
