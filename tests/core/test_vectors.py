"""The table of vectors through the core: parsing, building, the integrity check, and ingress."""

from __future__ import annotations

import pytest

from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.trust.integrity import IntegrityChecker, make_checker
from bccnd.core.trust.integrity_algorithms import Hmac
from bccnd.core.trust.prepared_hmac import PreparedHmac
from bccnd.core.wire import bccn1, directed_targets
from bccnd.core.wire.bccn1 import Datagram
from tests import vectors
from tests.core.material import OF_THE_PARSE, reason_of
from tests.core.world import NS, PEER, Delivered, World
from tests.rules import dedup_rules
from tests.vectors import AT_DOORS, DELIVERED, DOORS, SEQUENCES, UNCHECKED, VECTORS, DoorVectors, Rules, Vector

#: each door with all vectors for it
BY_DOOR = [(door, [vector for at, vector in AT_DOORS if at is door]) for door in DOORS.values()]
every_door = pytest.mark.parametrize(("at", "found"), BY_DOOR, ids=vectors.name_of)
#: the verdicts of the integrity check alone
OF_THE_DOOR = {
    *("bad_envelope", "length_mismatch", "unsupported_version"),
    *("integrity_missing", "integrity_unknown", "integrity_failed"),
}


@every_door
def test_a_readable_vector_reads_as_its_fields(at: DoorVectors, found: list[Vector]) -> None:
    for vector in found:
        if vector.fields is not None:
            assert bccn1.read(vector.datagram) == Datagram(*vector.fields), vector.name
            src, seq, chan, payload, check = vector.fields
            form = directed_targets.FORM_NAMES[directed_targets.form_of(chan)]
            assert (form, form == "directed") == (vector.fields.form, directed_targets.is_directed(chan)), vector.name
            built = bccn1.build(bccn1.build_body(src, seq, chan, payload), check)
            assert (built == vector.datagram) == vector.canonical, vector.name
        elif at is UNCHECKED and vector.verdict in OF_THE_PARSE:
            assert reason_of(bccn1.read, vector.datagram) == vector.verdict, vector.name


def door_of(at: DoorVectors, hmac: type[Hmac] = PreparedHmac) -> IntegrityChecker:
    public = {prefix.encode(): pems for prefix, pems in at.public.items()}
    accept = at.unverifiable == "accept"
    return make_checker(at.algorithm, at.secrets, public, required=at.required, accept_unverifiable=accept, hmac=hmac)


@pytest.mark.parametrize("hmac", [Hmac, PreparedHmac])
@every_door
def test_the_door_gives_its_verdict_and_seals_as_the_table_does(
    at: DoorVectors, found: list[Vector], hmac: type[Hmac]
) -> None:
    door = door_of(at, hmac)
    for vector in found:
        if vector.verdict in OF_THE_DOOR:
            assert reason_of(door.verified_body, vector.datagram) == vector.verdict, vector.name
        elif vector.verdict != "oversize":
            assert door.verified_body(vector.datagram) == vector.body, vector.name
        if at.seals(vector):
            assert bccn1.build(vector.body, door.sign(vector.body)) == vector.datagram, vector.name


RECEIVER = 7


def world_at(at: DoorVectors, rules: Rules = Rules(), name: str = vectors.RECEIVER) -> World:  # noqa: B008
    """Ingress with one receiver that takes everything, with its senders."""
    dedup = dedup_rules(
        sanity=rules.sanity,
        horizon=rules.horizon,
        deliver_late=rules.late == "deliver",
        monotonic=rules.freshness == "monotonic",
    )
    receivers = {RECEIVER: (name.encode(), b"", True)}
    return World(door_of(at), dedup, ceiling=vectors.LARGEST, receivers=receivers)


def delivered(raw: bytes, peer: str = PEER) -> Delivered:
    """What must be delivered of a datagram."""
    src, digits, rest = raw.partition(b"]")[2].split(b":", 2)
    chan, _, payload = rest.partition(b"|")
    head = b"MSG %b\0%b:%d:%d:%b|" % (chan, src, int(digits), NS, peer.encode())
    return [([RECEIVER], head + payload)]


@every_door
def test_ingress_gives_the_verdict_and_delivers_accepted_ones(at: DoorVectors, found: list[Vector]) -> None:
    for vector in found:
        world = world_at(at)
        expected = delivered(vector.datagram) if vector.verdict in DELIVERED else []
        assert world.judge(vector.datagram) == (vector.verdict, expected), vector.name
        # Once more, by the fast path: refused for the same reason, or a duplicate.
        again = "duplicate" if vector.verdict in {"accepted", "not_addressed"} else vector.verdict
        assert world.judge(vector.datagram) == (again, []), vector.name


def test_a_directed_vector_reaches_the_receivers_that_it_names() -> None:
    for vector in VECTORS:
        for name in (*vector.reaches, *vector.misses):
            assert vector.fields is not None
            target, reached = directed_targets.target_of(vector.fields.chan), name in vector.reaches
            assert directed_targets.matches(target, name.encode()) == reached, (vector.name, name)
            assert not directed_targets.matches(target, b"?"), vector.name
            world = world_at(UNCHECKED, name=name)
            expected = ("accepted", delivered(vector.datagram)) if reached else ("not_addressed", [])
            assert world.judge(vector.datagram) == expected, (vector.name, name)


@pytest.mark.parametrize("sequence", SEQUENCES, ids=vectors.name_of)
def test_sequences_get_their_verdicts(sequence: vectors.Sequence) -> None:
    world = world_at(DOORS[sequence.door], sequence.rules)
    for src in sequence.own:
        world.sources.claim(src)
    for number, step in enumerate(sequence.steps):
        world.sources.sweep(step.at)
        expected = delivered(step.datagram, step.peer) if step.verdict in DELIVERED else []
        world.counters = SegmentCounters(step.segment)
        output = world.judge(step.datagram, step.at, step.peer)
        assert output == (step.verdict, expected), f"step {number}"
