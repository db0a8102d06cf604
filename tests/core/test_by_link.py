"""What links bring: judged with more caution than what a segment brings, passed on once, and never taken for news when
it comes back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import frames
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import CLOCKED, LINK_PATIENCE, MAX_ENDED, UNHEARD, DedupRules, Sources
from bccnd.core.ingress import MAX_RELAYED
from bccnd.core.verdicts import NAMES
from bccnd.errors import BadFrame
from tests.core.world import NS, OWN, SIGNED, World, any_bytes, datagram

SRC = b"host/program/1"
#: who carries datagrams to other segments
CARRIER = 9
PEER = "192.0.2.7:5410"


# -- the trackers. A step is where a seq came from, when, the seq, and the verdict on it

SEGMENT, LINK = "segment", "link"
RULES = DedupRules(sanity=16, horizon=2.0)
FAR = LINK_PATIENCE + 0.25
HISTORIES: dict[str, tuple[DedupRules, list[tuple[str, float, int, str]]]] = {
    "the next one is news, however it came": (
        RULES,
        [(SEGMENT, 0, 5, "accepted"), (LINK, 0, 6, "accepted"), (SEGMENT, 0, 7, "accepted")],
    ),
    "a copy is one, whichever was first": (
        RULES,
        [
            (LINK, 0, 5, "accepted"),
            (SEGMENT, 0, 5, "duplicate"),
            (SEGMENT, 0, 6, "accepted"),
            (LINK, 0, 6, "duplicate"),
        ],
    ),
    "a copy that comes beyond the horizon by a link is no restart": (
        RULES,
        [(SEGMENT, 0, 5, "accepted"), (LINK, 2.25, 5, "duplicate"), (LINK, 29, 5, "duplicate")],
    ),
    "but by the segment it is one": (RULES, [(SEGMENT, 0, 5, "accepted"), (SEGMENT, 2.25, 5, "restart")]),
    "a restart far away is believed after a long silence": (
        RULES,
        [(LINK, 0, 5, "accepted"), (LINK, 10, 1, "stale"), (LINK, 30, 2, "stale"), (LINK, FAR, 3, "restart")],
    ),
    "a copy from far behind is no restart by a link": (
        RULES,
        [
            (SEGMENT, 0, 1, "accepted"),
            *[(SEGMENT, 0.0, seq, "accepted") for seq in range(2, 40)],
            (LINK, 0, 3, "duplicate"),
        ],
    ),
    "nor is it after the horizon, but after a long silence it is": (
        RULES,
        [(SEGMENT, 0, 100, "accepted"), (LINK, 3, 3, "duplicate"), (LINK, FAR, 3, "restart")],
    ),
    "what was overtaken on the way is late, as ever": (
        RULES,
        [(LINK, 0, 5, "accepted"), (LINK, 0, 8, "accepted"), (LINK, 1, 6, "stale"), (LINK, 1, 6, "duplicate")],
    ),
    "or delivered once where that is wanted": (
        DedupRules(sanity=16, horizon=2.0, deliver_late=True),
        [(LINK, 0, 5, "accepted"), (LINK, 0, 8, "accepted"), (LINK, 10, 6, "reordered"), (LINK, 10, 6, "duplicate")],
    ),
    "where numbers only rise they do by links, too": (
        DedupRules(sanity=16, horizon=2.0, monotonic=True),
        [(LINK, 0, 50, "accepted"), (LINK, 0, 3, "duplicate"), (LINK, FAR, 3, "replayed")],
    ),
    "who counts by the clock does not begin anew below": (
        RULES,
        [
            (SEGMENT, 0, CLOCKED + 50, "accepted"),
            (SEGMENT, 3, CLOCKED + 50, "duplicate"),
            (SEGMENT, 3, CLOCKED + 49, "stale"),
            (SEGMENT, 3, CLOCKED + 1, "duplicate"),
            (SEGMENT, FAR, CLOCKED + 1, "restart"),
            (SEGMENT, FAR, 1, "restart"),
        ],
    ),
    "unless numbers only rise anyway": (
        DedupRules(sanity=16, horizon=2.0, monotonic=True),
        [(SEGMENT, 0, CLOCKED + 50, "accepted"), (SEGMENT, 3, CLOCKED + 50, "replayed")],
    ),
    "after a restart copies from before it are no leap ahead": (
        RULES,
        [
            (SEGMENT, 0, 1000, "accepted"),
            (SEGMENT, 0, 1, "restart"),
            (LINK, 1, 999, "duplicate"),
            (LINK, 1, 1000, "duplicate"),
            (SEGMENT, 1, 2, "accepted"),
            (LINK, 1, 1001, "accepted"),
        ],
    ),
    "and what is ahead long after it is one": (
        RULES,
        [(SEGMENT, 0, 1000, "accepted"), (SEGMENT, 0, 1, "restart"), (LINK, FAR, 999, "accepted")],
    ),
}


def receive(sources: Sources, way: str, src: bytes, seq: int, now: float) -> str:
    sources.cautious = way == LINK
    verdict = sources.judge(src, seq, now)
    if verdict == UNHEARD:
        verdict = sources.begin(src, seq, now)
    sources.cautious = False
    return NAMES[verdict]


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    rules, steps = HISTORIES[name]
    sources = Sources(rules)
    assert [receive(sources, way, SRC, seq, now) for way, now, seq, _ in steps] == [said for *_, said in steps]


def test_restarts_are_remembered_up_to_a_number_the_latest() -> None:
    sources = Sources(RULES)
    for number in range(MAX_ENDED + 1):
        receive(sources, SEGMENT, b"%d" % number, 1000, 0)
        assert receive(sources, SEGMENT, b"%d" % number, 1, 0) == "restart"
    assert receive(sources, LINK, b"0", 999, 0) == "accepted"
    assert receive(sources, LINK, b"%d" % MAX_ENDED, 999, 0) == "duplicate"
    assert sources.restarts_evicted == 1


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 60)), max_size=60),
    st.lists(st.integers(1, 60), min_size=1, max_size=60),
)
def test_whatever_comes_late_by_links_nothing_is_news_twice(
    late: list[tuple[bool, int, int]], steps: list[int]
) -> None:
    # A source whose numbers rise, heard on the segment at once; copies come by links up to 20 s later, in any order.
    sources = Sources(RULES)
    events: list[tuple[float, int, str, int]] = []
    seq = 0
    for at, step in enumerate(steps):
        seq += step % 15 + 1
        events.append((at * 0.25, 0, SEGMENT, seq))
        events += [(at * 0.25 + delay * 0.5, 1, LINK, seq) for soon, delay, which in late if soon or which == at]
    heard = [receive(sources, way, SRC, number, now) for now, _, way, number in sorted(events)]
    news = [number for (_, _, _, number), said in zip(sorted(events), heard, strict=True) if said == "accepted"]
    assert "restart" not in heard
    assert len(news) == len(set(news)) == len(steps)


# -- the way in


@dataclass
class Host:
    """A host with a link, and what it was told to do with what that brought."""

    world: World = field(default_factory=World)
    counters: SegmentCounters = field(default_factory=lambda: SegmentCounters("nng"))

    def __post_init__(self) -> None:
        self.world.routes.join(CARRIER, b"own/carrier/1")
        self.world.routes.subscribe(CARRIER, frames.LINK)

    def bring(
        self, raw: bytes, *, way: int = 7, now: float = 0.0, late: bool = False, copies: int = 1
    ) -> tuple[str, bool]:
        """What a link brings: the verdict, and whether it is to be broadcast."""
        before = list(self.counters.verdicts)
        self.delivered, accepted = self.world.ingress.feed_link(
            self.counters, way, raw, PEER, now, NS, late=late, copies=copies
        )
        (name,) = [NAMES[n] for n, count in enumerate(self.counters.verdicts) if count != before[n]]
        return name, accepted

    def passed(self, raws: list[bytes], now: float = 0.0) -> list[tuple[int, bytes]]:
        """What the carrier gets of what comes from the segment."""
        return self.carried(self.world.ingress.feed(self.world.counters, raws, ["10.0.0.9:1"] * len(raws), now, NS))

    @staticmethod
    def carried(deliveries: list[tuple[tuple[int, ...], bytes]]) -> list[tuple[int, bytes]]:
        head = b"MSG " + frames.LINK + b"\0"
        return [
            frames.read_passed(frame.removeprefix(head))
            for receivers, frame in deliveries
            if CARRIER in receivers and frame.startswith(head)
        ]


def test_what_the_segment_accepts_goes_to_links_and_nothing_else() -> None:
    host = Host()
    good, same, late = datagram(seq=20), datagram(seq=20), datagram(seq=19)
    elsewhere, nobody = datagram(seq=21, chan=b"not/here"), datagram(seq=22, chan=b"!nobody")
    bad = b"BCCN1[1]x"
    assert host.passed([good, same, late, elsewhere, nobody, bad, datagram(src=OWN, seq=1)]) == [
        (0, good),
        (0, elsewhere),
        (0, nobody),
    ]


def test_what_a_link_brings_goes_to_clients_to_the_segments_and_to_the_other_links() -> None:
    host = Host()
    raw = datagram(seq=20)
    assert host.bring(raw, way=7) == ("accepted", True)
    assert host.carried(host.delivered) == [(7, raw)]
    assert any(1 in receivers and frame == b"MSG c/1\0x" for receivers, frame in host.delivered)
    assert host.bring(raw, way=8) == ("duplicate", False)
    assert host.carried(host.delivered) == []
    assert host.passed([datagram(seq=21)]) == [(0, datagram(seq=21))]


def test_who_has_but_one_link_need_not_get_what_it_brings() -> None:
    host = Host()
    host.world.routes.unsubscribe(CARRIER, frames.LINK)
    host.world.routes.subscribe(CARRIER, frames.LINK_HERE)
    host.bring(datagram(seq=20))
    assert host.carried(host.delivered) == []
    assert host.passed([datagram(seq=21)]) == [(0, datagram(seq=21))]
    # Who holds both gets everything once.
    host.world.routes.subscribe(CARRIER, frames.LINK)
    assert host.passed([datagram(seq=22)]) == [(0, datagram(seq=22))]
    host.bring(datagram(seq=23))
    assert host.carried(host.delivered) == [(7, datagram(seq=23))]


def test_what_has_waited_for_us_for_too_long_goes_over_no_link() -> None:
    host = Host()
    second = 1_000_000_000
    raws = [datagram(seq=20), datagram(seq=21), datagram(seq=22)]
    stamps = [NS, NS + second, NS + 3 * second]
    found = host.world.ingress.feed_late(host.world.counters, raws, ["10.0.0.9:1"] * 3, 0.0, stamps, NS + 3 * second)
    assert host.carried(found) == [(0, datagram(seq=21)), (0, datagram(seq=22))]
    assert host.world.ingress.not_passed == 1
    assert len([frame for receivers, frame in found if 1 in receivers and frame.endswith(b"x")]) >= 3
    assert host.passed([datagram(seq=23)]) == [(0, datagram(seq=23))]


def test_a_directed_message_for_nobody_here_goes_on() -> None:
    host = Host()
    assert host.bring(datagram(chan=b"!nobody")) == ("not_addressed", True)
    assert host.carried(host.delivered) == [(7, datagram(chan=b"!nobody"))]


def test_what_is_not_accepted_goes_nowhere() -> None:
    host = Host(World(SIGNED))
    for raw in (datagram(), b"", b"x" * 3000, b"BCCN1[1]x"):
        _, accepted = host.bring(raw)
        assert (accepted, host.delivered) == (False, [])


def test_our_own_messages_that_come_back_by_a_link_are_known() -> None:
    host = Host()
    assert host.bring(datagram(src=OWN, seq=1)) == ("looped", False)


def test_what_comes_late_stays_on_this_host() -> None:
    host = Host()
    assert host.bring(datagram(), late=True) == ("accepted", True)
    assert host.carried(host.delivered) == []
    assert host.delivered
    assert host.world.verdict(datagram()) == "duplicate"


def test_what_we_broadcast_for_a_link_comes_back_as_ours() -> None:
    host = Host()
    raw = datagram(seq=20)
    host.bring(raw, copies=2)
    # Two segments of ours; the third copy is that of another bridge.
    assert [host.world.verdict(raw) for _ in range(3)] == ["looped", "looped", "duplicate"]


def test_what_never_comes_back_is_forgotten_in_the_end() -> None:
    host = Host()
    for number in range(MAX_RELAYED + 1):
        host.bring(datagram(src=b"s/%d" % number))
    assert host.world.verdict(datagram(src=b"s/0")) == "duplicate"
    assert host.world.verdict(datagram(src=b"s/1")) == "looped"


def test_a_message_without_a_sender_is_not_taken_for_another_one_because_it_came_around() -> None:
    host = Host()
    raw = datagram(src=b"?", seq=1)
    assert host.passed([raw]) == [(0, raw)]
    assert host.bring(raw) == ("duplicate", False)
    other = datagram(src=b"?", seq=2)
    assert host.bring(other) == ("accepted", True)
    assert host.bring(other, way=8) == ("duplicate", False)
    assert host.world.verdict(other) == "looped"
    # On the segment itself two senders may say the same.
    assert host.world.verdict(raw, peer="10.0.0.8:1") == "accepted"


def test_who_subscribes_to_all_of_the_bus_gets_nothing_of_what_links_get() -> None:
    host = Host()
    for pattern in (b"!/", b"!/*", b"!/>", b"!/link/*", b"!/link", b"!/link/here/", b""):
        host.world.routes.subscribe(2, pattern)
    assert list(host.world.routes.links) == list(host.world.routes.links_here) == [CARRIER]
    assert host.world.routes.unsubscribe(CARRIER, frames.LINK)
    assert list(host.world.routes.links) == list(host.world.routes.links_here) == []
    assert host.passed([datagram()]) == []


@given(st.lists(st.tuples(any_bytes(), st.booleans(), st.booleans()), max_size=30))
def test_whatever_links_bring_it_gets_one_verdict_and_leaves_the_segments_ways_alone(
    brought: list[tuple[bytes, bool, bool]],
) -> None:
    host = Host(World(SIGNED))
    for raw, by_link, late in brought:
        if by_link:
            host.bring(raw, late=late)
        else:
            host.world.verdict(raw)
        assert not host.world.sources.cautious
    assert host.world.bugs == []
    assert host.counters.received == sum(host.counters.verdicts)
    fresh = datagram(src=b"never/heard/before", key=b"k" * 32)
    assert host.passed([fresh]) == []


# -- the frames


@given(st.integers(0, 2**32), st.binary(max_size=50))
def test_what_goes_to_links_is_read_as_it_was_written(way: int, raw: bytes) -> None:
    verb, key, payload = frames.read(frames.passed(way, raw))
    assert (verb, key, frames.read_passed(payload)) == (frames.MSG, frames.LINK, (way, raw))


@given(st.integers(1, 2**32), st.integers(0, 2**63), st.binary(max_size=50))
def test_what_links_bring_is_read_as_it_was_written(way: int, when: int, raw: bytes) -> None:
    verb, key, payload = frames.read(frames.arrived("nng", way, when, "[2001:db8::1]:5", raw))
    assert (verb, key) == (frames.MSG, frames.LINK)
    assert frames.read_arrived(payload) == ("nng", way, when, "[2001:db8::1]:5", raw)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"|",
        b"nng|x",
        b"nng:1:2|x",
        b"nng:0:2:a:1|x",
        b"nng:-1:2:a:1|x",
        b"nng:1:x:a:1|x",
        b":1:2:a:1|x",
        b"n\xff:1:2:a:1|x",
    ],
)
def test_what_no_link_can_have_brought_is_refused(payload: bytes) -> None:
    with pytest.raises(BadFrame):
        frames.read_arrived(payload)


@pytest.mark.parametrize("payload", [b"", b"x", b"|x", b"-1|x", b"1" * 21 + b"|x"])
def test_what_was_never_passed_on_is_refused(payload: bytes) -> None:
    with pytest.raises(BadFrame):
        frames.read_passed(payload)
