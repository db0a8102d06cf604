"""The socket of a connection to the daemon: its address, connecting, sending a frame, and the errors of it."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from bccnd.core import frames
from bccnd.core.address import MAX_PATH, read_address
from bccnd.errors import BadAddress, BusError

#: the largest packet of the bus, and the particulars of its sender that the daemon may put in
BUFFER: Final = frames.MAX_PACKET + 4096


def usual_path() -> str:
    """Where the daemon is, if nobody says so."""
    return os.environ.get("BCCN_SOCKET") or frames.DEFAULT_SOCKET


def address_of(path: str) -> str | bytes:
    """What the kernel calls a path, wherever this program may change its directory to. Raises BusError."""
    try:
        address = read_address(path)
    except BadAddress as bad:
        reason = "no_daemon" if bad.reason == "too_long" else "bad_address"
        raise BusError(reason, f"cannot reach the daemon at {path}: {bad.detail}") from bad
    if isinstance(address, int):
        raise BusError("bad_address", f"{path} is a descriptor, where only a daemon could be listening")
    if isinstance(address, str):
        absolute = os.path.abspath(address)
        return absolute if len(os.fsencode(absolute)) <= MAX_PATH else address
    return address


def dial(address: str | bytes) -> socket.socket:
    """A socket, not blocking, that is connected. Raises OSError; BlockingIOError where too many wait for an answer."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def give(sock: socket.socket, frame: bytes, flags: int = 0) -> None:
    """Send a frame; for a large one, which the kernel does not take by itself, room is made. Raises OSError;
    BlockingIOError where the socket is full, if it does not block or ``flags`` has MSG_DONTWAIT."""
    try:
        sock.send(frame, socket.MSG_NOSIGNAL | flags)
    except OSError as error:
        if error.errno != errno.EMSGSIZE or len(frame) > frames.MAX_PACKET:
            raise
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, frames.MAX_PACKET)
        sock.send(frame, socket.MSG_NOSIGNAL | flags)


def jitter() -> float:
    """Anything from 0 to 1, different in every program."""
    return os.urandom(1)[0] / 255


def unreachable(path: str, error: OSError) -> BusError:
    return BusError("no_daemon", f"cannot reach the daemon at {path}: {error.strerror or error}")


def unsent(frame: bytes) -> BusError:
    return BusError("too_long", f"{len(frame)} bytes are more than the socket takes")


def away(daemon: str, turned_away: str, why: str, patience: float) -> BusError:
    """The daemon has not come back in time, or does not serve us."""
    if turned_away:
        why = f"{daemon} does not serve this program now: {turned_away}"
    return BusError("connection_lost", f"{why} (waited for {patience:g} s)")


def unconfirmed(path: str) -> BusError:
    return BusError(
        "connection_lost",
        f"the daemon at {path} was away before it had confirmed all that was published: what of it was sent is unknown",
    )
