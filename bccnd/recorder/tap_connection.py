"""Receives packets from a daemon's tap over one connection.

It does not reconnect, because after a new connection the daemon's counts may start from zero. An answer keeps its place
among the packets: all packets before it have arrived.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Final

from bccnd.client.transport import ReceivedPackets, address_of, dial, give, unreachable
from bccnd.core.wire import frames
from bccnd.errors import BadFrame, BusError, ConnectionLost

_SYNC: Final = b"CMSG %b\0" % frames.SYNC


class TapConnection:
    """``on_packet`` is called with each packet of the tap, or gap; ``on_echo`` with the token of a sync that was
    answered; ``on_drops`` with how many datagrams the kernel has dropped before the daemon read them, since some time
    in the past.

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
            raise unreachable(path, error) from error
        self._on_packet = on_packet
        self._on_echo = on_echo
        self._on_drops = on_drops
        self._reader = ReceivedPackets()

    def fileno(self) -> int:
        return self._sock.fileno()

    def subscribe(self, token: bytes) -> None:
        """Subscribe to everything; when ``token`` is answered, it is in force. Raises BusError: connection_lost."""
        self._send(frames.request(frames.BATCH_ON))
        self.ask_drops()
        self._send(frames.subscribe(frames.TAP))
        self.sync(token)

    def unsubscribe(self, token: bytes) -> None:
        """Unsubscribe; when ``token`` is answered, everything has come."""
        self.ask_drops()
        self._send(frames.unsubscribe(frames.TAP))
        self.sync(token)

    def sync(self, token: bytes) -> None:
        """Have a token sent back after all that came before."""
        self._send(frames.control(frames.SYNC, token))

    def report(self, text: bytes) -> None:
        """Report to the daemon what is not kept; one that is too old to know it ignores that."""
        self._send(frames.control(frames.RECORDER, text))

    def ask_drops(self) -> None:
        self._send(frames.request(frames.STATS, b"daemon"))

    def _send(self, frame: bytes) -> None:
        try:
            with contextlib.suppress(BlockingIOError):  # it is sent again later
                give(self._sock, frame)
        except OSError as error:
            raise ConnectionLost("connection_lost", f"the daemon is gone: {error.strerror}") from error

    def receive(self) -> None:
        """Take what is there. Raises BusError: connection_lost, or what was refused."""
        try:
            packets = self._reader.read(self._sock)
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionLost("connection_lost", f"the daemon is gone: {error.strerror}") from error
        for packet in packets:
            if not packet:
                raise ConnectionLost("connection_lost", "the daemon is gone: it has closed the connection")
            self._take(packet)

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
