"""A fake of systemd's journal: a real socket, and an independent parser of its protocol."""

from __future__ import annotations

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

    def raw(self) -> bytes:
        """The next entry."""
        return self.sock.recv(1 << 20)

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
        Path(self.path).unlink(missing_ok=True)
