"""Where a bus is: the text that people write <-> what the kernel calls it.

Law: one notation for the daemon, its drop-in for sbusd and every client. A path; ``@name``, an abstract address;
``/dev/unix/abstract/<hex>``, an abstract address in hexadecimal digits; ``/dev/fd/<n>``, a descriptor that was
inherited. Source: sbusd, ``-a``, which fills an address that is written out with NULs to its full length.
"""

from __future__ import annotations

from typing import Final

from bccnd.errors import BadAddress

#: bytes of a path, behind which sockaddr_un holds a NUL
MAX_PATH: Final = 107
#: an abstract name may use all of it
SUN_PATH: Final = 108
_ABSTRACT: Final = "/dev/unix/abstract/"
_DESCRIPTOR: Final = "/dev/fd/"


def read_address(text: str) -> str | bytes | int:
    """What a text names: a path, an abstract name with its leading NUL, or the number of a descriptor.

    Raises BadAddress: too_long, no_address.
    """
    try:
        length = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise BadAddress("no_address", f"{text[:40]!r} holds half a character") from None
    if text.startswith("@"):
        return _abstract(b"\0" + text[1:].encode("utf-8", "surrogateescape"))
    if text.startswith(_ABSTRACT):
        digits = text.removeprefix(_ABSTRACT)
        try:
            name = bytes.fromhex(digits)
            if 2 * len(name) != len(digits):  # blanks between them
                raise ValueError
        except ValueError:
            raise BadAddress("no_address", f"{digits[:40]!r} are no hexadecimal digits, two for each byte") from None
        if not name.startswith(b"\0"):
            raise BadAddress("no_address", "an abstract address begins with the byte 00")
        return _abstract(name.ljust(SUN_PATH, b"\0"))
    number = text.removeprefix(_DESCRIPTOR)
    if number != text and number.isascii() and number.isdigit() and len(number) <= 9:
        return int(number)
    if not text or "\0" in text:
        raise BadAddress("no_address", "a path has at least one character, and no NUL")
    if length > MAX_PATH:
        raise BadAddress("too_long", f"{text} is longer than {MAX_PATH} bytes")
    return text


def _abstract(name: bytes) -> bytes:
    if not name[1:].strip(b"\0"):
        raise BadAddress("no_address", "an abstract address needs a name")
    if len(name) > SUN_PATH:
        raise BadAddress("too_long", f"an abstract name has at most {SUN_PATH - 1} bytes")
    return name


def write_address(name: bytes) -> str:
    """An abstract name that fills an address, as the text that `read_address` reads again."""
    return f"{_ABSTRACT}{name.hex()}"
