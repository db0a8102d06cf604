"""Frames of the local bus <-> bytes: SUB, UNSUB, MSG and CMSG, one to a packet; and MSGS, many MSG in one packet.

Law: a packet is one whole frame, or a batch of whole frames, or it is refused; a NUL ends the key, and what follows is
the payload, byte for byte. Source: sbus, "Protocol"; batches are ours, and only the daemon sends them.
"""

from __future__ import annotations

import struct
from typing import Final

from bccnd.errors import BadFrame

SUB: Final = b"SUB"
UNSUB: Final = b"UNSUB"
MSG: Final = b"MSG"
CMSG: Final = b"CMSG"
_VERBS: Final = frozenset((SUB, UNSUB, MSG, CMSG))
#: the verb of a batch, which is no frame itself and is never sent to the daemon
MSGS: Final = b"MSGS"

#: the largest packet of the bus: what the sbus library reserves for one
MAX_PACKET: Final = 409_600
#: the largest batch that the daemon makes; a message that is larger alone comes as it is
MAX_BATCH: Final = 65_536
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
BATCH_ON: Final = b"!/bccn/batch/on"
BATCH_OFF: Final = b"!/bccn/batch/off"
LOCAL_ON: Final = b"!/bccn/local/on"
LOCAL_OFF: Final = b"!/bccn/local/off"
STATS: Final = b"!/bccn/stats"
TAG: Final = b"!/bccn/tag"
TRACE: Final = b"!/bccn/trace"
#: which clients and gateways the messages of a channel go to, and by which patterns; the payload is the channel
RECEIVERS: Final = b"!/bccn/receivers"
#: in another dialect from now on; the payload is its name, and nothing is subscribed to yet
DIALECT: Final = b"!/bccn/dialect"
#: how a gateway is, told by itself; the payload is JSON
GATEWAY: Final = b"!/bccn/gateway"
#: what a recorder does not keep, told by itself; the payload is JSON
RECORDER: Final = b"!/bccn/recorder"
ECHO: Final = b"echo/"
SOFT: Final = b"blocking/soft/"
HARD: Final = b"blocking/hard/"
ORDER: Final = b"order/"
#: before the name of a verdict: the datagrams that were given it
TAP: Final = b"!/tap/"
#: datagrams that pass from here to other segments and from there to us, for gateways
LINK: Final = b"!/link/"
#: the same without what links have brought, for who has but one of them
LINK_HERE: Final = b"!/link/here"
#: gateways whose peers bring datagrams, which are counted under these names as if they were segments
LINKS: Final = ("nng",)
#: before a src: messages on these keys say that it is ``alive``, ``silent`` or ``dead``
LIVENESS: Final = b"!/bccn/liveness/"

#: lengths as they stand before the frames of a batch; those of nearly all messages are made once
_LENGTH: Final = struct.Struct("<I")
_LENGTHS: Final = tuple(map(_LENGTH.pack, range(2048)))


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
    return b"%b:%d:%d:%b|" % (src, seq, received_ns, peer.encode("ascii", "backslashreplace"))


def read_meta(payload: bytes) -> tuple[bytes, int, int, str, bytes]:
    """Take `meta` off a payload again: src, seq, received_ns, peer, the payload itself. Raises BadFrame: no_meta."""
    src, seq, received_ns, peer, rest = _read_head(payload, "no_meta")
    return src, seq, received_ns, peer.decode("ascii", "replace"), rest


def _read_head(payload: bytes, reason: str) -> tuple[bytes, int, int, bytes, bytes]:
    """A name, two numbers, another name, and what follows the bar."""
    head, bar, rest = payload.partition(b"|")
    fields = head.split(b":", 3)
    if not bar or len(fields) != 4:
        raise BadFrame(reason)
    name, first, second, other = fields
    if not first.isdigit() or not second.isdigit() or len(first) > 20 or len(second) > 20:
        raise BadFrame(reason)
    return name, int(first), int(second), other, rest


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


def passed(way: int, datagram: bytes) -> bytes:
    """A datagram that was accepted here and goes to the links, but for the ``way`` it came by; 0: by none of them."""
    return message(LINK, b"%d|%b" % (way, datagram))


def read_passed(payload: bytes) -> tuple[int, bytes]:
    """Take the payload of `passed` apart: way, datagram. Raises BadFrame: no_link."""
    digits, bar, datagram = payload.partition(b"|")
    if not bar or not digits.isdigit() or len(digits) > 20:
        raise BadFrame("no_link")
    return int(digits), datagram


def arrived(link: str, way: int, received_ns: int, peer: str, datagram: bytes) -> bytes:
    """A datagram that a link has brought, as its gateway tells it: the link's name, the ``way`` within it (above 0),
    when it came (nanoseconds, wall clock), and from where (``address:port``)."""
    head = f"{link}:{way}:{received_ns}:{peer}|"
    return message(LINK, head.encode("ascii") + datagram)


def read_arrived(payload: bytes) -> tuple[str, int, int, str, bytes]:
    """Take the payload of `arrived` apart. Raises BadFrame: no_link."""
    link, way, received_ns, peer, datagram = _read_head(payload, "no_link")
    if not way or not link.isalnum():
        raise BadFrame("no_link")
    return link.decode("ascii", "replace"), way, received_ns, peer.decode("ascii", "replace"), datagram


def batch(messages: list[bytes]) -> bytes:
    """Messages, one or more, as one packet: ``MSGS <n>``, a NUL, and before each its length in four bytes, the lowest
    first."""
    count = len(messages)
    if count == 1:
        size = len(messages[0])
        return b"MSGS 1\0" + (_LENGTHS[size] if size < 2048 else _LENGTH.pack(size)) + messages[0]
    pieces = [b"MSGS %d\0" % count] * (2 * count + 1)
    pieces[1::2] = [_LENGTHS[size] if size < 2048 else _LENGTH.pack(size) for size in map(len, messages)]
    pieces[2::2] = messages
    return b"".join(pieces)


def read_batch(packet: bytes) -> list[bytes]:
    """The messages that `batch` made one packet of, each a whole frame.

    Raises BadFrame: no_batch (another verb, or no NUL), bad_count, cut_short, no_message (something in it is no MSG),
    trailing (more than the count says).
    """
    head = packet.find(0)
    if head < 0 or not packet.startswith(b"MSGS "):
        raise BadFrame("no_batch")
    digits = packet[5:head]
    if not digits.isdigit() or len(digits) > 20 or not int(digits):
        raise BadFrame("bad_count")
    messages = []
    end, position = len(packet), head + 1
    try:
        for _ in range(int(digits)):
            (size,) = _LENGTH.unpack_from(packet, position)
            start = position + 4
            position = start + size
            frame = packet[start:position]
            if frame[:4] != b"MSG " or 0 not in frame:
                raise BadFrame("no_message" if position <= end else "cut_short")
            messages.append(frame)
    except struct.error:  # not even a length is left
        raise BadFrame("cut_short") from None
    if position != end:
        raise BadFrame("trailing" if position < end else "cut_short")
    return messages
