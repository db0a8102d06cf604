"""Builds and parses frames of the local bus: SUB, UNSUB, MSG and CMSG, and batches of MSG (MSGS).

A packet is one frame or one batch. A NUL ends the key; the rest is the payload. Source: sbus, "Protocol"; batches are
an extension, sent only by the daemon.
"""

from __future__ import annotations

import struct
from typing import Final

from bccnd.errors import BadFrame

SUB: Final = b"SUB"
UNSUB: Final = b"UNSUB"
MSG: Final = b"MSG"
CMSG: Final = b"CMSG"
#: where the key of a MSG begins
KEY: Final = len(b"MSG ")
_VERBS: Final = frozenset((SUB, UNSUB, MSG, CMSG))
#: the verb of a batch
MSGS: Final = b"MSGS"

#: the largest packet of the bus: the buffer size of the sbus library
MAX_PACKET: Final = 409_600
#: the largest batch; a larger message is sent as a frame of its own
MAX_BATCH: Final = 65_536

#: keys of control messages
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
#: request: the clients and gateways that receive a channel, and by which patterns; the payload is the channel
RECEIVERS: Final = b"!/bccn/receivers"
#: request: change the dialect, before any subscription; the payload is its name
DIALECT: Final = b"!/bccn/dialect"
#: status reported by a gateway, as JSON
GATEWAY: Final = b"!/bccn/gateway"
#: report of a recorder, as JSON
RECORDER: Final = b"!/bccn/recorder"
ECHO: Final = b"echo/"
SOFT: Final = b"blocking/soft/"
HARD: Final = b"blocking/hard/"
ORDER: Final = b"order/"
#: before the name of a verdict: the datagrams that got it
TAP: Final = b"!/tap/"
#: datagrams to and from other segments, for gateways
LINK: Final = b"!/link/"
#: the same without datagrams from links, for gateways with a single link
LINK_HERE: Final = b"!/link/here"
#: gateways that bring datagrams; their names are used like those of segments in counters
LINKS: Final = ("nng",)
#: before a src: messages on these keys are ``alive``, ``silent`` or ``dead``
LIVENESS: Final = b"!/bccn/liveness/"
#: begins the channels of reports on sent and received messages; the host follows
REPORT: Final = b"bccn/report/"

#: lengths before the frames of a batch; those of most messages are precomputed
_LENGTH: Final = struct.Struct("<I")
_LENGTHS: Final = tuple(map(_LENGTH.pack, range(2048)))


def read(packet: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a packet into verb, key and payload; the bus ignores the payload of SUB and UNSUB.

    Raises BadFrame: empty, unknown_verb, no_payload (a MSG without the NUL behind its key).
    """
    if not packet:
        raise BadFrame("empty")
    head, nul, payload = packet.partition(b"\0")
    verb, space, key = head.partition(b" ")
    if not space or verb not in _VERBS:
        raise BadFrame("unknown_verb")
    if not nul and verb == MSG:
        raise BadFrame("no_payload")
    return verb, key, payload


def message(key: bytes, payload: bytes) -> bytes:
    return b"MSG %b\0%b" % (key, payload)


def control(key: bytes, payload: bytes) -> bytes:
    """Build a control message from the daemon, which always has the NUL."""
    return b"CMSG %b\0%b" % (key, payload)


def request(key: bytes, payload: bytes | None = None) -> bytes:
    """Build a control message from a client, which may have no NUL and payload."""
    return b"CMSG %b" % key if payload is None else control(key, payload)


def subscribe(pattern: bytes) -> bytes:
    return b"SUB %b" % pattern


def unsubscribe(pattern: bytes) -> bytes:
    return b"UNSUB %b" % pattern


def error(reason: str, key: bytes) -> bytes:
    """Build an error reply: the reason, a blank, and the key or pattern."""
    return control(ERROR, b"%b %b" % (reason.encode("ascii"), key))


def gap(lost: int) -> bytes:
    """Build the frame that replaces messages that a slow client lost."""
    return control(GAP, b"%d" % lost)


def meta(src: bytes, seq: int, received_ns: int, peer: str) -> bytes:
    """Build the metadata before the payload, for clients with meta on: ``<src>:<seq>:<received_ns>:<peer>|``."""
    return b"%b:%d:%d:%b|" % (src, seq, received_ns, peer.encode("ascii", "backslashreplace"))


def read_meta(payload: bytes) -> tuple[bytes, int, int, str, bytes]:
    """Split a payload with `meta` into src, seq, received_ns, peer and payload. Raises BadFrame: no_meta."""
    src, seq, received_ns, peer, rest = _read_head(payload, "no_meta")
    return src, seq, received_ns, peer.decode("ascii", "replace"), rest


def _read_head(payload: bytes, reason: str) -> tuple[bytes, int, int, bytes, bytes]:
    """Split ``<name>:<number>:<number>:<name>|<rest>``."""
    head, bar, rest = payload.partition(b"|")
    fields = head.split(b":", 3)
    if not bar or len(fields) != 4:
        raise BadFrame(reason)
    name, first, second, other = fields
    if not first.isdigit() or not second.isdigit() or len(first) > 20 or len(second) > 20:
        raise BadFrame(reason)
    return name, int(first), int(second), other, rest


def tapped(verdict: str, segment: str, epoch: int, received_ns: int, peer: str, datagram: bytes) -> bytes:
    """Build a message of the tap: ``!/tap/<verdict>``, ``<segment>:<epoch>:<received_ns>:<peer>|<datagram>``."""
    head = f"MSG !/tap/{verdict}\0{segment}:{epoch}:{received_ns}:{peer}|"
    return head.encode("utf-8", "replace") + datagram


def read_tapped(key: bytes, payload: bytes) -> tuple[str, str, int, int, str, bytes]:
    """Split a message of the tap into verdict, segment, epoch, received_ns, peer, datagram. Raises BadFrame: no_tap."""
    if not key.startswith(TAP):
        raise BadFrame("no_tap")
    segment, epoch, received_ns, peer, datagram = _read_head(payload, "no_tap")
    verdict, name, address = (text.decode("utf-8", "replace") for text in (key[len(TAP) :], segment, peer))
    return verdict, name, epoch, received_ns, address, datagram


def forwarded(origin: int, datagram: bytes) -> bytes:
    """Build a message for links: an accepted datagram, and the link peer that it came from (0: none)."""
    return message(LINK, b"%d|%b" % (origin, datagram))


def read_forwarded(payload: bytes) -> tuple[int, bytes]:
    """Split the payload of `forwarded` into origin and datagram. Raises BadFrame: no_link."""
    digits, bar, datagram = payload.partition(b"|")
    if not bar or not digits.isdigit() or len(digits) > 20:
        raise BadFrame("no_link")
    return int(digits), datagram


def arrived(link: str, origin: int, received_ns: int, peer: str, datagram: bytes) -> bytes:
    """Build a gateway's message about a datagram from a link: the gateway's name, the link peer (above 0), when it
    arrived (wall clock, nanoseconds), and its sender (``address:port``)."""
    head = f"{link}:{origin}:{received_ns}:{peer}|"
    return message(LINK, head.encode("ascii") + datagram)


def read_arrived(payload: bytes) -> tuple[str, int, int, str, bytes]:
    """Split the payload of `arrived`. Raises BadFrame: no_link."""
    link, origin, received_ns, peer, datagram = _read_head(payload, "no_link")
    if not origin or not link.isalnum():
        raise BadFrame("no_link")
    return link.decode("ascii", "replace"), origin, received_ns, peer.decode("ascii", "replace"), datagram


def batch(messages: list[bytes]) -> bytes:
    """Build a batch of one or more messages: ``MSGS <n>``, a NUL, and each message behind its length (4 bytes, little
    endian)."""
    count = len(messages)
    if count == 1:
        size = len(messages[0])
        return b"MSGS 1\0" + (_LENGTHS[size] if size < 2048 else _LENGTH.pack(size)) + messages[0]
    pieces = [b"MSGS %d\0" % count] * (2 * count + 1)
    pieces[1::2] = [_LENGTHS[size] if size < 2048 else _LENGTH.pack(size) for size in map(len, messages)]
    pieces[2::2] = messages
    return b"".join(pieces)


def read_batch(packet: bytes) -> list[bytes]:
    """Split a batch into its messages.

    Raises BadFrame: no_batch (another verb, or no NUL), bad_count, cut_short, no_message (not a MSG), trailing (bytes
    after the last message).
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
    except struct.error:
        raise BadFrame("cut_short") from None
    if position != end:
        raise BadFrame("trailing" if position < end else "cut_short")
    return messages
