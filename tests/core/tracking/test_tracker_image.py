"""A daemon goes on with the trackers that the one before has left, as if there had been one daemon."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.image_sections import Column, Section, pack_section
from bccnd.core.tracking.dedup import RELEASE_DELAY, TrackerTable
from bccnd.core.tracking.liveness import ALIVE, Death, HeartbeatRules
from bccnd.core.tracking.losses import Closed, Restart
from bccnd.core.tracking.tracker_image import resume_identities, source_section
from bccnd.core.wire import bccn1
from bccnd.core.wire.verdicts import ACCEPTED, LOOPED, NAMES
from tests.core import scenario
from tests.core.material import examples
from tests.core.tracker_hosts import Host
from tests.rules import dedup_rules

#: the first three are programs of other hosts; the next ones are at times local, and the last is no name
SRCS: Final = (b"a/p/1", b"b/p/2", b"c", b"own/p/1", b"own/p/2", b"?")
LOCAL: Final = SRCS[3:5]


class Arrival(NamedTuple):
    """A datagram of a sender, at a distance from its last seq or a copy of an earlier one."""

    src: bytes
    distance: int
    copy: int
    beat: bool


class Act(NamedTuple):
    """An event, so many quarters of a second after the one before, of a local identity or with datagrams."""

    quarters: int
    kind: str
    src: bytes
    arrivals: list[Arrival]

    def do(self, host: Host) -> None:
        if self.kind == "feed":
            host.now += self.quarters / 4
            self.arrive(host)
            return
        host.until(host.now + self.quarters / 4)
        if self.kind == "claim":
            host.claim(self.src)
        elif self.kind == "release":
            host.release(self.src)
        elif self.kind == "send" and self.src in host.open:
            host.send(self.src)
        elif self.kind == "echo" and host.sent:
            host.receive(*host.sent[-1])

    def arrive(self, host: Host) -> list[str]:
        """Receive the datagrams; return their verdicts."""
        verdicts = []
        for src, distance, copy, beat in self.arrivals:
            last = host.last.get(src, 1000)
            seq = last - copy if copy else min(max(last + distance, 0), bccn1.MAX_SEQ)
            verdicts.append(NAMES[host.receive(src, max(seq, 0), beat=beat)])
        return verdicts


DISTANCES = st.one_of(
    st.just(1), st.just(1), st.integers(-4, 4), st.integers(-20, 20), st.sampled_from([-(10**6), 10**6])
)
ARRIVALS = st.builds(
    Arrival, st.sampled_from([*SRCS[:1] * 2, *SRCS]), DISTANCES, st.sampled_from([0, 0, 0, 1, 2]), st.booleans()
)
KINDS = st.sampled_from([*["feed"] * 14, "sweep", "sweep", "claim", "release", "send", "echo"])


@st.composite
def lives(draw: st.DrawFn) -> tuple[Host, list[Act]]:
    """Draw a host and events. Some lives are crowded: sources are evicted and expire, and no two datagrams arrive at
    the same moment, since the order of eviction would be unspecified."""
    crowded = draw(st.booleans())
    rules = dedup_rules(
        sanity=draw(st.sampled_from([16, 40])), horizon=draw(st.sampled_from([0.5, 2.0])),
        deliver_late=draw(st.booleans()), monotonic=draw(st.booleans()),
        expire=draw(st.sampled_from([3.0, 1000.0])) if crowded else 1000.0, max_sources=2 if crowded else 600,
    )  # fmt: skip
    watch = HeartbeatRules(interval=1.0, dead_after=draw(st.sampled_from([1, 3])))
    quarters = st.sampled_from([1, 1, 2, 5, 9] if crowded else [0, 0, 0, 1, 2, 9])
    together = st.lists(ARRIVALS, min_size=1, max_size=1 if crowded else 5)
    events = st.builds(Act, quarters, KINDS, st.sampled_from(LOCAL), together)
    # Most drawn lists are short.
    history = draw(st.lists(events, min_size=draw(st.sampled_from([0, 10, 30])), max_size=60))
    return Host(TrackerTable(rules), watch, 1000.0), history


@given(lives(), st.data())
@examples(300)
def test_the_next_daemon_judges_as_the_one_before(life: tuple[Host, list[Act]], data: st.DataObject) -> None:
    original, history = life
    done = data.draw(st.integers(0, len(history)), label="stopped after")
    for act in history[:done]:
        act.do(original)

    successor = original.successor()
    assert successor.changes() == []
    assert successor.image() == original.image()
    assert successor.sources.missing == sum(source.missing.bit_count() for source in successor.sources.all())
    assert successor.liveness.silent == original.liveness.silent

    # Both continue. Silence is not checked, which the successor counts from now on.
    for act in history[done:]:
        for one in (successor, original):
            one.now += act.quarters / 4
            one.sources.sweep(one.now)
        assert act.arrive(successor) == act.arrive(original)
        for src in SRCS:
            assert successor.sources.epoch(src) == original.sources.epoch(src)
    # Sent datagrams are local for the successor too.
    conflicts = successor.sources.counted["conflicts"]
    assert {successor.receive(src, seq) for src, seq in successor.sent if src in successor.open} <= {LOOPED}
    assert successor.sources.counted["conflicts"] == conflicts


@pytest.fixture
def host() -> Host:
    return Host(TrackerTable(dedup_rules()), now=1000.0)


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


def test_an_identity_in_use_goes_on_with_its_run(host: Host) -> None:
    host.claim(LOCAL[0])
    host.send(LOCAL[0])
    heir = host.successor()
    heir.now += 5.0
    heir.send(LOCAL[0])
    ((_, first), (_, last)) = heir.sent
    assert heir.builder.runs() == [(LOCAL[0], first, first + 2)]
    assert last == first + 1
    while heir.sources.sweep(heir.now + 2 * RELEASE_DELAY):
        pass
    assert heir.sources.local.has(LOCAL[0])


def test_heartbeats_above_the_cap_are_not_watched(host: Host) -> None:
    host.hear(*SRCS[:3], beat=True)
    heir = host.successor(TrackerTable(dedup_rules(max_sources=1)))
    assert sorted(source.state for source in heir.sources.latest(9)) == [0, 0, ALIVE]
    assert heir.liveness.counted["unwatched"] == 2


def test_sources_written_in_any_order_are_put_in_order(host: Host) -> None:
    for src in SRCS[:3]:
        host.hear(src)
        host.now += 5.0
    shuffled = [host.source(SRCS[number]) for number in (1, 2, 0)]
    heir = Host(TrackerTable(dedup_rules()), now=host.now)
    heir.resume(pack_section(source_section(shuffled)), ordered=False)
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
    host.resume(b"".join(map(pack_section, sections)))
    (source,) = host.sources.all()
    assert (source.src, source.first, source.last, source.epoch) == (SRCS[0], 5, 7, 1)
    assert (source.state, source.absent, source.heard) == (0, 0, 0.0)
    assert dict(host.sources.restarts.items()) == {b"x": Restart(0.0, 0)}
    assert dict(host.sources.reported.closed.items()) == {b"x": Closed(0, 0)}
    assert dict(host.liveness.dead) == {b"x": Death(0.0, 0.0, 0.0)}
    assert host.receive(SRCS[0], 8) == ACCEPTED
    resume_identities({"identities": [Section("identities", {}, named)]}, host.sources, host.now)
    own = dict(host.sources.local.items())[b"x"]
    assert (own.first, own.next, own.run, own.until, own.started) == (0, 0, 0, 0.0, False)
