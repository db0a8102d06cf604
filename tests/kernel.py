"""What the kernel tells of processes, sockets and files."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path


def group(leader: int) -> set[int]:
    """The processes of a process group; what a shell starts is in its own."""
    members = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # A name may hold blanks and brackets itself; behind its last bracket stand state, parent and group.
            if int(stat.read_text().rpartition(")")[2].split()[2]) == leader:
                members.add(int(stat.parent.name))
    return members


def listens(leader: int, port: int) -> bool:
    """Whether a process group has a UDP socket that is bound to a port, in whatever network it lives.

    Its own socket is looked for: to count those of a port is not exact, as the kernel gives that table in pieces.
    """
    for pid in group(leader):
        with suppress(OSError):
            held = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
            for table in ("udp", "udp6"):
                for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[1].endswith(f":{port:04X}") and f"socket:[{fields[9]}]" in held:
                        return True
    return False


def kernel_drops(sock: socket.socket) -> int:
    """Datagrams that the kernel had no room for in a socket's buffer: SO_MEMINFO, the ninth number."""
    return int(struct.unpack_from("=I", sock.getsockopt(socket.SOL_SOCKET, 55, 36), 32)[0])


def open_to_others(folder: Path) -> list[str]:
    """What others can read or enter, and the group can write to, of a folder and all in it."""
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o027]
