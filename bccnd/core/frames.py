"""Frames of the local bus <-> bytes: SUB, UNSUB, MSG and CMSG, one to a packet.

Law: a packet is one whole frame or it is refused; a NUL ends the key, and what follows is the payload, byte for
byte. Source: sbus, "Protocol".
"""

from __future__ import annotations

from typing import Final

from bccnd.errors import BadFrame

SUB: Final = b"SUB"
UNSUB: Final = b"UNSUB"
MSG: Final = b"MSG"
CMSG: Final = b"CMSG"
_VERBS: Final = frozenset((SUB, UNSUB, MSG, CMSG))

#: the largest packet of the bus: what the sbus library reserves for one
MAX_PACKET: Final = 409_600
#: where the daemon and its clients meet unless they are told otherwise
DEFAULT_SOCKET: Final = "/run/bccnd/bus.sock"

#: keys of control messages, as they stand on the wire
CRED_WHOAMI: Final = b"!/cred/whoami"
WHOAMI: Final = b"!/bccn/whoami"
SYNC: Final = b"!/bccn/sync"
ERROR: Final = b"!/bccn/error"
GAP: Final = b"!/bccn/gap"
META_ON: Final = b"!/bccn/meta/on"
META_OFF: Final = b"!/bccn/meta/off"
STATS: Final = b"!/bccn/stats"
TAG: Final = b"!/bccn/tag"
TRACE: Final = b"!/bccn/trace"
ECHO: Final = b"echo/"
SOFT: Final = b"blocking/soft/"
HARD: Final = b"blocking/hard/"
ORDER: Final = b"order/"
#: before the name of a verdict: the datagrams that were given it
TAP: Final = b"!/tap/"
#: before a src: messages on these keys say that it is ``alive``, ``silent`` or ``dead``
LIVENESS: Final = b"!/bccn/liveness/"


def read(packet: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a packet into verb, key and payload; the payload of SUB and UNSUB is ignored by the bus.

    Raises BadFrame: empty, unknown_verb, no_payload (a MSG without the NUL behind its key).
    """
    if not packet:
        raise BadFrame("empty")
    verb, space, rest = packet.partition(b" ")
    if not space or verb not in _VERBS:
        raise BadFrame("unknown_verb")
    key, nul, payload = rest.partition(b"\0")
    if verb == MSG and not nul:
        raise BadFrame("no_payload")
    return verb, key, payload


def message(key: bytes, payload: bytes) -> bytes:
    return b"MSG %b\0%b" % (key, payload)


def control(key: bytes, payload: bytes) -> bytes:
    """A control message; the daemon's own always carry the NUL, even before an empty payload."""
    return b"CMSG %b\0%b" % (key, payload)


def request(key: bytes, payload: bytes | None = None) -> bytes:
    """A control message from a client, which may have no payload at all."""
    return b"CMSG %b" % key if payload is None else control(key, payload)


def subscribe(pattern: bytes) -> bytes:
    return b"SUB %b" % pattern


def unsubscribe(pattern: bytes) -> bytes:
    return b"UNSUB %b" % pattern


def error(reason: str, key: bytes) -> bytes:
    """What a client is told about a frame of its own: one word, a blank, and the key or pattern it is about."""
    return control(ERROR, b"%b %b" % (reason.encode("ascii"), key))


def gap(lost: int) -> bytes:
    """What a slow client is told in place of the messages it lost."""
    return control(GAP, b"%d" % lost)


def meta(src: bytes, seq: int, received_ns: int, peer: str) -> bytes:
    """What precedes the payload for clients with meta on: ``<src>:<seq>:<received_ns>:<peer>|``."""
    return b"%b:%d:%d:%b|" % (src, seq, received_ns, peer.encode("ascii"))


def read_meta(payload: bytes) -> tuple[bytes, int, int, str, bytes]:
    """Take `meta` off a payload again: src, seq, received_ns, peer, the payload itself. Raises BadFrame: no_meta."""
    src, seq, received_ns, peer, rest = _read_head(payload, "no_meta")
    return src, seq, received_ns, peer.decode("ascii", "replace"), rest


def _read_head(payload: bytes, reason: str) -> tuple[bytes, int, int, bytes, bytes]:
    """A name, two numbers, another name, and what follows the bar."""
    head, bar, rest = payload.partition(b"|")
    fields = head.split(b":", 3)
    if not bar or len(fields) != 4 or not all(digits.isdigit() and len(digits) <= 20 for digits in fields[1:3]):
        raise BadFrame(reason)
    return fields[0], int(fields[1]), int(fields[2]), fields[3], rest


def tapped(verdict: str, segment: str, epoch: int, received_ns: int, peer: str, datagram: bytes) -> bytes:
    """What the tap tells of a datagram: ``!/tap/<verdict>``, ``<segment>:<epoch>:<received_ns>:<peer>|<datagram>``."""
    head = f"MSG !/tap/{verdict}\0{segment}:{epoch}:{received_ns}:{peer}|"
    return head.encode("utf-8", "replace") + datagram


def read_tapped(key: bytes, payload: bytes) -> tuple[str, str, int, int, str, bytes]:
    """Take apart what `tapped` made: verdict, segment, epoch, received_ns, peer, datagram. Raises BadFrame: no_tap."""
    if not key.startswith(TAP):
        raise BadFrame("no_tap")
    segment, epoch, received_ns, peer, datagram = _read_head(payload, "no_tap")
    verdict, name, address = (text.decode("utf-8", "replace") for text in (key[len(TAP) :], segment, peer))
    return verdict, name, epoch, received_ns, address, datagram
