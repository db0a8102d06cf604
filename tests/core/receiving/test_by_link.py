"""Datagrams that links bring: judged with more caution, passed on once, and not accepted again when they come back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import MAX_RELAYED, RELAY_PATIENCE
from bccnd.core.tracking import reported_loss
from bccnd.core.tracking.dedup import CLOCK_MIN, LINK_PATIENCE, TrackerTable
from bccnd.core.tracking.recent_restarts import MAX_RESTARTS
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, LOOPED, NAMES, RESTART
from bccnd.native.buffers.sent_datagrams import SentDatagrams
from tests.core import scenario
from tests.core.scenario import SRC, receive
from tests.core.world import ANY_BYTES, NS, OWN, SIGNED, World, datagram
from tests.rules import dedup_rules

#: the client that carries datagrams to other segments
CARRIER = 9
PEER = "192.0.2.7:5410"

RULES = dedup_rules(sanity=16, horizon=2.0)
LOW, HIGH = CLOCK_MIN + 1, CLOCK_MIN + 50
FAR = LINK_PATIENCE + 0.25
LATE = dedup_rules(sanity=16, horizon=2.0, deliver_late=True)
MONOTONIC = dedup_rules(sanity=16, horizon=2.0, monotonic=True)
LINKED = dedup_rules(sanity=16, horizon=2.0, linked=True)
#: a clock in nanoseconds, and a number by chance
NANOSECONDS, CHANCE = 1_795_000_000 * 10**9, 1 << 62
HISTORIES: dict[str, tuple[TrackerLimits, str]] = {
    "the next one is new, however it came": (RULES, "5 ~6 7"),
    "a copy is one, whichever was first": (RULES, "~5 5:duplicate 6 ~6:duplicate"),
    "a copy that comes beyond the horizon is no restart": (RULES, "5 @2.25 ~5:duplicate @29 ~5:duplicate"),
    "but by the segment it is one": (RULES, "5 @2.25 5:restart restarts=1"),
    "a restart far away is believed after a long silence": (
        RULES,
        f"~5 @10 ~1:stale @30 ~2:stale @{FAR} ~3:restart restarts=1",
    ),
    "a copy from far behind is no restart": (RULES, f"{' '.join(map(str, range(1, 40)))} ~3:duplicate"),
    "nor after the horizon, but after a long silence it is": (
        RULES,
        f"100 @3 ~3:duplicate @{FAR} ~3:restart restarts=1",
    ),
    "what was overtaken on the way is late": (RULES, "~5 ~8 @1 ~6:stale ~6:duplicate missing=1"),
    "or delivered once where that is wanted": (LATE, "~5 ~8 @10 ~6:reordered ~6:duplicate missing=1"),
    "where numbers only rise they do by links, too": (MONOTONIC, f"~50 ~3:duplicate @{FAR} ~3:replayed"),
    "a source that counts by the clock does not begin anew below where segments are linked": (
        LINKED,
        f"{HIGH} @3 {HIGH}:duplicate {HIGH - 1}:stale {LOW}:duplicate @{FAR} {LOW}:restart 1:restart restarts=2",
    ),
    "unless numbers only rise anyway": (
        dedup_rules(sanity=16, horizon=2.0, monotonic=True, linked=True),
        f"{HIGH} @3 {HIGH}:replayed",
    ),
    "and where they are not it may": (RULES, f"{HIGH} {LOW}:restart @3 {LOW}:restart restarts=2"),
    "one that counts in nanoseconds may anywhere": (LINKED, f"{NANOSECONDS} {NANOSECONDS - 10**9}:restart restarts=1"),
    "and so may one that begins by chance": (LINKED, f"{CHANCE} {HIGH}:restart {CHANCE} 7:restart restarts=2 jumps=1"),
    "one that waited in a link does not make copies on the segment a restart": (
        RULES,
        "@100 1 2 @70 ~3 @101 3:duplicate 2:duplicate 4",
    ),
    "nor does one that waited in another segment": (RULES, "@100 1 @98 2 @101 2:duplicate"),
    "nor a late one": (LATE, "@100 1 3 @70 ~2:reordered @101 3:duplicate"),
    "a restart that waited is remembered from when the source was last heard": (
        RULES,
        "@100 1000 @70 1:restart @101 ~999:duplicate restarts=1",
    ),
    "after a restart copies from before it are no leap ahead": (
        RULES,
        "1000 1:restart @1 ~999:duplicate ~1000:duplicate 2 ~1001 restarts=1 jumps=1",
    ),
    "and long after it one that is ahead is a leap": (RULES, f"1000 1:restart @{FAR} ~999 restarts=1 jumps=1"),
}


@pytest.fixture(autouse=True)
def _no_rate_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hole is a jump: `test_reported_loss` has what the rate of a source explains."""
    monkeypatch.setattr(reported_loss, "MAX_HOLES", 0)


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    rules, words = HISTORIES[name]
    scenario.play(TrackerTable(rules), words)


def test_the_latest_restarts_are_remembered() -> None:
    sources = TrackerTable(RULES)
    for number in range(MAX_RESTARTS + 1):
        receive(sources, b"%d" % number, 1000, 0)
        assert receive(sources, b"%d" % number, 1, 0) == RESTART
    assert receive(sources, b"0", 999, 0, from_link=True) == ACCEPTED
    assert receive(sources, b"%d" % MAX_RESTARTS, 999, 0, from_link=True) == DUPLICATE
    assert sources.counted["restarts_evicted"] == 1


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 60)), max_size=60),
    st.lists(st.integers(1, 60), min_size=1, max_size=60),
)
def test_late_datagrams_are_not_accepted_twice(late: list[tuple[bool, int, int]], steps: list[int]) -> None:
    # A source whose seqs rise is received on the segment at once, copies by links up to 20 s later, in any order.
    sources = TrackerTable(RULES)
    events: list[tuple[float, bool, int]] = []
    seq = 0
    for at, step in enumerate(steps):
        seq += step % 15 + 1
        events.append((at * 0.25, False, seq))
        events += [(at * 0.25 + delay * 0.5, True, seq) for soon, delay, which in late if soon or which == at]
    verdicts = [receive(sources, SRC, seq, now, by_link) for now, by_link, seq in sorted(events)]
    accepted = [seq for (_, _, seq), verdict in zip(sorted(events), verdicts, strict=True) if verdict == ACCEPTED]
    assert RESTART not in verdicts
    assert len(accepted) == len(set(accepted)) == len(steps)


@dataclass
class Host:
    """A host with a link, and what came of the last datagram that the link brought."""

    world: World = field(default_factory=World)
    counters: SegmentCounters = field(default_factory=lambda: SegmentCounters("nng"))

    def __post_init__(self) -> None:
        self.world.routes.join(CARRIER, b"own/carrier/1")
        self.world.routes.subscribe(CARRIER, frames.LINK)

    def bring(
        self, raw: bytes, *, way: int = 7, now: float = 0.0, late: bool = False, copies: int = 1
    ) -> tuple[str, bool]:
        """Receive a datagram from a link; return the verdict, and whether it is to be broadcast."""
        before = list(self.counters.verdicts)
        self.delivered = Deliveries()
        accepted = self.world.ingress.feed_link(
            self.delivered, self.counters, way, raw, PEER, now, NS, late=late, copies=copies
        )
        (name,) = [NAMES[n] for n, count in enumerate(self.counters.verdicts) if count != before[n]]
        return name, accepted

    def passed(self, raws: list[bytes], now: float = 0.0) -> list[tuple[int, bytes]]:
        """Receive datagrams from the segment; return what the carrier gets."""
        found = Deliveries()
        self.world.ingress.feed(found, self.world.counters, raws, ["10.0.0.9:1"] * len(raws), now, NS)
        return self.carried(found)

    @staticmethod
    def carried(deliveries: Deliveries) -> list[tuple[int, bytes]]:
        head = b"MSG " + frames.LINK + b"\0"
        return [
            frames.read_forwarded(frame.removeprefix(head))
            for receivers, frame in deliveries
            if CARRIER in receivers.all and frame.startswith(head)
        ]


def test_only_what_the_segment_accepts_goes_to_links() -> None:
    host = Host()
    good, same, late = datagram(seq=20), datagram(seq=20), datagram(seq=19)
    elsewhere, to_other = datagram(seq=21, chan=b"not/here"), datagram(seq=22, chan=b"!nobody")
    raws = [good, same, late, elsewhere, to_other, b"BCCN1[1]x", datagram(src=OWN, seq=1)]
    assert host.passed(raws) == [(0, good), (0, elsewhere), (0, to_other)]


def test_what_a_link_brings_goes_to_clients_to_the_segments_and_to_the_other_links() -> None:
    host = Host()
    raw = datagram(seq=20)
    assert host.bring(raw, way=7) == ("accepted", True)
    assert host.carried(host.delivered) == [(7, raw)]
    assert any(1 in receivers.all and frame == b"MSG c/1\0x" for receivers, frame in host.delivered)
    assert host.bring(raw, way=8) == ("duplicate", False)
    assert host.carried(host.delivered) == []
    assert host.passed([datagram(seq=21)]) == [(0, datagram(seq=21))]
    # A directed message for no client of this host goes on.
    assert host.bring(datagram(seq=22, chan=b"!nobody")) == ("not_addressed", True)
    assert host.carried(host.delivered) == [(7, datagram(seq=22, chan=b"!nobody"))]
    # Local messages that return are looped.
    assert host.bring(datagram(src=OWN, seq=1)) == ("looped", False)


def test_the_carrier_of_one_link_need_not_get_what_it_brings() -> None:
    host = Host()
    host.world.routes.unsubscribe(CARRIER, frames.LINK)
    host.world.routes.subscribe(CARRIER, frames.LINK_HERE)
    host.bring(datagram(seq=20))
    assert host.carried(host.delivered) == []
    assert host.passed([datagram(seq=21)]) == [(0, datagram(seq=21))]
    # With both subscriptions everything comes once.
    host.world.routes.subscribe(CARRIER, frames.LINK)
    assert host.passed([datagram(seq=22)]) == [(0, datagram(seq=22))]
    host.bring(datagram(seq=23))
    assert host.carried(host.delivered) == [(7, datagram(seq=23))]


def test_what_has_waited_in_the_socket_for_too_long_goes_over_no_link() -> None:
    host = Host()
    second = 1_000_000_000
    raws = [datagram(seq=20), datagram(seq=21), datagram(seq=22)]
    stamps = [NS, NS + second, NS + 3 * second]
    deliveries = Deliveries()
    peers, now = ["10.0.0.9:1"] * 3, NS + 3 * second
    host.world.ingress.feed_late(deliveries, host.world.counters, raws, peers, 0.0, stamps, now)
    assert host.carried(deliveries) == [(0, datagram(seq=21)), (0, datagram(seq=22))]
    assert host.world.ingress.too_old_for_links == 1
    assert len([frame for receivers, frame in deliveries if 1 in receivers.all and frame.endswith(b"x")]) >= 3
    assert host.passed([datagram(seq=23)]) == [(0, datagram(seq=23))]


def test_clock_that_is_set_while_datagrams_wait_brings_none_from_the_future() -> None:
    host = Host()
    raws = [datagram(src=b"a/p/1"), datagram(src=b"a/p/2")]
    stamps = [NS, NS + 10**9 * 86_400]
    ingress = host.world.ingress
    ingress.feed_late(Deliveries(), host.world.counters, raws, [PEER] * 2, 70.0, stamps, stamps[1], 100.0)
    first, second = (host.world.sources.get(src) for src in (b"a/p/1", b"a/p/2"))
    assert first is not None
    assert second is not None
    assert (first.heard, second.heard) == (70.0, 100.0)


def test_late_datagrams_stay_on_this_host() -> None:
    host = Host()
    assert host.bring(datagram(), late=True) == ("accepted", True)
    assert host.carried(host.delivered) == []
    assert host.delivered
    assert all(CARRIER not in receivers.all for receivers, _ in host.delivered)
    assert host.world.verdict(datagram()) == "duplicate"


def test_broadcast_for_a_link_is_looped_when_it_returns() -> None:
    host = Host()
    raw = datagram(seq=20)
    host.bring(raw, copies=2)
    # This host has two segments; the third copy is that of another bridge.
    assert [host.world.verdict(raw) for _ in range(3)] == ["looped", "looped", "duplicate"]
    # What never comes back is forgotten in the end.
    for number in range(MAX_RELAYED + 1):
        host.bring(datagram(src=b"s/%d" % number))
    assert host.world.verdict(datagram(src=b"s/0")) == "duplicate"
    assert host.world.verdict(datagram(src=b"s/1")) == "looped"


def test_what_is_recognized_by_its_bytes_is_waited_for_no_longer() -> None:
    host, sent = Host(), SentDatagrams()
    raw = datagram(seq=20)
    host.bring(raw, copies=1)
    sent.put(raw, 0.0)
    verdicts = host.world.ingress.feed(Deliveries(), host.world.counters, [raw, raw], [PEER] * 2, 0.0, NS, sent=sent)
    assert verdicts == [LOOPED, DUPLICATE]


def test_returning_anonymous_message_is_a_duplicate() -> None:
    host = Host()
    raw = datagram(src=b"?", seq=1)
    assert host.passed([raw]) == [(0, raw)]
    assert host.bring(raw) == ("duplicate", False)
    other = datagram(src=b"?", seq=2)
    assert host.bring(other) == ("accepted", True)
    assert host.bring(other, way=8) == ("duplicate", False)
    assert host.world.verdict(other) == "looped"
    # On the segment two senders may send the same.
    assert host.world.verdict(raw, peer="10.0.0.8:1") == "accepted"


def test_subscription_to_the_whole_bus_excludes_link_messages() -> None:
    host = Host()
    for pattern in (b"!/", b"!/*", b"!/>", b"!/link/*", b"!/link", b"!/link/here/", b""):
        host.world.routes.subscribe(2, pattern)
    assert [one.all for one in (host.world.routes.links, host.world.routes.links_here)] == [(CARRIER,)] * 2
    assert host.world.routes.unsubscribe(CARRIER, frames.LINK)
    assert [one.all for one in (host.world.routes.links, host.world.routes.links_here)] == [()] * 2
    assert host.passed([datagram()]) == []


@given(st.lists(st.tuples(ANY_BYTES, st.booleans(), st.booleans()), max_size=30))
def test_what_links_bring_does_not_change_how_segments_are_judged(brought: list[tuple[bytes, bool, bool]]) -> None:
    host = Host(World(SIGNED))
    for raw, by_link, late in brought:
        if by_link:
            verdict, accepted = host.bring(raw, late=late)
            assert accepted == (verdict in {"accepted", "reordered", "restart", "not_addressed"})
            assert accepted or not host.delivered
        else:
            host.world.verdict(raw)
    assert host.world.bugs == []
    assert host.counters.received == sum(host.counters.verdicts)
    fresh = datagram(src=b"never/heard/before", key=b"k" * 32)
    assert host.passed([fresh]) == []


def test_what_does_not_come_back_is_forgotten_after_a_while() -> None:
    host = Host()
    raws = [datagram(src=b"?", seq=seq) for seq in range(300)]
    for number, raw in enumerate(raws):
        host.bring(raw, now=number / 1000)
    ingress = host.world.ingress
    assert not ingress.sweep(RELAY_PATIENCE)
    assert host.world.verdict(raws[0], RELAY_PATIENCE) == "looped"
    later = RELAY_PATIENCE + 0.2505
    calls = 1
    while ingress.sweep(later):
        calls += 1
    assert 1 < calls < 5
    # Only those that are still waited for are known as one's own.
    host.passed(raws[249:253], now=later)
    assert host.world.totals() == {"accepted": 2, "looped": 3}


def test_what_is_broadcast_again_is_waited_for_from_then_on() -> None:
    host = Host()
    again, other = datagram(src=b"?", seq=1), datagram(src=b"?", seq=2)
    for now, raw in ((0.0, again), (1.0, other), (3.0, again)):
        assert host.bring(raw, now=now) == ("accepted", True)
    later = RELAY_PATIENCE + 2.0
    host.world.ingress.sweep(later)
    assert [host.world.verdict(raw, later) for raw in (other, again)] == ["accepted", "looped"]
