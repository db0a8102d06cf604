"""The image of a daemon's state: written at a clean stop into a file in memory, and read by the next daemon.

An image is a head (magic, checksum, size) and sections. Whatever is damaged makes it unreadable as a whole, and so do
starts that have failed with it: none fails for ever.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from bccnd.core.formats.image_sections import Section, pack_section, unpack_sections

#: raised when a section that was there before changes its meaning; images of the neighbouring formats are read too
FORMAT: Final = 1
_MAGIC: Final = b"bccnimg\n"
_HEAD: Final = struct.Struct("<8sIQ")
#: times that an image may be read; each leaves a byte behind it
_READINGS: Final = 2


class BadImage(Exception):
    """The image is damaged, incomplete, or of a format that is too far away."""


def write_all(fd: int, data: bytes, at: int) -> None:
    """Write all of ``data``: if room ends in the middle, only the next attempt reports it. Raises OSError."""
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:] if written else data, at + written)


class ImageWriter:
    """Writes an image into an empty file, which can be read once `finish` has returned. Raises OSError."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = _HEAD.size
        self._sum = 0
        self.add(Section("image", {"format": FORMAT}))

    def add(self, section: Section) -> None:
        data = pack_section(section)
        self._sum = zlib.crc32(data, self._sum)
        write_all(self._fd, data, self._end)
        self._end += len(data)

    def finish(self) -> None:
        os.pwrite(self._fd, _HEAD.pack(_MAGIC, self._sum, self._end - _HEAD.size), 0)


def write_image(fd: int, sections: Iterable[Section]) -> None:
    """Write a whole image. Raises OSError."""
    writer = ImageWriter(fd)
    for section in sections:
        writer.add(section)
    writer.finish()


def read_image(fd: int) -> Iterator[Section]:
    """Check an image, note that it was read, and return its sections. Raises BadImage before the first one."""
    try:
        data = os.pread(fd, os.fstat(fd).st_size, 0)
    except OSError as error:
        raise BadImage(error.strerror) from error
    with contextlib.suppress(OSError):  # no memory for the note
        os.pwrite(fd, b"\0", len(data))
    if len(data) < _HEAD.size:
        raise BadImage("it is incomplete")
    magic, checksum, size = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + size]
    if magic != _MAGIC or len(body) != size or zlib.crc32(body) != checksum:
        raise BadImage("it is damaged")
    if len(data) - len(body) - _HEAD.size >= _READINGS:
        raise BadImage("starts with it have failed")
    sections = unpack_sections(body)
    first = next(sections, Section(""))
    if first.kind != "image" or abs(int(first.fields.get("format", 0)) - FORMAT) > 1:
        raise BadImage("another version of bccnd has written it")
    return sections


def take_back_reading(fd: int) -> None:
    """Take back the note of the last reading: a start has failed, but not with the image."""
    head, size = os.pread(fd, _HEAD.size, 0), os.fstat(fd).st_size
    if len(head) == _HEAD.size and size > _HEAD.size + _HEAD.unpack(head)[2]:
        os.ftruncate(fd, size - 1)
