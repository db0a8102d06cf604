"""A connection to the tap of a daemon: packets as they come.

Law: one connection, never another one behind it: where it ends, what the daemon counts may begin anew. What is asked
is answered in its place among what the tap tells, so that an answer says that all before it has come.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from typing import Final

from bccnd.client.transport import BUFFER, address_of, dial
from bccnd.core import frames
from bccnd.errors import BadFrame, BusError

#: packets taken at once, before anything else has its turn
_TURN: Final = 64
_SYNC: Final = b"CMSG %b\0" % frames.SYNC


class Tap:
    """``on_packet`` gets what the tap tells, gaps among it; ``on_echo`` the token of a sync that came back;
    ``on_drops`` how many datagrams the kernel has dropped before the daemon read them, since some time in the past.

    Raises BusError: no_daemon, bad_address.
    """

    def __init__(
        self,
        path: str,
        on_packet: Callable[[bytes], None],
        on_echo: Callable[[bytes], None],
        on_drops: Callable[[int], None],
    ) -> None:
        self.path = path
        try:
            self._sock = dial(address_of(path))
        except OSError as error:
            raise BusError("no_daemon", f"cannot reach the daemon at {path}: {error.strerror or error}") from error
        self._on_packet = on_packet
        self._on_echo = on_echo
        self._on_drops = on_drops
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)

    def fileno(self) -> int:
        return self._sock.fileno()

    def subscribe(self, token: bytes) -> None:
        """Ask for everything; when ``token`` comes back, it is in force. Raises BusError: connection_lost."""
        self._send(frames.request(frames.BATCH_ON))
        self.ask_drops()
        self._send(frames.subscribe(frames.TAP))
        self.sync(token)

    def unsubscribe(self, token: bytes) -> None:
        """Ask for nothing more; when ``token`` comes back, all has come that there is."""
        self.ask_drops()
        self._send(frames.unsubscribe(frames.TAP))
        self.sync(token)

    def sync(self, token: bytes) -> None:
        """Have a token sent back behind all that has come up to now."""
        self._send(frames.control(frames.SYNC, token))

    def report(self, text: bytes) -> None:
        """Tell the daemon what is not kept; one that does not know of that is not bothered by it."""
        self._send(frames.control(frames.RECORDER, text))

    def ask_drops(self) -> None:
        self._send(frames.request(frames.STATS, b"daemon"))

    def _send(self, frame: bytes) -> None:
        try:
            with contextlib.suppress(BlockingIOError):  # a daemon that does not read is asked again
                self._sock.send(frame, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise BusError("connection_lost", f"the daemon is gone: {error.strerror}") from error

    def receive(self) -> None:
        """Take what is there. Raises BusError: connection_lost, or what was refused."""
        for _ in range(_TURN):
            try:
                size = self._sock.recv_into(self._buffer)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # said once; what the daemon sent before its end is still there
            except OSError as error:
                raise BusError("connection_lost", f"the daemon is gone: {error.strerror}") from error
            if not size:
                raise BusError("connection_lost", "the daemon is gone: it has closed the connection")
            self._take(bytes(self._view[:size]))

    def _take(self, packet: bytes) -> None:
        if not packet.startswith(b"CMSG "):
            if packet.startswith(b"MSG"):
                self._on_packet(packet)
            return
        if packet.startswith(_SYNC):
            self._on_echo(packet[len(_SYNC) :])
            return
        try:
            _, key, payload = frames.read(packet)
        except BadFrame:
            return
        if key == frames.GAP:
            self._on_packet(packet)
        elif key == frames.STATS:
            with contextlib.suppress(ValueError, LookupError, TypeError):
                self._on_drops(int(json.loads(payload)["items"][0]["kernel_drops"]))
        elif key == frames.ERROR:
            self._refused(payload)

    @staticmethod
    def _refused(payload: bytes) -> None:
        reason, _, about = payload.decode("utf-8", "replace").partition(" ")
        if about.startswith("!/tap/"):
            raise BusError(reason, "this program may not tap: the tap shows what is meant for others")
        if not about:
            raise BusError(reason, f"the daemon does not serve this program: {reason}")
        if about == frames.STATS.decode():
            raise BusError(reason, "this bus has no segments, and so nothing to record")

    def close(self) -> None:
        self._sock.close()
