"""An image is read as it was written, or not at all."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.image_sections import Section
from bccnd.handover import image
from bccnd.handover.image import BadImage, read_image, write_image
from tests.core.material import examples

SECTIONS = [Section("one", {"a": 1}, {"n": ("Q", [1, 2, 3]), "s": ("s", [b"", b"x", b"yz"])}), Section("two")]


@pytest.fixture(scope="module")
def file() -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    yield fd
    os.close(fd)


def read(fd: int) -> list[tuple[str, object, object]]:
    return [
        (one.kind, one.fields, {name: list(values) for name, (_, values) in one.columns.items()})
        for one in read_image(fd)
    ]


@given(st.data())
@examples(200)
def test_an_image_that_was_cut_or_changed_is_none(data: st.DataObject) -> None:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    try:
        write_image(fd, SECTIONS)
        whole = os.pread(fd, 1 << 20, 0)
        at = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            damaged = whole[:at]
        else:
            bit = 1 << data.draw(st.integers(0, 7))
            damaged = whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
        os.ftruncate(fd, 0)
        os.pwrite(fd, damaged, 0)
        with pytest.raises(BadImage):
            read_image(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize(("distance", "known"), [(0, True), (-1, True), (1, True), (2, False), (-2, False)])
def test_this_and_the_neighbouring_formats_are_read(
    file: int, monkeypatch: pytest.MonkeyPatch, distance: int, known: bool
) -> None:
    os.ftruncate(file, 0)
    monkeypatch.setattr(image, "FORMAT", image.FORMAT + distance)
    write_image(file, SECTIONS)
    monkeypatch.undo()
    if known:
        assert read(file) == [("one", {"a": 1}, {"n": [1, 2, 3], "s": [b"", b"x", b"yz"]}), ("two", {}, {})]
    else:
        with pytest.raises(BadImage):
            read(file)


def test_what_is_no_file_is_no_image() -> None:
    with socket.socket() as sock, pytest.raises(BadImage):
        read_image(sock.fileno())
