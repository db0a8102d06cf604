"""Addresses of a bus: paths, abstract names, descriptors, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.bus_address import MAX_PATH, SUN_PATH, read_address, write_address
from bccnd.errors import BadAddress
from tests.core.material import examples


def full(name: bytes) -> bytes:
    """As sbusd binds it: all of sun_path, with NULs behind the name."""
    return name + b"\0" * (SUN_PATH - len(name))


PATHS = [
    *("/run/bccnd/bus.sock", "bus.sock", "./@bus", "a b", "/tmp/grün", "/tmp/\udcff", "/" + "x" * (MAX_PATH - 1), "3"),
    *("/dev/unix/abstract", "/dev/unix/abstracts/00", "/dev/fd/", "/dev/fd/x", "/dev/fd/-1", "/dev/fd/3/bus"),
    *("/dev/fd/\u0663", "/dev/fd/\u00b2", "/dev/fd/1234567890"),
]
READS: list[tuple[str, str | bytes | int]] = [
    *((path, path) for path in PATHS),
    ("@bccn", b"\0bccn"),
    ("@@", b"\0@"),
    ("@/run/bus", b"\0/run/bus"),
    ("@grün", b"\0gr\xc3\xbcn"),
    ("@\udcff", b"\0\xff"),
    ("@a\0", b"\0a\0"),
    ("@\0a", b"\0\0a"),
    ("@" + "x" * (SUN_PATH - 1), b"\0" + b"x" * (SUN_PATH - 1)),
    ("/dev/unix/abstract/0062636e", full(b"\0bcn")),
    ("/dev/unix/abstract/00ffFF", full(b"\0\xff\xff")),
    ("/dev/unix/abstract/00" + "61" * (SUN_PATH - 1), b"\0" + b"a" * (SUN_PATH - 1)),
    ("/dev/fd/0", 0),
    ("/dev/fd/3", 3),
    ("/dev/fd/007", 7),
    ("/dev/fd/999999999", 999_999_999),
]


@pytest.mark.parametrize(("text", "meant"), READS)
def test_read(text: str, meant: str | bytes | int) -> None:
    found = read_address(text)
    assert (type(found), found) == (type(meant), meant)


HEX = "/dev/unix/abstract/"
#: digits of an abstract address that are not all hexadecimal, or that name nothing
BAD_HEX = ["", "0", "00", "0000", "6100", "6162", "00zz", "006", "0x61", "00\u0666\u0661", "00 61", "00\t61", "0061\n"]
NO_ADDRESS = ["", "/run/a\0b", "\0bccn", "@", "@\0", "@\0\0\0", "\ud800", "/run/\ud800", "@\ud800"]
TOO_LONG = [
    *("@" + "x" * SUN_PATH, "@" + "ü" * (SUN_PATH // 2), "/" + "x" * MAX_PATH, "/" + "ü" * (MAX_PATH // 2 + 1)),
    HEX + "00" + "61" * SUN_PATH,
]


@pytest.mark.parametrize("text", [*NO_ADDRESS, *(HEX + digits for digits in BAD_HEX), *TOO_LONG])
def test_refused(text: str) -> None:
    with pytest.raises(BadAddress) as refused:
        read_address(text)
    assert refused.value.reason == ("too_long" if text in TOO_LONG else "no_address")
    assert refused.value.detail


#: abstract names: a NUL, and any bytes that are not all NUL
NAMES = st.binary(min_size=1, max_size=SUN_PATH - 1).filter(lambda name: bool(name.strip(b"\0"))).map(b"\0".__add__)


@given(NAMES)
@examples(300)
def test_an_abstract_address_reads_back_in_both_notations(name: bytes) -> None:
    text = write_address(name)
    assert text.isascii()
    assert text.isprintable()
    assert read_address(text) == read_address(write_address(full(name))) == full(name)
    assert read_address("@" + name[1:].decode("utf-8", "surrogateescape")) == name
