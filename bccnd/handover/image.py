"""The image of a daemon's state: written at a clean stop into a file in memory, and read by the next daemon.

An image is a head (magic, checksum, size) and sections. A section is a kind, named fields and named columns. A reader
ignores kinds, fields and columns that it does not know, and has defaults for those that are missing, so that daemons of
neighbouring formats read each other's images. Whatever is damaged makes the image as a whole unreadable.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

#: raised when a section that was there before changes its meaning
FORMAT: Final = 1
_MAGIC: Final = b"bccnimg\n"
_HEAD: Final = struct.Struct("<8sIQ")
_SECTION: Final = struct.Struct("<II")
#: the type of a column of bytes; others are those of `array`
BYTES: Final = "s"
_TYPES: Final = ("B", "I", "Q", "f", "d", BYTES)

Column = tuple[str, Sequence[Any]]


class BadImage(Exception):
    """The image is damaged, incomplete, or of a format that is too far away."""


@dataclass
class Section:
    """A part of an image: ``fields`` are values of JSON, ``columns`` have a type and equally many values each."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)

    def column(self, name: str, missing: Any, count: int) -> Sequence[Any]:
        """Return a column, or as many values of ``missing``."""
        found = self.columns.get(name)
        return [missing] * count if found is None else found[1]

    def rows(self, **missing: Any) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of the named columns, each with the value that stands for a missing column."""
        count = max((len(values) for _, values in self.columns.values()), default=0)
        return zip(*(self.column(name, value, count) for name, value in missing.items()), strict=True)


def _pack(section: Section) -> bytes:
    parts: list[bytes] = []
    layout = []
    for name, (kind, values) in section.columns.items():
        if kind == BYTES:
            sizes = array("I", map(len, values))
            data = sizes.tobytes() + b"".join(values)
        else:
            data = array(kind, values).tobytes()
        layout.append([name, kind, len(values), len(data)])
        parts.append(data)
    head = json.dumps({"kind": section.kind, "fields": section.fields, "columns": layout}).encode("ascii")
    body = b"".join(parts)
    return _SECTION.pack(len(head), len(body)) + head + body


def _unpack_column(kind: str, count: int, data: bytes) -> Sequence[Any]:
    if kind != BYTES:
        values = array(kind)
        values.frombytes(data)
        return values
    sizes = array("I")
    start = count * sizes.itemsize
    sizes.frombytes(data[:start])
    return [data[low:high] for low, high in pairwise(accumulate(sizes, initial=start))]


def _unpack(body: bytes) -> Iterator[Section]:
    at = 0
    while at < len(body):
        head_size, size = _SECTION.unpack_from(body, at)
        at += _SECTION.size
        head = json.loads(body[at : at + head_size])
        at += head_size
        end = at + size
        columns: dict[str, Column] = {}
        for name, kind, count, length in head["columns"]:
            if kind in _TYPES:
                columns[name] = kind, _unpack_column(kind, count, body[at : at + length])
            at += length
        at = end
        yield Section(head["kind"], head["fields"], columns)


class ImageWriter:
    """Writes an image into an empty file, which can be read once `finish` has returned. Raises OSError."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = _HEAD.size
        self._sum = 0
        self.add(Section("image", {"format": FORMAT}))

    def add(self, section: Section) -> None:
        data = _pack(section)
        self._sum = zlib.crc32(data, self._sum)
        written = 0
        while written < len(data):
            written += os.pwrite(self._fd, data[written:] if written else data, self._end + written)
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
    """Check an image and return its sections. Raises BadImage before the first one, and OSError."""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    if len(data) < _HEAD.size:
        raise BadImage("it is incomplete")
    magic, checksum, size = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + size]
    if magic != _MAGIC or len(body) != size or zlib.crc32(body) != checksum:
        raise BadImage("it is damaged")
    sections = _unpack(body)
    first = next(sections, Section(""))
    if first.kind != "image" or abs(int(first.fields.get("format", 0)) - FORMAT) > 1:
        raise BadImage("another version of bccnd has written it")
    return sections
