"""What programs receive, how its text becomes bytes, and messages of the bus as they are read and written.

Invariant: names on the wire are bytes shown as text; bytes that are no UTF-8 survive the way there and back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

from bccnd.compiled_modules import find_library
from bccnd.core.wire import directed_targets, frames
from bccnd.core.wire.bccn1 import MAX_CHAN, check_chan
from bccnd.errors import BadDatagram, BusError

#: what a payload may be given as; text is sent as UTF-8
Data = bytes | str


@final
class Message:
    """One message. ``received_ns`` is the wall-clock time of its arrival on this host; ``peer`` is ``address:port`` (in
    IPv6 ``[address]:port``), or ``local`` for a message from this host's bus; ``seq`` is 0 if the message has no
    number."""

    __slots__ = ("_head", "chan", "form", "payload", "peer", "received_ns", "seq", "src")
    __match_args__ = ("src", "seq", "chan", "payload", "form", "peer", "received_ns")

    src: str
    seq: int
    chan: str
    payload: bytes
    form: str
    peer: str
    received_ns: int
    #: what came before the payload, until one of its parts is asked for: few programs need them
    _head: bytes

    def __init__(self, src: str, seq: int, chan: str, payload: bytes, form: str, peer: str, received_ns: int) -> None:
        self.src = src
        self.seq = seq
        self.chan = chan
        self.payload = payload
        self.form = form
        self.peer = peer
        self.received_ns = received_ns

    if not TYPE_CHECKING:  # it would allow any name

        def __getattr__(self, name: str) -> Any:
            if name not in _HEAD:
                raise AttributeError(f"a message has no {name!r}")
            src, seq, received_ns, peer = self._head.split(b":", 3)
            self.src, self.seq, self.received_ns = to_text(src), int(seq), int(received_ns)
            self.peer = peer.decode("ascii", "replace")
            return getattr(self, name)

    @property
    def text(self) -> str:
        """The payload as text (UTF-8; other bytes become surrogates, so the text can be sent again unchanged)."""
        return to_text(self.payload)

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, name) for name in self.__match_args__])

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[Message], tuple[Any, ...]]:
        return Message, tuple(self)

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__match_args__)})"


def with_payload(message: Message, payload: bytes) -> Message:
    """Return the same message with another payload."""
    src, seq, chan, _, *rest = message
    return Message(src, seq, chan, payload, *rest)


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


def _write_head(chan: str) -> bytes:
    """Write a message up to its payload. Raises BusError: bad_channel."""
    key = to_bytes(chan)
    check_key(key, "bad_channel")
    return frames.message(key, b"")


#: most messages are on one of a few channels
_head: Final = lru_cache(512)(_write_head)


def publication(chan: str, payload: Data) -> bytes:
    """A message as a frame. Raises BusError: bad_channel."""
    head = _head(chan) if len(chan) <= MAX_CHAN else _write_head(chan)
    return head + (payload if isinstance(payload, bytes) else to_bytes(payload))


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
#: a message up to its payload: the key, and what `frames.meta` builds
_WITH_META: Final = re.compile(rb"MSG ([^\0]*)\0([^:|]*:\d{1,20}:\d{1,20}:[^|]*)\|").match
#: the parts of a message that are read when one of them is asked for
_HEAD: Final = frozenset(("src", "seq", "received_ns", "peer"))


def _read_with_meta(frame: bytes) -> Message | None:
    """Read a frame; None if it is no message with metadata."""
    found = _WITH_META(frame)
    if found is None:
        return None
    key = found[1]
    chan, form, has_meta = _channel(key) if len(key) <= MAX_CHAN else _read_channel(key)
    if not has_meta:
        return None
    message = Message.__new__(Message)
    message.chan, message.form, message.payload, message._head = chan, form, frame[found.end() :], found[2]  # noqa: SLF001
    return message


def message_reader() -> Callable[[bytes], Message | None]:
    """Return what reads frames: compiled, if there is the library."""
    if not find_library():
        return _read_with_meta
    from bccnd.native.buffers.bus_messages import MessageReader

    read: Callable[[bytes], Message | None] = MessageReader(Message, _read_channel).read
    return read


def bare_message(frame: bytes, clock_ns: int) -> Message:
    """Read a `MSG` frame without metadata that came at ``clock_ns``: one whose key is no channel was never on its way
    to a segment, and carries nothing but its payload."""
    key, _, payload = frame[4:].partition(b"\0")
    chan, form, _ = _read_channel(key)
    return Message("", 0, chan, payload, form, "local", clock_ns)
