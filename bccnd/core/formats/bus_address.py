"""Parses addresses of bus sockets, in the notation of the daemon, `bccnd-sbusd` and all clients.

A path; ``@name``, an abstract address; ``/dev/unix/abstract/<hex>``, an abstract address in hexadecimal digits, padded
with NULs to its full length; ``/dev/fd/<n>``, an inherited descriptor. Source: sbusd, ``-a``.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

from bccnd.errors import BadAddress

#: most bytes of a path, with a NUL behind it in sockaddr_un
MAX_PATH: Final = 107
#: most bytes of an abstract name
SUN_PATH: Final = 108
_ABSTRACT: Final = "/dev/unix/abstract/"
_DESCRIPTOR: Final = "/dev/fd/"
#: below these are the descriptors of the process that opens a path
_DESCRIPTOR_PATH: Final = re.compile(r"/dev/(fd/.*|stdin|stdout|stderr)|/proc/(self|thread-self|[0-9]+)/(.*/)?fd/.*")


def read_address(text: str) -> str | bytes | int:
    """Return a path, an abstract name with its leading NUL, or the number of a descriptor.

    Raises BadAddress: too_long, no_address.
    """
    try:
        length = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise BadAddress("no_address", f"{text[:40]!r} has half a surrogate pair") from None
    if text.startswith("@"):
        return _abstract(b"\0" + text[1:].encode("utf-8", "surrogateescape"))
    if text.startswith(_ABSTRACT):
        digits = text.removeprefix(_ABSTRACT)
        try:
            name = bytes.fromhex(digits)
            if 2 * len(name) != len(digits):  # blanks between them
                raise ValueError
        except ValueError:
            raise BadAddress("no_address", f"{digits[:40]!r} is not pairs of hexadecimal digits") from None
        if not name.startswith(b"\0"):
            raise BadAddress("no_address", "an abstract address must begin with the byte 00")
        return _abstract(name.ljust(SUN_PATH, b"\0"))
    number = text.removeprefix(_DESCRIPTOR)
    if number != text and number.isascii() and number.isdigit() and len(number) <= 9:
        return int(number)
    if not text or "\0" in text:
        raise BadAddress("no_address", "a path must not be empty or contain a NUL")
    if length > MAX_PATH:
        raise BadAddress("too_long", f"{text} is longer than {MAX_PATH} bytes")
    return text


def is_descriptor_path(path: str) -> bool:
    """Whether a path leads to a descriptor of the process that opens it: another process finds another file there."""
    return _DESCRIPTOR_PATH.fullmatch(posixpath.normpath(path).replace("//", "/")) is not None


def _abstract(name: bytes) -> bytes:
    if not name[1:].strip(b"\0"):
        raise BadAddress("no_address", "an abstract address needs a name")
    if len(name) > SUN_PATH:
        raise BadAddress("too_long", f"an abstract name has at most {SUN_PATH - 1} bytes")
    return name


def write_address(name: bytes) -> str:
    """Return the text for an abstract name of full length."""
    return f"{_ABSTRACT}{name.hex()}"
