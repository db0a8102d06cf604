"""What comes from the segment: single datagrams at doors of every kind, and streams of them over time."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Final

from bccnd.core.formats.image_sections import Section, pack_section, unpack_sections
from bccnd.core.formats.tap_record import observe
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.judgement import arrival_from_link
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import HeartbeatRules, Liveness
from bccnd.core.tracking.tracker_image import resume_trackers, tracker_sections
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker, make_checker
from bccnd.core.trust.integrity_algorithms import Crc32, Hmac
from bccnd.core.wire import bccn1
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES, NUMBERS
from bccnd.errors import BadDatagram
from tests import vectors
from tests.core.material import KEY, OTHER_KEY, sign
from tests.core.world import NS, OPEN, OWN, PEER, SIGNED, World
from tests.rules import dedup_rules

_SIG: Final = vectors.DOORS["sig"]
DOORS: Final = {
    "open": OPEN,
    "hmac": SIGNED,
    "while a fleet migrates": IntegrityChecker((Hmac(KEY), Hmac(OTHER_KEY)), accept_unverifiable=True),
    "crc32": IntegrityChecker((Crc32(),), required=True),
    "sig": make_checker("sig", _SIG.secrets, {prefix.encode(): keys for prefix, keys in _SIG.public.items()}),
}
#: verdicts that let a message go further
_PASSED: Final = {*NAMES[: LAST_ACCEPTED + 1], "not_addressed"}


def datagram(data: bytes) -> object:
    """One datagram, at each door: one verdict, the one that `trace` foretold; twice the same is a duplicate."""
    outcome = []
    for name, checker in DOORS.items():
        world = World(checker)
        foretold = world.traced(data).verdict
        verdict, deliveries = world.judge(data)
        assert not world.bugs, f"a bug at the door {name}"
        assert verdict == foretold, f"{verdict} at the door {name}, and trace says {foretold}"
        _look(data, verdict)
        world.feed(data)
        assert not world.bugs
        if verdict in _PASSED:
            totals = world.totals()
            assert totals.get("duplicate", 0) + totals.get("looped", 0) == 1, f"{totals} after twice the same"
        outcome.append((name, verdict, deliveries, sorted(world.totals().items()), world.beats, world.conflicts))
    return outcome


def _look(data: bytes, verdict: str) -> None:
    """What is read can be written again, byte for byte; and whatever it was, the recorder has a row for it."""
    row = observe(verdict, "one", 1, NS, PEER, data)
    assert row.length == len(data)
    try:
        found = bccn1.read(data)
    except BadDatagram as bad:
        reason = bad.reason
    else:
        reason = ""
    assert not reason or (reason in NUMBERS and verdict not in _PASSED), f"{verdict}, and it is {reason}"
    if reason:
        return
    body = bccn1.build_body(found.src, found.seq, found.chan, found.payload)
    again = bccn1.read(bccn1.build(body))
    assert (again.src, again.seq, again.chan, again.payload) == (found.src, found.seq, found.chan, found.payload)


def repair(data: bytes, seed: int) -> bytes:
    """An input whose length and sum are put right, so that what is behind them is reached."""
    chance = random.Random(seed)
    head, bracket, body = data.partition(b"]")
    if not bracket or chance.random() < 0.25:
        return data
    magic = head.partition(b"[")[0] if chance.random() < 0.1 else b"BCCN1"
    kind = chance.randrange(5)
    check = b""
    if kind == 1:
        check = b":" + sign(chance.choice((KEY, KEY, OTHER_KEY)), body)
    elif kind == 2:
        check = b":crc32=%08x" % zlib.crc32(body)
    elif kind == 3:
        return vectors.sealed(_SIG.signs, body)
    elif kind == 4:
        check = b":" + head.partition(b":")[2]
    return b"%b[%d%b]%b" % (magic, len(body), check, body)


# -- over time

_RULES: Final = (
    dedup_rules(sanity=16, horizon=1.0),
    dedup_rules(sanity=64, horizon=0.5, max_sources=3),
    dedup_rules(sanity=16, horizon=1.0, deliver_late=True),
    dedup_rules(sanity=16, horizon=1.0, monotonic=True),
)
_SRCS: Final = (b"a/p/1", b"b", b"?", OWN, b"c/p/2", b"d/%d", b"bad*", b"e/p/1")
_CHANS: Final = (b"c/1", b"c/2", b"!", b"!own/p/1", b"!nobody", b"heartbeat/a/p/1", b"heartbeat/b", b"!/x")
_PEERS: Final = (PEER, "10.0.0.8:1")
_STEP: Final = struct.Struct("<BBH")


def stream(data: bytes) -> object:
    """Steps of four bytes: who, on which channel, by which way, how much later, and how far the number is from the last
    one. Whatever comes: one verdict each, tables within their bounds, and an image that a successor understands."""
    rules = _RULES[data[0] % len(_RULES)] if data else _RULES[0]
    world = World(rules=rules)
    liveness = Liveness(world.sources, HeartbeatRules(interval=1.0, dead_after=3), 0.0)
    now, outcome = 1.0, []
    last = dict.fromkeys(_SRCS, 20)
    for who, how, far in _STEP.iter_unpack(data[1 : 1 + len(data[1:]) // 4 * 4]):
        src = _SRCS[who & 7]
        if who & 0x80:
            now += (who >> 3 & 15) * 0.25
        step = far - 65_536 if far > 60_000 else far if far < 300 else far << 40
        seq = last[src] = min(max(last[src] + step, 0), bccn1.MAX_SEQ)
        body = bccn1.build_body(src % (far & 7) if b"%" in src else src, seq, _CHANS[how & 7], b"x")
        raw = bccn1.build(body)
        before = list(world.counters.verdicts)
        if how & 0x40:
            found, way, late, copies = Deliveries(), 1 + (how >> 4 & 1), bool(how & 0x20), how >> 3 & 1
            arrival = arrival_from_link(world.counters, way, _PEERS[0], now, NS, late=late)
            passed = world.ingress.feed_link(found, arrival, raw, copies=copies)
            deliveries: object = ([(sorted(who_gets.all), frame) for who_gets, frame in found], passed)
        else:
            deliveries = world.feed(raw, now=now, peer=_PEERS[how >> 3 & 1])
        changed = [NAMES[n] for n, count in enumerate(world.counters.verdicts) if count != before[n]]
        outcome.append((changed, deliveries))
        world.sources.sweep(now)
        liveness.sweep(now)
        assert len(changed) == 1, changed
        assert len(world.sources) <= rules.max_sources
    assert sum(world.counters.verdicts) == world.counters.received == len(outcome)
    assert not world.bugs
    sources = world.sources
    state = [(one.src, one.last, one.epoch, one.missing, one.state) for one in sources.latest(100)]
    counted = sources.counted.all()
    return outcome, state, counted, sources.missing, _take_over(rules, world, liveness, now)


def _take_over(rules: TrackerLimits, world: World, liveness: Liveness, now: float) -> object:
    """A successor knows of each source what was known."""
    left: dict[str, list[Section]] = {}
    for written in tracker_sections(world.sources, world.anonymous, liveness):
        for section in unpack_sections(pack_section(written)):
            left.setdefault(section.kind, []).append(section)
    sources, anonymous = TrackerTable(rules), AnonymousDedup(rules)
    watch = Liveness(sources, HeartbeatRules(interval=1.0, dead_after=3), now)
    resume_trackers(left, sources, anonymous, watch, now, ordered=True)
    wanted, found = (_known(one) for one in (world.sources, sources))
    assert found == wanted, f"{found} from the image, {wanted} was known"
    assert sources.missing == world.sources.missing
    return found, sources.missing


def _known(sources: TrackerTable) -> dict[bytes, tuple[int, int, int, int, int]]:
    """What is known of each source: the last seq, the epoch, and what has come of the latest."""
    return {one.src: (one.last, one.epoch, one.first, one.absent, one.missing) for one in sources.latest(100)}
