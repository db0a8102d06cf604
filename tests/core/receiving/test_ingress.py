"""Ingress: one verdict for every datagram, nothing raised, and the quick path never differs from the rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Route, Routes
from bccnd.core.observing.counters import GroupCounters, SegmentCounters
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import Arrival
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.trust.integrity_algorithms import Hmac
from bccnd.core.wire import bccn1, directed_targets, frames
from bccnd.core.wire.verdicts import LAST_ACCEPTED, LOOPED, NAMES
from bccnd.errors import BadDatagram
from bccnd.native.buffers.sent_datagrams import SentDatagrams
from tests.core import naive
from tests.core.material import KEY, OTHER_KEY, examples, sign
from tests.core.world import BATCHES, GROUPS, NS, OPEN, OWN, PEER, RECEIVERS, SIGNED, Batch, Delivered, World, datagram
from tests.rules import dedup_rules

#: verdicts that depend on what came before
OF_DEDUP = {"accepted", "reordered", "restart", "duplicate", "stale", "replayed", "not_addressed"}


class Oracle:
    """Verdicts, deliveries, heartbeats and conflicts by the rules: the standard library's sums, the plain reader, naive
    matching."""

    def __init__(self, key: bytes | None, rules: TrackerLimits, ceiling: int) -> None:
        self.key = key
        self.ceiling = ceiling
        self.sources = TrackerTable(rules)
        self.sources.claim(OWN)
        self.anonymous = AnonymousDedup(self.sources.limits)
        self.messages = [0] * len(GROUPS)
        self.bytes = [0] * len(GROUPS)
        self.beats: list[tuple[bytes, float]] = []
        #: the senders under an identity of this host, which has sent nothing
        self.conflicts: list[str] = []

    def feed(self, raw: bytes, peer: str, now: float) -> tuple[str, Delivered]:
        if len(raw) > self.ceiling:
            return "oversize", []
        try:
            magic, check, body = bccn1.split_envelope(raw)
            self.verify(check, body)
            if magic != b"BCCN1":
                return "unsupported_version", []
            src, seq, chan, payload = bccn1.read_body(body)
        except BadDatagram as bad:
            return bad.reason, []
        anonymous = src == bccn1.UNKNOWN_SRC
        verdict = self.anonymous.judge(peer, body, now) if anonymous else self.sources.judge(src, seq, now)
        if verdict == LOOPED:
            self.conflicts.append(peer)
        if verdict > LAST_ACCEPTED:
            return NAMES[verdict], []
        found = [who for who in RECEIVERS if self.takes(who, chan)]
        if not found and chan.startswith(b"!") and chan != b"!":
            return "not_addressed", []
        for number, pattern in enumerate(GROUPS):
            if naive.matches("path", pattern, chan):
                self.messages[number] += 1
                self.bytes[number] += len(payload)
        if chan == b"heartbeat/" + src and src != b"?":
            self.beats.append((src, now))
        head, meta = b"MSG " + chan + b"\0", b"%b:%d:%d:%b|" % (src, seq, NS, peer.encode("ascii"))
        plain, curious = [who for who in found if not RECEIVERS[who][2]], [who for who in found if RECEIVERS[who][2]]
        frames = [(plain, head + payload), (curious, head + meta + payload)]
        return NAMES[verdict], [(who, frame) for who, frame in frames if who]

    def verify(self, check: bytes, body: bytes) -> None:
        if self.key is None:
            reason = "integrity_unknown" if check else ""
        elif not check:
            reason = "integrity_missing"
        elif not check.startswith(b"hmac="):
            reason = "integrity_unknown"
        else:
            reason = "" if check == sign(self.key, body) else "integrity_failed"
        if reason:
            raise BadDatagram(reason)

    @staticmethod
    def takes(who: int, chan: bytes) -> bool:
        identity, pattern, _ = RECEIVERS[who]
        if not chan.startswith(b"!"):
            return naive.matches("path", pattern, chan)
        return chan == b"!" or directed_targets.matches(chan[1:], identity)


# -- for all bytes

#: behind datagrams of two sources on a channel some that begin like them and are in no order
HEARD_BEFORE = (*(datagram(), datagram(b"b"), b"BCCN1[7]a/p/1:|", b"BCCN1[15]a/p/1:1|x:c/1|x", b"BCCN1[9]b:1:c/1:|"),)

#: heartbeats, and what is sent on the channel of another source's heartbeats
BEATS = [datagram(src, chan=b"heartbeat/" + of) for src in (b"a", b"heartbeat/a", b"?", OWN) for of in (src, b"a", b"")]


@given(
    BATCHES,
    st.sampled_from([None, KEY]),
    st.builds(dedup_rules, sanity=st.sampled_from([16, 1024]), deliver_late=st.booleans(), monotonic=st.booleans()),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([bccn1.MAX_RECEIVE, 30, 52]),
)
@example([Batch(0, [(raw, PEER) for raw in HEARD_BEFORE])], None, dedup_rules(), 4, False, 20)
@example([Batch(0, [(raw, PEER) for raw in BEATS])], None, dedup_rules(), 4, False, 1500)
@examples(400)
def test_ingress_follows_the_rules(
    fed: list[Batch], key: bytes | None, rules: TrackerLimits, cache: int, tapped: bool, ceiling: int
) -> None:
    world = World(OPEN if key is None else SIGNED, rules, cache=cache, ceiling=ceiling)
    for receiver, pattern in ((3, b"!/tap/"), (1, b"!/tap/dup*"), (1, b"!/tap/bad_src")) if tapped else ():
        world.routes.subscribe(receiver, pattern)
    oracle = Oracle(key, rules, ceiling)
    now, expected_totals = 0.0, dict.fromkeys(NAMES, 0)
    for batch in fed:
        now += batch.quarters / 4
        expected: Delivered = []
        for raw, peer in batch.arrived:
            verdict, deliveries = oracle.feed(raw, peer, now)
            expected_totals[verdict] += 1
            expected += deliveries
            if tapped:
                epoch = oracle.sources.epoch(bccn1.read(raw).src) if verdict in OF_DEDUP else 0
                who = [1, 3] if verdict in ("duplicate", "bad_src") else [3]
                expected.append((who, frames.tapped(verdict, "one", epoch, NS, peer, raw)))
        assert world.feed_from(batch.raws, batch.peers, now) == expected
        assert world.totals() == {name: count for name, count in expected_totals.items() if count}
        assert world.counters.received == sum(expected_totals.values())
    assert [group[1:] for group in world.ingress.groups.all()] == list(zip(oracle.messages, oracle.bytes, strict=True))
    assert world.beats == oracle.beats
    assert world.conflicts == [(OWN, peer) for peer in oracle.conflicts[:1]]
    assert world.sources.counted["conflicts"] == len(oracle.conflicts)
    assert world.bugs == []


def test_what_came_is_counted_by_channel_host_and_group() -> None:
    world = World()
    raws = [*(datagram(seq=seq) for seq in (1, 9, 9, 3)), datagram(seq=10, chan=b"d"), *[datagram(b"?", 1)] * 2]
    world.feed(*raws)
    assert [world.routes.find(chan).carried for chan in (b"c/1", b"d")] == [3, 1]
    (sender,) = world.sources.senders
    assert (sender.host, sender.received, sender.duplicate) == (b"a", 3, 1)
    world.ingress.set_groups([b"d"], GroupCounters(["d"]))
    world.feed(datagram(seq=21), datagram(seq=22, chan=b"d"))
    assert world.ingress.groups.all() == [("d", 1, 1)]


# -- internal errors


class BrokenRoutes(Routes[int]):
    def find(self, chan: bytes) -> Route:
        if chan == b"broken":
            raise RuntimeError("a bug")
        return super().find(chan)


class BrokenSources(TrackerTable):
    def judge_next(self, source: Source, seq: int, now: float, from_link: bool = False) -> int:
        assert seq != 666
        return super().judge_next(source, seq, now, from_link)

    def judge_new(self, src: bytes, seq: int, now: float) -> int:
        assert seq != 666
        return super().judge_new(src, seq, now)


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize(
    "bad",
    [datagram(chan=b"broken"), datagram(seq=666), datagram(src=b"new", seq=666), datagram(seq=666, chan=b"fresh")],
)
def test_bug_drops_one_datagram_only(bad: bytes, reported: bool) -> None:
    bugs: list[bytes] = []
    routes = BrokenRoutes(DIALECTS["path"])
    for receiver, pattern in ((1, b""), (2, b"!/tap/internal_error")):
        routes.join(receiver, b"h/p/1")
        routes.subscribe(receiver, pattern)
    sources, anonymous = BrokenSources(dedup_rules()), AnonymousDedup(dedup_rules())
    sources.claim(OWN)
    callbacks: dict[str, Any] = {"on_bug": bugs.append} if reported else {}
    way_in = Ingress(OPEN, sources, anonymous, routes, **callbacks)
    counters, found = SegmentCounters("one"), Deliveries()
    # Without callbacks a conflict and a heartbeat are only counted, too.
    raws = [datagram(seq=1, payload=b"before"), bad, datagram(OWN), datagram(b"a", chan=b"heartbeat/a")]
    way_in.feed(found, Arrival(counters, [PEER] * 4, 0.0, NS), raws)
    tapped = frames.tapped("internal_error", "one", 0, NS, PEER, bad)
    assert [(receivers.all, frame) for receivers, frame in found] == [
        *(((1,), b"MSG c/1\0before"), ((2,), tapped), ((1,), b"MSG heartbeat/a\0x")),
    ]
    assert bugs == [bad] * reported
    counts = {NAMES[number]: count for number, count in enumerate(counters.verdicts) if count}
    assert counts == {"accepted": 2, "internal_error": 1, "looped": 1}
    assert (counters.received, sources.counted["conflicts"]) == (4, 1)


# -- heartbeats and reports


def test_an_accepted_report_is_passed_on_with_its_parts() -> None:
    world = World(SIGNED)
    raws = [datagram(b"a", seq, b"bccn/report/a", b"{}", key) for seq, key in ((1, KEY), (1, KEY), (2, OTHER_KEY))]
    world.feed(*raws, datagram(b"a", 3, b"bccn/reports/a", b"{}", KEY), now=5.0)
    assert world.reports == [(b"a", 1, b"bccn/report/a", b"{}", 5.0)]


# -- another sender under an identity of this host


def test_each_identity_in_conflict_is_reported_once() -> None:
    world = World()
    out = DatagramBuilder(OPEN, world.sources)
    out.open(OWN)
    sent = [out.build(OWN, frames.message(chan, b"x"), 1000) for chan in (b"c/1", b"!", b"!own", b"!nobody")]
    assert world.feed(*sent, *sent) == []
    assert (world.totals(), world.conflicts, world.sources.counted["conflicts"]) == ({"looped": 8}, [], 0)
    for number, seq in enumerate((999, 1004, 1, 999)):
        assert world.verdict(datagram(OWN, seq=seq), peer=f"10.0.0.{number}:5400") == "looped"
        assert world.verdict(sent[0]) == "looped"
    world.sources.claim(b"own/q/2")
    world.feed(datagram(b"own/q/2"), datagram(b"own/q/2"))
    assert world.conflicts == [(OWN, "10.0.0.0:5400"), (b"own/q/2", PEER)]
    assert world.sources.counted["conflicts"] == 6


def test_an_own_broadcast_is_recognized_by_its_bytes() -> None:
    world = World(IntegrityChecker((Hmac(KEY),), required=True))
    world.routes.subscribe(1, b"!/tap/looped")
    out = DatagramBuilder(world.ingress.checker, world.sources)
    out.open(OWN)
    sent = SentDatagrams()
    own, copied = [out.build(OWN, frames.message(b"c/1", b"x"), 1000) for _ in range(2)]
    for raw in (own, copied, copied):
        sent.put(raw, 0.0)
    spoiled, conflicting = own[:-1] + b"y", datagram(OWN, seq=999, key=KEY)
    raws = [conflicting, spoiled, own, copied, copied, copied, datagram(b"a", key=KEY)]
    verdicts, delivered = world.take(raws, [PEER] * len(raws), sent=sent)
    assert verdicts == ["looped", "integrity_failed", *["looped"] * 4, "accepted"]
    assert world.conflicts == [(OWN, PEER)]
    tapped = [frames.tapped("looped", "one", 0, NS, PEER, raw) for raw in (conflicting, own, copied, copied, copied)]
    assert [frame for _, frame in delivered if b"!/tap/" in frame] == tapped
    (key,) = world.ingress.checker.list_keys()
    assert (len(sent), key.verified) == (0, len(raws) - 1)
