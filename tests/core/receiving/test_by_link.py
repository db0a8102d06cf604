"""Datagrams that links bring: judged with more caution, passed on once, and not accepted again when they come back."""

from __future__ import annotations

import pytest

from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import MAX_RELAYED, RELAY_PATIENCE
from bccnd.core.receiving.judgement import Arrival, arrival_from_link
from bccnd.core.tracking import losses
from bccnd.core.tracking.dedup import CLOCK_MIN, LINK_PATIENCE, TrackerTable
from bccnd.core.tracking.losses import MAX_RESTARTS
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, NAMES, RESTART
from bccnd.native.buffers.sent_datagrams import SentDatagrams
from tests.core import scenario
from tests.core.tracker_hosts import receive
from tests.core.world import NS, World, datagram
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
    "a copy from just beyond the window is one": (LATE, "100 ~84:duplicate ~85:reordered"),
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
    """Each hole is a jump: `test_losses` has what the rate of a source explains."""
    monkeypatch.setattr(losses, "MAX_HOLES", 0)


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


class Host:
    """A host with a link, and what came of the last datagram."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.counters = SegmentCounters("nng")
        self.delivered = Deliveries()
        self.broadcast = False
        self.world.routes.join(CARRIER, b"own/carrier/1")
        self.world.routes.subscribe(CARRIER, frames.LINK)

    def bring(
        self, raw: bytes, *, way: int = 7, now: float = 0.0, late: bool = False, copies: int = 1
    ) -> tuple[str, bool]:
        """Receive a datagram from a link; return the verdict, and whether it is to be broadcast."""
        before = list(self.counters.verdicts)
        self.delivered = Deliveries()
        arrival = arrival_from_link(self.counters, way, PEER, now, NS, late=late)
        self.broadcast = self.world.ingress.feed_link(self.delivered, arrival, raw, copies=copies)
        (name,) = [NAMES[n] for n, count in enumerate(self.counters.verdicts) if count != before[n]]
        return name, self.broadcast

    def take(self, raws: list[bytes], *, now: float = 0.0, peer: str = PEER) -> list[str]:
        """Receive datagrams from the segment; return the verdicts."""
        self.delivered, self.broadcast = Deliveries(), False
        arrival = Arrival(self.world.counters, [peer] * len(raws), now, NS)
        return [NAMES[verdict] for verdict in self.world.ingress.feed(self.delivered, arrival, raws)]

    @property
    def carried(self) -> list[tuple[int, bytes]]:
        """What the carrier got: each datagram with the peer of a link that sent it, 0 for the segment."""
        head = b"MSG " + frames.LINK + b"\0"
        return [
            frames.read_forwarded(frame.removeprefix(head))
            for receivers, frame in self.delivered
            if CARRIER in receivers.all and frame.startswith(head)
        ]

    def play(self, history: str) -> None:
        """Play the words of a history; see HOSTS."""
        now, copies, raw = 0.0, 1, b""
        for word in history.split():
            name, _, value = word.partition("=")
            way, link, item = name.rpartition(">")
            if word[0] == "@":
                now = float(word[1:])
                while self.world.ingress.sweep(now):
                    pass
            elif name == "copies":
                copies = int(value)
            elif name == "carried":
                assert (word, self.carried) == (word, [(int(value), raw)] if value else [])
            elif name == "broadcast":
                assert (word, self.broadcast) == (word, value == "yes")
            elif name == "received":
                clients = {one for receivers, _ in self.delivered for one in receivers.all} - {CARRIER}
                assert (word, bool(clients)) == (word, value == "yes")
            else:
                *src, seq, chan = f"{item}:c/1".split(":")[: 3 if item.count(":") else 2]
                raw = datagram("".join(src or ["a/p/1"]).encode(), int(seq), chan.encode())
                if link:
                    late = way == "late"
                    verdict, _ = self.bring(raw, way=0 if late else int(way), now=now, late=late, copies=copies)
                else:
                    (verdict,) = self.take([raw], now=now)
                assert (word, verdict) == (word, value or "accepted")


#: ``20``: a datagram with this seq from the segment is accepted, ``19=stale``: it gets this verdict; ``b:2:d``: of b on
#: channel d; ``7>20``: from this peer of a link, ``late>20``: too late for others. ``@3``: the time. ``carried=7``:
#: the carrier gets it as from this peer, 0 for the segment; ``broadcast=yes``; ``received=no``: by others.
HOSTS = {
    "links get all that the segment accepts, and nothing else": (
        "20 carried=0 20=duplicate carried= 19=stale carried= a/p/1:21:not/here carried=0"
        " a/p/1:22:!nobody=not_addressed carried=0 own/p/1:1=looped carried= b*:1=bad_src carried="
    ),
    "a datagram from a link goes to clients, segments and the other links": (
        "7>20 broadcast=yes carried=7 received=yes 8>20=duplicate broadcast=no carried= 21 carried=0"
    ),
    "so does a directed one for no client here": "7>a/p/1:22:!nobody=not_addressed broadcast=yes carried=7 received=no",
    "a local message that returns is looped": "7>own/p/1:1=looped broadcast=no carried=",
    "a late one stays on this host": "late>20 carried= received=yes 20=duplicate",
    "a broadcast for a link is looped when it returns from each segment": (  # the third is that of another bridge
        "copies=2 7>20 20=looped 20=looped 20=duplicate"
    ),
    "an anonymous message that returns is a duplicate": (
        "?:1 carried=0 7>?:1=duplicate broadcast=no 7>?:2 broadcast=yes 8>?:2=duplicate ?:2=looped"
    ),
    "a broadcast is waited for since the last time": f"7>?:1 @1 7>?:2 @3 7>?:1 @{RELAY_PATIENCE + 2} ?:2 ?:1=looped",
}


@pytest.mark.parametrize("name", HOSTS)
def test_hosts(name: str) -> None:
    Host().play(HOSTS[name])


def test_broadcasts_are_waited_for_over_a_restart() -> None:
    before, after = Host(), Host()
    before.play("copies=2 7>20 20=looped")
    after.play("20")  # as the trackers outlive it too
    after.world.ingress.resume_relayed(before.world.ingress.relayed())
    after.play("20=looped 20=duplicate")


def test_own_datagrams_return_by_links_after_a_crash() -> None:
    host = Host()
    host.world.ingress.own_until_ns = NS - int((LINK_PATIENCE - 1) * 1e9)
    host.play("7>own/gone/1:5=looped broadcast=no carried= received=no")
    host.play("own/direct/1:5 received=yes 7>own/direct/1:5=duplicate")  # not through the daemon
    host.world.ingress.own_until_ns = NS - int((LINK_PATIENCE + 1) * 1e9)
    host.play("7>own/gone/1:6 carried=7 received=yes")


def test_the_carrier_of_one_link_need_not_get_what_it_brings() -> None:
    host = Host()
    host.world.routes.unsubscribe(CARRIER, frames.LINK)
    host.world.routes.subscribe(CARRIER, frames.LINK_HERE)
    host.play("7>20 carried= 21 carried=0")
    host.world.routes.subscribe(CARRIER, frames.LINK)  # with both, everything comes once
    host.play("22 carried=0 7>23 carried=7")


def test_datagrams_that_waited_for_too_long_go_to_no_link() -> None:
    host = Host()
    second = 1_000_000_000
    raws = [datagram(seq=20), datagram(seq=21), datagram(seq=22)]
    arrival = Arrival(host.world.counters, [PEER] * 3)
    host.world.ingress.feed_late(host.delivered, arrival, raws, [NS, NS + second, NS + 3 * second], NS + 3 * second)
    assert host.carried == [(0, raw) for raw in raws[1:]]
    assert host.world.ingress.too_old_for_links == 1
    assert len([frame for receivers, frame in host.delivered if 1 in receivers.all and frame.endswith(b"x")]) >= 3
    host.play("23 carried=0")


def test_a_clock_that_is_set_brings_none_from_the_future() -> None:
    host = Host()
    raws = [datagram(src=b"a/p/1"), datagram(src=b"a/p/2")]
    stamps = [NS, NS + 10**9 * 86_400]
    arrival = Arrival(host.world.counters, [PEER] * 2, 70.0)
    host.world.ingress.feed_late(Deliveries(), arrival, raws, stamps, stamps[1], 100.0)
    assert [(source.src, source.heard) for source in host.world.sources.all()] == [(b"a/p/1", 70.0), (b"a/p/2", 100.0)]


def test_broadcasts_that_are_waited_for_are_capped() -> None:
    host = Host()
    for number in range(MAX_RELAYED + 1):
        host.bring(datagram(src=b"s/%d" % number))
    host.play("s/0:20=duplicate s/1:20=looped")


def test_a_recognized_broadcast_is_waited_for_no_longer() -> None:
    host, sent = Host(), SentDatagrams()
    raw = datagram(seq=20)
    host.bring(raw)
    sent.put(raw, 0.0)
    assert host.world.take([raw, raw], [PEER] * 2, sent=sent)[0] == ["looped", "duplicate"]


def test_the_whole_bus_excludes_link_messages() -> None:
    host = Host()
    for pattern in (b"!/", b"!/*", b"!/>", b"!/link/*", b"!/link", b"!/link/here/", b""):
        host.world.routes.subscribe(2, pattern)
    assert [one.all for one in (host.world.routes.links, host.world.routes.links_here)] == [(CARRIER,)] * 2
    assert host.world.routes.unsubscribe(CARRIER, frames.LINK)
    assert [one.all for one in (host.world.routes.links, host.world.routes.links_here)] == [()] * 2
    host.play("20 carried=")


def test_broadcasts_that_do_not_come_back_are_forgotten() -> None:
    host, raws = Host(), [datagram(src=b"?", seq=seq) for seq in range(300)]
    for number, raw in enumerate(raws):
        host.bring(raw, now=number / 1000)
    sweeps = [host.world.ingress.sweep(RELAY_PATIENCE + 0.2505) for _ in range(4)]
    assert (sweeps[0], sweeps[-1]) == (True, False)
    # Only those that are still waited for are known as one's own.
    assert host.take(raws[249:253], now=RELAY_PATIENCE + 0.2505) == ["accepted", "accepted", "looped", "looped"]
