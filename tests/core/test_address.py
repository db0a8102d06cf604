"""Where a bus is: every notation means one thing, every abstract name can be written, and nothing else is taken."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.address import MAX_PATH, SUN_PATH, read_address, write_address
from bccnd.errors import BadAddress
from tests.core.material import examples, reason_of


def full(name: bytes) -> bytes:
    """As sbusd binds it: all of sun_path, with NULs behind the name."""
    return name + b"\0" * (SUN_PATH - len(name))


READS: list[tuple[str, str | bytes | int]] = [
    ("/run/bccnd/bus.sock", "/run/bccnd/bus.sock"),
    ("bus.sock", "bus.sock"),
    ("./@bus", "./@bus"),
    ("a b", "a b"),
    ("/tmp/grün", "/tmp/grün"),
    ("/tmp/\udcff", "/tmp/\udcff"),
    ("/" + "x" * (MAX_PATH - 1), "/" + "x" * (MAX_PATH - 1)),
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
    # A path like any other: nothing follows that could be an address.
    ("/dev/unix/abstract", "/dev/unix/abstract"),
    ("/dev/unix/abstracts/00", "/dev/unix/abstracts/00"),
    ("/dev/fd/0", 0),
    ("/dev/fd/3", 3),
    ("/dev/fd/007", 7),
    ("/dev/fd/999999999", 999_999_999),
    ("/dev/fd/", "/dev/fd/"),
    ("/dev/fd/x", "/dev/fd/x"),
    ("/dev/fd/-1", "/dev/fd/-1"),
    ("/dev/fd/3/bus", "/dev/fd/3/bus"),
    ("/dev/fd/\u0663", "/dev/fd/\u0663"),
    ("/dev/fd/\u00b2", "/dev/fd/\u00b2"),
    ("/dev/fd/1234567890", "/dev/fd/1234567890"),
    ("3", "3"),
]


@pytest.mark.parametrize(("text", "meant"), READS)
def test_a_text_names_a_path_an_abstract_address_or_a_descriptor(text: str, meant: str | bytes | int) -> None:
    found = read_address(text)
    assert (type(found), found) == (type(meant), meant)


REFUSED = [
    ("", "no_address"),
    ("/run/a\0b", "no_address"),
    ("\0bccn", "no_address"),
    ("@", "no_address"),
    ("@\0", "no_address"),
    ("@\0\0\0", "no_address"),
    ("@" + "x" * SUN_PATH, "too_long"),
    ("@" + "ü" * (SUN_PATH // 2), "too_long"),
    ("/" + "x" * MAX_PATH, "too_long"),
    ("/" + "ü" * (MAX_PATH // 2 + 1), "too_long"),
    ("/dev/unix/abstract/", "no_address"),
    ("/dev/unix/abstract/0", "no_address"),
    ("/dev/unix/abstract/00", "no_address"),
    ("/dev/unix/abstract/0000", "no_address"),
    ("/dev/unix/abstract/6100", "no_address"),
    ("/dev/unix/abstract/00zz", "no_address"),
    ("/dev/unix/abstract/006", "no_address"),
    ("/dev/unix/abstract/0x61", "no_address"),
    ("/dev/unix/abstract/00\u0666\u0661", "no_address"),
    ("/dev/unix/abstract/00" + "61" * SUN_PATH, "too_long"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_names_no_socket_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(BadAddress) as refused:
        read_address(text)
    assert refused.value.reason == reason
    assert refused.value.detail


@pytest.mark.parametrize("text", ["/dev/unix/abstract/00 61", "/dev/unix/abstract/00\t61", "/dev/unix/abstract/0061\n"])
def test_digits_of_an_abstract_address_stand_without_blanks(text: str) -> None:
    # Two spellings that look different must not be one address, nor a stray line end be overlooked.
    assert reason_of(read_address, text) == "no_address"


@pytest.mark.parametrize("text", ["\ud800", "/run/\ud800", "@\ud800"])
def test_half_a_character_is_no_address(text: str) -> None:
    # No file name of this system holds one; a program may still pass it.
    assert reason_of(read_address, text) == "no_address"


def names() -> st.SearchStrategy[bytes]:
    """Abstract names: a NUL, and any bytes that are not all NUL."""
    return st.binary(min_size=1, max_size=SUN_PATH - 1).filter(lambda name: bool(name.strip(b"\0"))).map(b"\0".__add__)


@given(names())
@examples(300)
def test_an_abstract_address_that_is_written_out_is_read_as_all_of_sun_path(name: bytes) -> None:
    text = write_address(name)
    assert text.isascii()
    assert text.isprintable()
    assert read_address(text) == full(name)
    assert read_address(write_address(full(name))) == full(name)


@given(names())
@examples(200)
def test_the_short_notation_reads_back_whatever_bytes_it_holds(name: bytes) -> None:
    assert read_address("@" + name[1:].decode("utf-8", "surrogateescape")) == name


@given(st.text(max_size=30) | st.text("/devfunixabstract@0123456789 \0", max_size=40))
@examples(300)
def test_any_text_is_an_address_within_the_kernels_limits_or_is_refused(text: str) -> None:
    reason = reason_of(read_address, text)
    assert reason in {"", "no_address", "too_long"}
    if not reason:
        found = read_address(text)
        if isinstance(found, bytes):
            assert found.startswith(b"\0")
            assert 2 <= len(found) <= SUN_PATH
        elif isinstance(found, str):
            assert 1 <= len(os.fsencode(found)) <= MAX_PATH
        else:
            assert found >= 0


@pytest.mark.parametrize("size", [12, SUN_PATH - 1])
def test_what_is_read_is_what_the_kernel_binds_and_names(size: int) -> None:
    letters = os.urandom(size).hex()[:size]
    for text in (f"@{letters}", write_address(b"\0" + letters.encode())):
        name = read_address(text)
        assert isinstance(name, bytes)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.bind(name)
            assert sock.getsockname() == name
