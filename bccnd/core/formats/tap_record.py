"""Builds one row per datagram for the journal and the pipeline.

Invariant: no datagram raises; a field that cannot be parsed is None. Verdict, time and epoch are the receiver's.
Source: BCCN, WIRE FORMAT.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from bccnd.core.wire import bccn1
from bccnd.core.wire.directed_targets import FORM_NAMES, form_of
from bccnd.errors import BadDatagram

#: subtracted from a seq to fit 64 unsigned bits into 64 signed ones in order
SEQ_OFFSET: Final = 2**63
#: matches nearly all datagrams: length, algorithm, src, seq, chan; others are parsed
_USUAL: Final = re.compile(
    rb"BCCN1\[(0|[1-9][0-9]{0,4})(?::([!-<>-\\^-~]+)=[!-\\^-~]+)?\]"
    rb"([!-9;-{}~]{1,128}):([0-9]{1,18}):([!-9;-{}~]{1,1024})\|"
)
#: cached names of each kind
_CACHED: Final = 4096


class Observation(NamedTuple):
    """A datagram at one receiver. ``ts`` is in microseconds since 1970, ``length`` the whole datagram's."""

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
    """Split ``address:port`` or ``[address]:port``; port 0 if there is none."""
    address, _, port = peer.rpartition(":")
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        return peer, 0
    return address.removeprefix("[").removesuffix("]"), int(port)


@lru_cache(_CACHED)
def _peer(text: str) -> tuple[str, int]:
    return split_peer(text)


@lru_cache(_CACHED)
def _src(raw: bytes) -> str | None:
    try:
        bccn1.check_src(raw)
    except BadDatagram:
        return None
    return raw.decode("ascii")


@lru_cache(_CACHED)
def _chan(raw: bytes) -> tuple[str, str] | None:
    """Return a channel and its form."""
    try:
        bccn1.check_chan(raw)
    except BadDatagram:
        return None
    return raw.decode("ascii"), FORM_NAMES[form_of(raw)]


def observe(verdict: str, segment: str, epoch: int, received_ns: int, peer: str, datagram: bytes) -> Observation:
    """Return the row of a datagram from the tap (`frames.read_tapped`)."""
    address, port = _peer(peer)
    usual = _USUAL.match(datagram)
    if usual is not None:
        digits, named, sender, number, channel = usual.groups()
        known, of = _src(sender), _chan(channel)
        if known is not None and of is not None and len(datagram) - usual.start(3) == int(digits):
            algo = None if named is None else named.decode("ascii")
            return Observation(
                received_ns // 1000, segment, address, port, verdict, "BCCN1", algo, known, int(number) - SEQ_OFFSET,
                epoch, of[0], of[1], len(datagram), datagram[usual.end() :],
            )  # fmt: skip
    return _parse(verdict, segment, epoch, received_ns, address, port, datagram)


def _parse(
    verdict: str, segment: str, epoch: int, received_ns: int, address: str, port: int, datagram: bytes
) -> Observation:
    """Return the row of any datagram, as far as it can be parsed."""
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
    fields = magic, algo, src, key, epoch, chan, form, len(datagram), payload
    return Observation(received_ns // 1000, segment, address, port, verdict, *fields)
