"""A small host, `Ingress` with a few receivers, and strategies for the traffic that comes to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import GroupCounters, SegmentCounters
from bccnd.core.receiving.datagram_trace import Trace, trace
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import Arrival
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.trust.integrity_algorithms import Hmac
from bccnd.core.wire import bccn1
from bccnd.core.wire.verdicts import NAMES
from bccnd.native.buffers.sent_datagrams import SentDatagrams
from tests.core import material
from tests.core.material import KEY, OTHER_KEY, sign
from tests.rules import dedup_rules

PEER = "10.0.0.9:5400"
NS = 1_700_000_000_000_000_000
OPEN = IntegrityChecker()
SIGNED = IntegrityChecker((Hmac(KEY),), required=True)
#: a local identity
OWN = b"own/p/1"

#: receivers with their identity, their pattern, and whether they want meta
RECEIVERS = {
    1: (OWN, b"c/1", False),
    2: (b"own/q/2", b"", True),
    3: (b"own/p/3", b"c/*", False),
    4: (b"own/p/1", b"c/1", True),
}
GROUPS = (b"c/", b"", b"!own")

Delivered = list[tuple[list[int], bytes]]


def datagram(
    src: bytes = b"a/p/1", seq: int | bytes = 20, chan: bytes = b"c/1", payload: bytes = b"x", key: bytes | None = None
) -> bytes:
    digits = seq if isinstance(seq, bytes) else b"%d" % seq
    body = b"%b:%b:%b|%b" % (src, digits, chan, payload)
    return bccn1.build(body, sign(key, body))


class World:
    """`Ingress` with a few receivers."""

    def __init__(
        self,
        checker: IntegrityChecker = OPEN,
        rules: TrackerLimits = dedup_rules(),  # noqa: B008 - it cannot be changed
        *,
        cache: int = 4096,
        ceiling: int = bccn1.MAX_RECEIVE,
        receivers: Mapping[int, tuple[bytes, bytes, bool]] = RECEIVERS,
        local: Iterable[bytes] = (OWN,),
    ) -> None:
        self.sources = TrackerTable(rules)
        for identity in local:
            self.sources.claim(identity)
        self.anonymous = AnonymousDedup(self.sources.limits)
        self.routes: Routes[int] = Routes(DIALECTS["path"], cache)
        for receiver, (identity, pattern, meta) in receivers.items():
            self.routes.join(receiver, identity)
            self.routes.subscribe(receiver, pattern)
            self.routes.set_meta(receiver, meta)
        self.bugs: list[bytes] = []
        self.beats: list[tuple[bytes, float]] = []
        self.reports: list[tuple[bytes, int, bytes, bytes, float]] = []
        self.conflicts: list[tuple[bytes, str]] = []
        self.ingress = Ingress(
            checker,
            self.sources,
            self.anonymous,
            self.routes,
            ceiling=ceiling,
            host=b"own",
            on_heartbeat=lambda src, now: self.beats.append((src, now)),
            on_report=lambda *report: self.reports.append(report),
            on_conflict=lambda src, peer: self.conflicts.append((src, peer)),
            on_bug=self.bugs.append,
        )
        self.ingress.set_groups(GROUPS, GroupCounters([group.decode() for group in GROUPS]))
        self.counters = SegmentCounters("one")

    def feed(self, *raws: bytes, now: float = 0.0, peer: str = PEER) -> Delivered:
        return self.feed_from(raws, [peer] * len(raws), now)

    def feed_from(self, raws: Sequence[bytes], peers: Sequence[str], now: float) -> Delivered:
        return self.take(raws, peers, now)[1]

    def take(
        self, raws: Sequence[bytes], peers: Sequence[str], now: float = 0.0, sent: SentDatagrams | None = None
    ) -> tuple[list[str], Delivered]:
        """The verdicts on some datagrams, and what was delivered."""
        found = Deliveries()
        verdicts = self.ingress.feed(found, Arrival(self.counters, peers, now, NS, sent=sent), list(raws))
        return [NAMES[one] for one in verdicts], [(sorted(receivers.all), frame) for receivers, frame in found]

    def judge(self, raw: bytes, now: float = 0.0, peer: str = PEER) -> tuple[str, Delivered]:
        """The verdict on one datagram, and what was delivered; there is just one, whatever the datagram."""
        before = self.totals()
        (verdict,), deliveries = self.take([raw], [peer], now)
        assert self.totals() == {**before, verdict: before.get(verdict, 0) + 1}
        return verdict, deliveries

    def verdict(self, raw: bytes, now: float = 0.0, peer: str = PEER) -> str:
        return self.judge(raw, now, peer)[0]

    def traced(self, raw: bytes, now: float = 0.0, peer: str = PEER) -> Trace[int]:
        return trace(raw, peer, now, ingress=self.ingress, routes=self.routes)

    def totals(self) -> dict[str, int]:
        return {NAMES[n]: count for n, count in enumerate(self.counters.verdicts) if count}


@st.composite
def traffic(draw: st.DrawFn) -> bytes:
    """A datagram that is mostly in order, of sources and channels that meet again and again."""
    src = draw(st.sampled_from([b"a/p/1"] * 5 + [b"b"] * 3 + [b"?", b"?", OWN, b"bad*", b"x/", b"", b"a:b", b"a|b"]))
    number = draw(st.one_of(st.integers(1, 12), st.integers(1, 40)))
    digits = draw(
        st.sampled_from([b"%d" % number] * 12 + [b"00%d" % number, b"0" * 19 + b"%d" % number, b"%d" % (5000 + number)]
            + [b"", b"x", b"-1", b"1|", b"%d" % (2**64 - 1), b"%d" % 2**64, b"9" * 40])
    )  # fmt: skip
    chan = draw(
        st.sampled_from([b"c/1"] * 6 + [b"c/2", b"d", b"!", b"!own", b"!own/p/1", b"!own/p/1/*", b"!nobody", b"!*"]
            + [b"!?", b"!/x", b"", b"c 1", b"c/1:", b"c\xe9", b"heartbeat/own/p/1"]
            + [b"heartbeat/a/p/1"] * 3 + [b"heartbeat/b", b"heartbeat/?", b"heartbeat/", b"heartbeat/a"])
    )  # fmt: skip
    payload = draw(st.one_of(st.sampled_from([b"x", b"", b"|", b":c/1|", b"x" * 1500]), st.binary(max_size=6)))
    bar = draw(st.sampled_from([b"|"] * 12 + [b""]))
    body = src + b":" + digits + b":" + chan + bar + payload
    key = draw(st.sampled_from([KEY, KEY, KEY, KEY, None, None, None, None, OTHER_KEY]))
    magic = draw(st.sampled_from([b"BCCN1"] * 15 + [b"BCCN2"]))
    check = draw(st.sampled_from([sign(key, body)] * 15 + [b"crc32=00", b"hmac="]))
    return b"%b[%d%b]%b" % (magic, len(body), b":" + check if check else b"", body)


ANY_BYTES = st.one_of(
    traffic(), traffic(), traffic(), material.mutated(traffic()), st.binary(max_size=60), material.FRAGMENTS
)


class Batch(NamedTuple):
    """Datagrams with their senders that arrive together, so many quarters of a second after the last ones."""

    quarters: int
    arrived: list[tuple[bytes, str]]

    @property
    def raws(self) -> list[bytes]:
        return [raw for raw, _ in self.arrived]

    @property
    def peers(self) -> list[str]:
        return [peer for _, peer in self.arrived]


PEERS = st.sampled_from([PEER, PEER, "10.0.0.8:1"])
QUARTERS = st.sampled_from([0, 0, 0, 1, 9])
BATCHES = st.lists(st.builds(Batch, QUARTERS, st.lists(st.tuples(ANY_BYTES, PEERS), max_size=8)), max_size=6)
