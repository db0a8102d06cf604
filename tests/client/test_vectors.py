"""The table of vectors through `Endpoint`, on a real socket: what a plain sender sends it, and what it sends itself.

Every vector has an endpoint of its own, so that nothing is heard before.
"""

from __future__ import annotations

import select
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bccnd import Endpoint, Message
from bccnd.errors import EndpointError
from tests import vectors
from tests.support import BROADCAST, PATIENCE, free_port
from tests.vectors import AT_DOORS, DELIVERED, DOORS, UNCHECKED, VECTORS, DoorVectors, Vector

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


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture
def wire(port: int) -> Iterator[socket.socket]:
    """A program of the segment that knows nothing of bccnd: a plain socket, bound to the port like all of them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", port))
        sock.settimeout(PATIENCE)
        yield sock


@contextmanager
def endpoint(at: DoorVectors, port: int, name: str = vectors.RECEIVER) -> Iterator[Endpoint]:
    opened = Endpoint(
        name,
        BROADCAST,
        port,
        keys=at.secrets,
        algorithm=at.algorithm,
        signers=at.public,
        required=at.required,
        accept_unverifiable=at.unverifiable == "accept",
    )
    with opened:
        yield opened


def hear(receiver: Endpoint, wire: socket.socket, raw: bytes) -> tuple[Message | None, dict[str, int]]:
    """What becomes of one datagram: the message, and all verdicts so far."""
    wire.sendto(raw, (BROADCAST, wire.getsockname()[1]))
    readable, _, _ = select.select([receiver], [], [], PATIENCE)
    assert readable, "the datagram has not arrived"
    message = receiver.recv(0)
    return message, receiver.stats()["VERDICTS"]


def expect(vector: Vector, message: Message | None, wire: socket.socket) -> None:
    """The message has exactly the fields of the vector."""
    assert message is not None
    assert vector.fields is not None
    src, seq, chan, payload, _ = vector.fields
    assert message[:4] == (src.decode(), seq, chan.decode(), payload)
    assert message.form == vector.fields.form
    assert message.peer == f"127.0.0.1:{wire.getsockname()[1]}"


# -- receiving


@pytest.mark.parametrize(("at", "vector"), AT_DOORS, ids=vectors.name_of)
def test_a_datagram_becomes_its_message_or_its_verdict(
    at: DoorVectors, vector: Vector, port: int, wire: socket.socket
) -> None:
    with endpoint(at, port) as receiver:
        message, verdicts = hear(receiver, wire, vector.datagram)
        assert verdicts == {vector.verdict: 1}
        if vector.verdict in DELIVERED:
            expect(vector, message, wire)
        else:
            assert message is None


@pytest.mark.parametrize(("vector", "name", "verdict"), DIRECTED, ids=vectors.name_of)
def test_a_directed_datagram_reaches_just_whom_it_names(
    vector: Vector, name: str, verdict: str, port: int, wire: socket.socket
) -> None:
    with endpoint(UNCHECKED, port, name) as receiver:
        message, verdicts = hear(receiver, wire, vector.datagram)
        assert verdicts == {verdict: 1}
        if verdict == "accepted":
            expect(vector, message, wire)
        else:
            assert message is None


@pytest.mark.parametrize("at", DOORS.values(), ids=vectors.name_of)
def test_all_datagrams_of_a_door_one_behind_the_other_give_the_same(
    at: DoorVectors, port: int, wire: socket.socket
) -> None:
    # What was refused leaves nothing behind, and what comes before a message does not hold it up.
    chosen = [vector for door, vector in AT_DOORS if door is at]
    got: list[Message] = []
    with endpoint(at, port) as receiver:
        for sent, vector in enumerate(chosen, start=1):
            wire.sendto(vector.datagram, (BROADCAST, port))
            if sent % 32 == 0 or sent == len(chosen):  # no more at once than any socket holds
                while sum(receiver.stats()["VERDICTS"].values()) < sent:
                    readable, _, _ = select.select([receiver], [], [], PATIENCE)
                    assert readable, "a datagram has not arrived"
                    while (message := receiver.recv(0)) is not None:
                        got.append(message)
        assert receiver.stats()["VERDICTS"] == Counter(vector.verdict for vector in chosen)
    for vector, message in zip((one for one in chosen if one.verdict in DELIVERED), got, strict=True):
        expect(vector, message, wire)


# -- sending


@pytest.mark.parametrize(("at", "vector"), SENT, ids=vectors.name_of)
def test_what_is_sent_is_the_datagram_of_the_table_byte_for_byte(
    at: DoorVectors, vector: Vector, port: int, wire: socket.socket
) -> None:
    assert vector.fields is not None
    src, seq, chan, payload, _ = vector.fields
    with endpoint(at, port) as sender:
        sender.seq = seq
        if len(vector.datagram) > MAX_SEND:
            with pytest.raises(EndpointError, match="at most 1400"):
                sender.send(src.decode(), chan.decode(), payload)
            assert sender.seq == seq
            return
        assert sender.send(src.decode(), chan.decode(), payload) == seq
        assert wire.recv(65536) == vector.datagram
        assert sender.seq == (seq + 1) % 2**64
        # The same under a name of its own.
        sender.name = src.decode()
        sender.seq = seq
        assert sender.send(chan.decode(), payload) == seq
        assert wire.recv(65536) == vector.datagram


@pytest.mark.parametrize("vector", UNSENDABLE, ids=vectors.name_of)
def test_what_cannot_be_read_cannot_be_sent_for_the_same_reason(vector: Vector, port: int, wire: socket.socket) -> None:
    src, _, rest = vector.body.split(b":", 2)
    chan, _, payload = rest.partition(b"|")
    with endpoint(UNCHECKED, port) as sender:
        with pytest.raises(EndpointError) as refused:
            sender.send(src.decode("latin-1"), chan.decode("latin-1"), payload)
        assert refused.value.reason == vector.verdict
        if vector.verdict != "bad_src":
            assert sender.notify(chan.decode("latin-1"), payload) is False
            assert sender.error() is not None
        sender.send("last", b"")
        assert b":last|" in wire.recv(65536)


def test_one_that_has_no_key_to_sign_with_does_not_send(port: int) -> None:
    for at in DOORS.values():
        if at.cannot_sign:
            with endpoint(at, port) as sender, pytest.raises(EndpointError) as refused:
                sender.send("demo/t1", b"")
            assert refused.value.reason == "no_signing_key"
