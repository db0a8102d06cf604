"""The table of vectors through `Endpoint`, on a real socket: what a plain sender sends it, and what it sends itself."""

from __future__ import annotations

import select
import time
from collections import Counter
from typing import Any

import pytest

from bccnd import Endpoint
from bccnd.errors import EndpointError
from tests import vectors
from tests.e2e.harness import Wire
from tests.endpoint.segments import Segment
from tests.refusals import refused
from tests.support import PATIENCE
from tests.vectors import AT_DOORS, DELIVERED, DOORS, RECEIVER, UNCHECKED, VECTORS, DoorVectors, Vector

#: the longest datagram that may be sent
MAX_SEND = 1400
DIRECTED = [
    *((vector, name, "accepted") for vector in VECTORS for name in vector.reaches),
    *((vector, name, "not_addressed") for vector in VECTORS for name in (*vector.misses, "?") if vector.misses),
]
SENT = [(at, vector) for at, vector in AT_DOORS if at.seals(vector)]
#: an empty src is none of them: it becomes "?" before it is sent
UNSENDABLE = [
    vector
    for vector in VECTORS
    if vector.verdict in {"bad_src", "bad_channel", "bad_target"} and not vector.body.startswith(b":")
]


def options(at: DoorVectors) -> dict[str, Any]:
    """The options of an endpoint that checks and signs as the door of these vectors."""
    return {
        "keys": at.secrets,
        "algorithm": at.algorithm,
        "signers": at.public,
        "required": at.required,
        "accept_unverifiable": at.unverifiable == "accept",
    }


def check(receiver: Endpoint, wire: Wire, vector: Vector, verdict: str) -> None:
    """Send a datagram: it gets this verdict, and is received with the fields of the vector if that delivers it."""
    before = receiver.stats()["VERDICTS"]
    sent_ns = time.time_ns()
    wire.send(vector.datagram)
    readable, _, _ = select.select([receiver], [], [], PATIENCE)
    assert readable, f"{vector}: the datagram has not arrived"
    message = receiver.recv(0)
    assert Counter(receiver.stats()["VERDICTS"]) - Counter(before) == {verdict: 1}, vector
    if verdict not in DELIVERED:
        assert message is None, vector
        return
    assert message is not None, vector
    assert vector.fields is not None
    src, seq, chan, payload, _ = vector.fields
    assert sent_ns <= message.received_ns <= time.time_ns()
    assert message[:4] == (src.decode(), seq, chan.decode(), payload), vector
    assert (message.form, message.peer) == (vector.fields.form, f"127.0.0.1:{wire.sock.getsockname()[1]}"), vector


@pytest.mark.parametrize("at", DOORS.values(), ids=vectors.name_of)
def test_a_datagram_becomes_its_message_or_its_verdict(at: DoorVectors, segment: Segment) -> None:
    """What was refused leaves nothing behind: each vector gives the same alone and behind all others."""
    chosen = [vector for door, vector in AT_DOORS if door is at]
    with segment.closed(RECEIVER, **options(at)) as receiver:
        for vector in chosen:
            check(receiver, segment.wire, vector, vector.verdict)
        assert receiver.stats()["VERDICTS"] == Counter(vector.verdict for vector in chosen)
        for vector in reversed(chosen):
            check(receiver, segment.wire, vector, vector.verdict)


@pytest.mark.parametrize(("vector", "name", "verdict"), DIRECTED, ids=vectors.name_of)
def test_a_directed_datagram_reaches_the_names_of_its_vector(
    vector: Vector, name: str, verdict: str, segment: Segment
) -> None:
    with segment.closed(name, **options(UNCHECKED)) as receiver:
        check(receiver, segment.wire, vector, verdict)


@pytest.mark.parametrize("at", {id(at): at for at, _ in SENT}.values(), ids=vectors.name_of)
def test_what_is_sent_is_the_datagram_of_the_table(at: DoorVectors, segment: Segment) -> None:
    wire = segment.wire
    for vector in (vector for door, vector in SENT if door is at):
        assert vector.fields is not None
        src, seq, chan, payload, _ = vector.fields
        with segment.closed(RECEIVER, **options(at)) as sender:
            sender.seq = seq
            if len(vector.datagram) > MAX_SEND:
                with pytest.raises(EndpointError, match="at most 1400"):
                    sender.send(src.decode(), chan.decode(), payload)
                assert sender.seq == seq, vector
                continue
            assert sender.send(src.decode(), chan.decode(), payload) == seq, vector
            assert wire.sock.recv(65536) == vector.datagram
            assert sender.seq == (seq + 1) % 2**64, vector
            # The same under a name of its own.
            sender.name = src.decode()
            sender.seq = seq
            assert sender.send(chan.decode(), payload) == seq, vector
            assert wire.sock.recv(65536) == vector.datagram


def test_what_cannot_be_read_cannot_be_sent_for_the_same_reason(segment: Segment) -> None:
    wire = segment.wire
    for vector in UNSENDABLE:
        src, _, rest = vector.body.split(b":", 2)
        chan, _, payload = rest.partition(b"|")
        with segment.closed(RECEIVER, **options(UNCHECKED)) as sender:
            with refused(vector.verdict, kind=EndpointError):
                sender.send(src.decode("latin-1"), chan.decode("latin-1"), payload)
            if vector.verdict != "bad_src":
                assert sender.notify(chan.decode("latin-1"), payload) is False, vector
                assert sender.error() is not None, vector
            sender.send("last", b"")
            assert b":last|" in wire.sock.recv(65536), vector
