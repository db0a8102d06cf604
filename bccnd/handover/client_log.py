"""Log of one client's subscriptions, modes and queue, read by the next daemon.

Invariant: a change is logged before it is counted in the input being processed; this order makes every message reach
the client once. Source: `core.formats.client_log_format` for the records, `native.memory.inflight_layout` for the
counts.
"""

from __future__ import annotations

from collections.abc import Callable

from bccnd.core.formats import client_log_format
from bccnd.handover.memfd import File
from bccnd.native.memory import inflight_layout as layout
from bccnd.native.memory.inflight import InflightState


class ClientLog:
    """Logs nothing. `StoredClientLog` writes what is described here."""

    #: bytes logged so far
    length = 0
    #: its slot in the state of the input being processed
    slot = -1

    def subscribed(self, pattern: bytes, times: int = 1) -> None:
        """The client has subscribed to a pattern."""

    def unsubscribed(self, pattern: bytes, times: int) -> None:
        """It has unsubscribed from a pattern."""

    def requested(self, frame: bytes) -> None:
        """It has set a mode, by this control message."""

    def queued(self, frame: bytes) -> None:
        """A frame was put into its queue."""

    def dropped(self) -> None:
        """A message for it was dropped, behind all that waits."""

    def head_dropped(self) -> None:
        """The next message of its queue was dropped."""

    def control_dropped(self) -> None:
        """A control message for it was dropped."""

    def sent(self, entries: int) -> None:
        """So many entries of its queue were sent."""

    def blocked(self, packet: bytes) -> None:
        """A packet that it sent has to wait."""

    def retried(self) -> None:
        """That packet is being tried again."""

    def resumed(self) -> None:
        """That packet was processed."""

    def next_seq(self, seq: int) -> None:
        """The sequence number of its next message."""

    def counts(self, **numbers: int) -> None:
        """Counters from which the next daemon continues."""


#: for all clients of a daemon without a descriptor store
NOTHING = ClientLog()


class StoredClientLog(ClientLog):
    """Writes to ``file`` and to the client's ``slot``; ``give_up`` is called when there is no memory for more."""

    def __init__(
        self, number: int, slot: int, fd: int, file: File, inflight: InflightState, give_up: Callable[[OSError], None]
    ) -> None:
        self.number = number
        self.slot = slot
        self.file = file
        self._fd = fd
        self._inflight = inflight
        self._give_up = give_up

    @property
    def length(self) -> int:  # type: ignore[override]
        end: int = self.file.end
        return end

    def _append(self, record: bytes) -> None:
        try:
            self.file.append(record)
        except OSError as error:
            self._give_up(error)

    def _write(self, kind: int, body: bytes = b"", number: int = 0) -> None:
        self._append(client_log_format.pack_record(kind, body, number, self._inflight.serial))

    def subscribed(self, pattern: bytes, times: int = 1) -> None:
        self._write(client_log_format.SUBSCRIBED, pattern, times)

    def unsubscribed(self, pattern: bytes, times: int) -> None:
        self._write(client_log_format.UNSUBSCRIBED, pattern, times)

    def requested(self, frame: bytes) -> None:
        self._write(client_log_format.REQUESTED, frame)

    def queued(self, frame: bytes) -> None:
        self._write(client_log_format.QUEUED, frame, self._inflight.counted(self._fd) + 1)
        self._inflight.count(self._fd, 1)

    def dropped(self) -> None:
        inflight = self._inflight
        self._append(client_log_format.pack_dropped(1, inflight.counted(self._fd) + 1, inflight.serial))
        inflight.count(self._fd, 1)

    def head_dropped(self) -> None:
        self._write(client_log_format.HEAD_DROPPED, number=1)

    def control_dropped(self) -> None:
        self._inflight.count(self._fd, 1)

    def sent(self, entries: int) -> None:
        self._write(client_log_format.SENT, number=entries)

    def blocked(self, packet: bytes) -> None:
        self._write(client_log_format.BLOCKED, packet)

    def retried(self) -> None:
        self._inflight.begin(layout.RETRY, self.number, self._fd)

    def resumed(self) -> None:
        self._write(client_log_format.RESUMED)

    def next_seq(self, seq: int) -> None:
        self._inflight.set_next_seq(self._fd, seq)

    def counts(self, **numbers: int) -> None:
        self._append(client_log_format.pack_counts(**numbers))
