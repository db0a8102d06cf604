"""The trace shows what ingress does next, for any datagram, rules and history, and changes nothing itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from tests.core.material import KEY, OTHER_KEY, examples
from tests.core.world import BATCHES, OPEN, OWN, SIGNED, Batch, World, datagram
from tests.rules import dedup_rules

STAGES = ["size", "envelope", "check", "body", "dedup", "match"]
ACCEPTING = NAMES[: LAST_ACCEPTED + 1]
#: what is known of a source, but for its neighbours in line
KNOWN = ("absent", "epoch", "first", "heard", "last", "missing", "rank", "src", "beat", "gap", "interval", "state")


def all_that_is_kept(world: World) -> object:
    """Everything by which a datagram could have been noticed."""
    sources, anonymous = world.sources, world.anonymous
    return (
        (world.counters.received, list(world.counters.verdicts)),
        world.ingress.groups.all(),
        [[getattr(source, name) for name in KNOWN] for source in sources.latest(1000)],
        (
            sources.missing,
            sources.counted["lost"],
            sources.counted["restarts"],
            sources.counted["jumps"],
            sources.counted["conflicts"],
        ),
        (sources.counted["expired"], sources.counted["evicted"], len(sources._gaps), len(sources.local._released)),
        {
            src: (own.first, own.next, own.until, own.reported)
            for src in sources.local.all()
            if (own := sources.local.get(src)) is not None
        },
        (dict(anonymous._young), dict(anonymous._old), anonymous._since, anonymous.counted["evicted"]),
        (list(world.bugs), list(world.beats), list(world.conflicts)),
        world.routes.subscriptions,
    )


@given(
    BATCHES,
    st.sampled_from([OPEN, SIGNED]),
    st.builds(dedup_rules, sanity=st.sampled_from([16, 1024]), deliver_late=st.booleans(), monotonic=st.booleans()),
    st.sampled_from([1, 4096]),
)
@examples(130)
def test_what_is_traced_is_what_happens(
    fed: list[Batch], checker: IntegrityChecker, rules: TrackerLimits, cache: int
) -> None:
    world = World(checker, rules, cache=cache)
    now = 0.0
    for batch in fed:
        now += batch.quarters / 4
        for raw, peer in batch.arrived:
            before = all_that_is_kept(world)
            found = world.traced(raw, now, peer)
            assert world.traced(raw, now, peer) == found
            assert all_that_is_kept(world) == before
            verdict, deliveries = world.judge(raw, now, peer)
            assert found.verdict == verdict
            assert sorted(found.receivers) == sorted(who for receivers, _ in deliveries for who in receivers)
            names = [name for name, _, _ in found.stages]
            assert names == STAGES[: len(names)]
            passed = [passed for _, passed, _ in found.stages]
            assert passed == [True] * (len(names) - 1) + [verdict in ACCEPTING]
            assert verdict not in ACCEPTING or names == STAGES
            assert all(finding and finding.isascii() for _, _, finding in found.stages)


WHERE: list[tuple[str, IntegrityChecker, bytes, str, str, str]] = [
    # what it is, the door, the datagram, its verdict, the stage that decides, and part of what is found there
    ("too long", OPEN, datagram(payload=b"x" * 1500), "oversize", "size", "at most 1500"),
    ("noise", OPEN, b"\x00\xff", "bad_envelope", "envelope", "no [...]"),
    ("a wrong length", OPEN, b"BCCN1[8]a:1:c|x", "length_mismatch", "envelope", "8 announced, 7 present"),
    ("unsigned", SIGNED, datagram(), "integrity_missing", "check", "one is required"),
    ("of another key", SIGNED, datagram(key=OTHER_KEY), "integrity_failed", "check", "does not match"),
    ("of another kind", SIGNED, b"BCCN1[7:crc32=00]a:1:c|x", "integrity_unknown", "check", "crc32"),
    ("another version", OPEN, b"BCCN2[7]a:1:c|x", "unsupported_version", "check", "BCCN2"),
    ("no bar", OPEN, b"BCCN1[5]a:1:c", "bad_body", "body", "<src>:<seq>:<chan>"),
    ("a star in src", OPEN, datagram(src=b"a*"), "bad_src", "body", "src must be"),
    ("no seq", OPEN, datagram(seq=b""), "bad_seq", "body", "digits"),
    ("a blank in the channel", OPEN, datagram(chan=b"c 1"), "bad_channel", "body", "chan must be"),
    ("a key of the bus", OPEN, datagram(chan=b"!/tap/accepted"), "bad_target", "body", "must not begin with"),
    ("of a local identity", OPEN, datagram(src=OWN), "looped", "dedup", "program of this host"),
    ("a copy", OPEN, datagram(src=b"old", seq=7), "duplicate", "dedup", "the last seq was 7, in epoch 1"),
    ("an anonymous copy", OPEN, datagram(src=b"?", seq=7), "duplicate", "dedup", "duplicate"),
    ("late", OPEN, datagram(src=b"old", seq=6), "stale", "dedup", "the last seq was 7"),
    ("for another host", OPEN, datagram(chan=b"!elsewhere"), "not_addressed", "match", "no program of this host"),
    ("for two", OPEN, datagram(chan=b"!own/p/1"), "accepted", "match", "2 clients"),
    ("for four, signed", SIGNED, datagram(key=KEY), "accepted", "match", "4 clients"),
    ("after a restart", OPEN, datagram(src=b"old", seq=7 + 2 * 10**6), "accepted", "match", "clients"),
    ("of a sender that begins anew", OPEN, datagram(src=b"far", seq=1), "restart", "match", "4 clients"),
    ("for subscribers only", OPEN, datagram(chan=b"zzz"), "accepted", "match", "1 client"),
]


@pytest.mark.parametrize(
    ("name", "checker", "raw", "verdict", "stage", "finding"), WHERE, ids=[row[0] for row in WHERE]
)
def test_a_trace_ends_where_the_datagram_does(
    name: str, checker: IntegrityChecker, raw: bytes, verdict: str, stage: str, finding: str
) -> None:
    world = World(checker)
    world.feed(datagram(src=b"old", seq=7), datagram(src=b"?", seq=7), datagram(src=b"far", seq=10**6))
    found = world.traced(raw)
    assert found.verdict == verdict
    assert (found.stages[-1].name, found.stages[-1].passed) == (stage, verdict in ACCEPTING)
    assert finding in found.stages[-1].finding
    assert bool(found.receivers) == (verdict in ACCEPTING)


def test_a_trace_uses_the_receivers_and_the_check_of_now() -> None:
    world = World()
    world.routes.unsubscribe(2, b"")
    found = world.traced(datagram(chan=b"zzz"))
    assert (found.verdict, found.receivers, found.stages[-1].finding) == ("accepted", (), "0 clients")
    raw = datagram(key=KEY)
    assert world.traced(raw).verdict == "integrity_unknown"
    world.ingress.checker = SIGNED
    assert world.traced(raw).verdict == "accepted"


def test_a_trace_says_of_a_new_source_that_it_is_new() -> None:
    world = World()
    assert world.traced(datagram()).stages[4].finding == "accepted: a new source"
    assert world.traced(datagram(src=b"?")).stages[4].finding == "accepted"
