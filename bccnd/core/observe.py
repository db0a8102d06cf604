"""What was seen of a datagram, as one row: what the journal keeps and the pipeline works on.

Law: a row says what the wire said, or nothing: a field that cannot be read by the letter is None, whatever the
datagram holds, and no datagram raises. Numbers are the receiver's own: its verdict, its clock, its count of epochs.
Source: BCCN, WIRE FORMAT.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bccnd.core import bccn1
from bccnd.core.targets import FORM_NAMES, form_of
from bccnd.errors import BadDatagram

#: what is taken off a seq, so that 64 unsigned bits fit into 64 signed ones and keep their order
SEQ_OFFSET: Final = 2**63
#: the verdict of a row that stands for records which nobody can read any more
JOURNAL_GAP: Final = "journal_gap"


class Observation(NamedTuple):
    """A datagram as one receiver saw it. ``ts`` is in microseconds since 1970, ``length`` counts all its bytes."""

    ts: int
    segment: str
    peer_ip: str
    peer_port: int
    verdict: str
    magic: str | None
    algo: str | None
    src: str | None
    seq_key: int | None
    epoch: int
    chan: str | None
    form: str | None
    length: int
    payload: bytes | None


def seq_key(seq: int) -> int:
    return seq - SEQ_OFFSET


def seq_of(key: int) -> int:
    return key + SEQ_OFFSET


def split_peer(peer: str) -> tuple[str, int]:
    """``address:port`` or ``[address]:port`` taken apart; port 0 where there is none."""
    address, _, port = peer.rpartition(":")
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        return peer, 0
    return address.removeprefix("[").removesuffix("]"), int(port)


def observe(verdict: str, segment: str, epoch: int, received_ns: int, peer: str, datagram: bytes) -> Observation:
    """The row of a datagram as the tap tells of it (`frames.read_tapped`)."""
    magic = algo = src = key = chan = form = payload = None
    try:
        name, check, body = bccn1.split_envelope(datagram)
        magic = name.decode("ascii")
        algo = check.partition(b"=")[0].decode("ascii") or None
        if name == bccn1.MAGIC:
            sender, seq, channel, payload = bccn1.read_body(body)
            src, key, chan = sender.decode("ascii"), seq_key(seq), channel.decode("ascii")
            form = FORM_NAMES[form_of(channel)]
    except BadDatagram:
        pass
    address, port = split_peer(peer)
    return Observation(
        received_ns // 1000,
        segment,
        address,
        port,
        verdict,
        magic,
        algo,
        src,
        key,
        epoch,
        chan,
        form,
        len(datagram),
        payload,
    )
