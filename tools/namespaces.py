"""Namespaces: a network, and more, of its own for a process that tests or simulates."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_MS_PRIVATE_ALL: Final = 0x44000
#: where ip(8) keeps the names of networks
_NAMES: Final = Path("/run/netns")
_libc: Final = ctypes.CDLL(None, use_errno=True)


def enter_network_namespace() -> None:
    """Give this process a network of its own: loopback only, so no port or broadcast meets that of another process.

    Without root this takes a user namespace, in which the process stays the user that it is. Raises OSError where the
    kernel does not permit it.
    """
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWNET | (_CLONE_NEWUSER if uid else 0)):
        raise OSError(ctypes.get_errno(), "unshare")
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # SIOCSIFFLAGS: up and running
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


def enter_ipc_namespace() -> bool:
    """Give this process, and all that it starts from now on, a mark that stays: an IPC namespace.

    Returns whether the kernel permits it, as it does to root and in a user namespace of this process' own.
    """
    return not _libc.unshare(_CLONE_NEWIPC)


def own_network_names() -> Path | None:
    """Give names of network namespaces to this process alone: nobody else sees them, and they end with it.

    Returns the folder with the names, or None where this is not permitted. Takes a mount table of its own.
    """
    if os.geteuid() or _libc.unshare(_CLONE_NEWNS) or _libc.mount(None, b"/", None, _MS_PRIVATE_ALL, None):
        return None
    _NAMES.mkdir(parents=True, exist_ok=True)
    return None if _libc.mount(b"netns", bytes(_NAMES), b"tmpfs", 0, b"mode=755") else _NAMES


def namespaces_permitted() -> bool:
    """Try in a child: halfway in, there is no way back."""
    child = os.fork()
    if not child:
        with suppress(BaseException):
            enter_network_namespace()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0
