"""What programs receive, how its text becomes bytes, and messages of the bus as they are read and written.

Invariant: names on the wire are bytes shown as text; bytes that are no UTF-8 survive the way there and back.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from bccnd.core.wire import directed_targets, frames
from bccnd.core.wire.bccn1 import MAX_CHAN, check_chan
from bccnd.errors import BadDatagram, BadFrame, BusError

#: what a payload may be given as; text is sent as UTF-8
Data = bytes | str


class Message(NamedTuple):
    """One message. ``received_ns`` is the wall-clock time of its arrival on this host; ``peer`` is ``address:port`` (in
    IPv6 ``[address]:port``), or ``local`` for a message from this host's bus; ``seq`` is 0 if the message has no
    number."""

    src: str
    seq: int
    chan: str
    payload: bytes
    form: str
    peer: str
    received_ns: int

    @property
    def text(self) -> str:
        """The payload as text (UTF-8; other bytes become surrogates, so the text can be sent again unchanged)."""
        return to_text(self.payload)


def to_bytes(text: Data) -> bytes:
    if not isinstance(text, str):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character: its bytes are no UTF-8, and so no name either
        return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def check_key(key: bytes, reason: str) -> None:
    """Raises BusError, with this reason, for a key with a NUL: on the bus the key would end there."""
    if b"\0" in key:
        raise BusError(reason, f"a NUL (\\0) ends a channel, pattern or key, and cannot be part of {to_text(key)!r}")


def publication(chan: str, payload: Data) -> bytes:
    """A message as a frame. Raises BusError: bad_channel."""
    key = to_bytes(chan)
    check_key(key, "bad_channel")
    return frames.message(key, to_bytes(payload))


def directed(target: str) -> str:
    """The channel that reaches a target. Raises BusError: bad_target for an empty one, which would reach all."""
    if not target:
        raise BusError("bad_target", "the target is empty; send_all reaches everyone")
    return f"!{target}"


def _read_channel(key: bytes) -> tuple[str, str, bool]:
    """A key as text, the form of messages on it, and whether they carry meta."""
    form = directed_targets.FORM_NAMES[
        directed_targets.PLAIN if key.startswith(b"!/") else directed_targets.form_of(key)
    ]
    try:
        check_chan(key)
    except BadDatagram:
        return to_text(key), form, False
    return to_text(key), form, True


#: most messages are on one of a few channels
_channel: Final = lru_cache(512)(_read_channel)


def read_message(key: bytes, payload: bytes, clock_ns: int) -> Message:
    """A message of the bus that came at ``clock_ns``."""
    chan, form, with_meta = _channel(key) if len(key) <= MAX_CHAN else _read_channel(key)
    if with_meta:
        try:
            src, seq, received_ns, peer, rest = frames.read_meta(payload)
        except BadFrame:
            pass
        else:
            return Message(to_text(src), seq, chan, rest, form, peer, received_ns)
    # A key that is no channel was never on its way to a segment and carries nothing but its payload.
    return Message("", 0, chan, payload, form, "local", clock_ns)
