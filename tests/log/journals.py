"""A fake of systemd's journal: a real socket, and an independent parser of its protocol."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.support import Closing


def parse(entry: bytes) -> list[tuple[str, bytes]]:
    """The fields of an entry: ``NAME=value``, or the name alone, 64 bits of length, the value and a line's end."""
    fields = []
    while entry:
        line, end, rest = entry.partition(b"\n")
        assert end, f"no end of a line: {entry[:100]!r}"
        name, equals, value = line.partition(b"=")
        if equals:
            entry = rest
        else:
            size = int.from_bytes(rest[:8], "little")
            assert len(rest) > 8 + size, "shorter than its length"
            value, entry = rest[8 : 8 + size], rest[8 + size :]
            assert entry.startswith(b"\n"), "longer than its length"
            entry = entry[1:]
        assert name.decode("ascii").replace("_", "").isalnum()
        assert name == name.upper()
        assert name[:1].isalpha()
        fields.append((name.decode("ascii"), value))
    return fields


def _encoded(field: bytes) -> bytes:
    name, _, value = field.partition(b"=")
    return b"%b\n%b%b" % (name, len(value).to_bytes(8, "little"), value) if b"\n" in value else field


class JournalSocket(Closing):
    """Listens like the journal at a path."""

    def __init__(self, path: Path, room: int | None = None) -> None:
        path.parent.mkdir(exist_ok=True)
        self.path = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if room is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.sock.bind(self.path)
        self.sock.settimeout(10)
        self._writer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def sendv(self, *fields: bytes) -> None:
        """Take an entry in the place of `systemd.journal.sendv`, which uses one path only; OSError for a wait."""
        self._writer.sendto(b"\n".join((*map(_encoded, fields), b"")), self.path)

    def raw(self) -> bytes:
        """The next entry; what came as a file is read from there."""
        data, ancillary, _, _ = socket.recv_fds(self.sock, 1 << 20, 4)
        if not ancillary:
            return data
        assert data == b""
        (fd,) = ancillary
        try:
            return os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    def entry(self) -> dict[str, bytes]:
        fields = parse(self.raw())
        assert len(dict(fields)) == len(fields), "a field twice"
        return dict(fields)

    def waiting(self) -> list[dict[str, bytes]]:
        """The entries that are there."""
        entries = []
        self.sock.setblocking(False)
        try:
            while True:
                entries.append(self.entry())
        except BlockingIOError:
            return entries
        finally:
            self.sock.settimeout(10)

    def close(self) -> None:
        self.sock.close()
        self._writer.close()
        Path(self.path).unlink(missing_ok=True)
