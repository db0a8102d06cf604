"""What programs receive, and how their text becomes bytes.

Law: names on the wire are bytes that show as text, and every byte that is none survives the way there and back.
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One message. ``received_ns`` is the wall clock where it was received; ``peer`` is ``address:port`` (in IPv6
    ``[address]:port``), or ``local`` for one from this host's bus; ``seq`` is 0 where none was given."""

    src: str
    seq: int
    chan: str
    payload: bytes
    form: str
    peer: str
    received_ns: int


def to_bytes(text: bytes | str) -> bytes:
    if not isinstance(text, str):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character: its bytes are no UTF-8, and so no name either
        return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
