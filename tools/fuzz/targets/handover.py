"""What a daemon left for its successor, possibly damaged: an image, and the record of a client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bccnd.core.formats.image_sections import BYTES, Section
from bccnd.core.wire import frames
from bccnd.handover.descriptor_store import CLIENT_HEAD, CLIENT_MAGIC, ClientRecord
from bccnd.handover.image import BadImage, read_image, write_image


@contextmanager
def _file(data: bytes = b"") -> Iterator[int]:
    fd = os.memfd_create("fuzz", os.MFD_CLOEXEC)
    try:
        os.pwrite(fd, data, 0)
        yield fd
    finally:
        os.close(fd)


def image(data: bytes) -> object:
    """A file is an image or none. One that was written is read, and none any more once a byte of it has changed."""
    with _file(data) as fd:
        outcome = _read(fd)
    with _file() as fd:
        pieces = data.split(b"\n")
        write_image(fd, [Section("pieces", {"count": len(pieces)}, {"piece": (BYTES, pieces)})])
        size = os.fstat(fd).st_size  # before it is read, which leaves a note behind it
        found = _read(fd)
        assert isinstance(found, list)
        assert found[0].fields["count"] == len(pieces)
        assert found[0].column("piece", b"", 0) == pieces
        place = int.from_bytes(data[:2], "little") % size
        os.pwrite(fd, bytes([os.pread(fd, 1, place)[0] ^ (data[2] if data[2:3].strip(b"\0") else 1)]), place)
        assert isinstance(_read(fd), str)
    return outcome if isinstance(outcome, str) else len(outcome), size


def _read(fd: int) -> list[Section] | str:
    try:
        return list(read_image(fd))
    except BadImage as bad:
        return str(bad)


def record(data: bytes) -> object:
    """The record of a client: read as far as it is whole, and continued from there."""
    raw = CLIENT_HEAD.pack(CLIENT_MAGIC, CLIENT_HEAD.size) + data[1:] if data[:1] == b"\1" else data
    with _file(raw) as fd:
        client = ClientRecord(fd)
        head, found = client.read()
        client.append(frames.subscribe(b"a"))
        again = ClientRecord(fd).read()
        if head:
            assert again == (head, [*found, frames.subscribe(b"a")])
        client.replace({"program": "p"}, found)
        assert ClientRecord(fd).read() == ({"program": "p"}, found)
    return head, found
