"""The trace shows what ingress does next, and changes nothing itself."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from tests.core.material import OTHER_KEY, examples
from tests.core.world import BATCHES, OPEN, OWN, PEER, SIGNED, Batch, World, datagram
from tests.rules import dedup_rules

STAGES = ["size", "envelope", "check", "body", "dedup", "match"]
ACCEPTING = NAMES[: LAST_ACCEPTED + 1]
#: one for each stage that refuses
REFUSED = [
    *(datagram(payload=b"x" * 1500), b"noise", datagram(key=OTHER_KEY), datagram(src=b"a*")),
    *(datagram(src=OWN), datagram(chan=b"!elsewhere")),
]


@given(
    BATCHES,
    st.sampled_from([OPEN, SIGNED]),
    st.builds(dedup_rules, sanity=st.sampled_from([16, 1024]), deliver_late=st.booleans(), monotonic=st.booleans()),
    st.sampled_from([1, 4096]),
)
@example(
    [Batch(0, [(raw, PEER) for raw in [*REFUSED, datagram(), datagram(chan=b"!elsewhere")]])], OPEN, dedup_rules(), 1
)
@examples(130)
def test_what_is_traced_is_what_happens(
    fed: list[Batch], checker: IntegrityChecker, rules: TrackerLimits, cache: int
) -> None:
    world, untraced = World(checker, rules, cache=cache), World(checker, rules, cache=cache)
    now = 0.0
    for batch in fed:
        now += batch.quarters / 4
        for raw, peer in batch.arrived:
            found = world.traced(raw, now, peer)
            assert world.traced(raw, now, peer) == found
            verdict, deliveries = world.judge(raw, now, peer)
            assert (verdict, deliveries) == untraced.judge(raw, now, peer)
            assert found.verdict == verdict
            assert sorted(found.receivers) == sorted(who for receivers, _ in deliveries for who in receivers)
            names = [name for name, _, _ in found.stages]
            assert names == STAGES[: len(names)]
            passed = [passed for _, passed, _ in found.stages]
            assert passed == [True] * (len(names) - 1) + [verdict in ACCEPTING]
            assert verdict not in (*ACCEPTING, "not_addressed") or names == STAGES
            assert all(finding and finding.isascii() for _, _, finding in found.stages)
    assert world.ingress.groups.all() == untraced.ingress.groups.all()
    assert (world.beats, world.conflicts, world.bugs) == (untraced.beats, untraced.conflicts, [])
    assert world.sources.counted.all() == untraced.sources.counted.all()


def test_a_trace_has_the_last_seq_and_epoch_of_a_source() -> None:
    world = World()
    world.feed(datagram(src=b"old", seq=7))
    (finding,) = [text for name, _, text in world.traced(datagram(src=b"old", seq=7)).stages if name == "dedup"]
    assert re.findall(r"\d+", finding) == ["7", "1"]
