"""Sections of an image, in which a daemon leaves its state to the next one.

A section is a kind, named fields and named columns. A reader ignores kinds, fields and columns that it does not know,
and has defaults for those that are missing, so that daemons of neighbouring versions read each other's images.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

_SECTION: Final = struct.Struct("<II")
#: the type of a column of bytes; others are those of `array`
BYTES: Final = "s"
_TYPES: Final = ("B", "I", "Q", "f", "d", BYTES)

Column = tuple[str, Sequence[Any]]


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


def pack_section(section: Section) -> bytes:
    """Return a section as bytes; `unpack_sections` reads any number of them in a row."""
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
    if len(data) == start:
        return [b""] * count
    return [data[low:high] for low, high in pairwise(accumulate(sizes, initial=start))]


def unpack_sections(body: bytes) -> Iterator[Section]:
    """Iterate over sections that `pack_section` has packed."""
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


def table(kind: str, types: Mapping[str, str], rows: Sequence[tuple[object, ...]]) -> Section:
    """Return a section of rows, whose columns have these types."""
    values = zip(*rows, strict=True) if rows else iter([()] * len(types))
    return Section(kind, columns={name: (types[name], column) for name, column in zip(types, values, strict=True)})
