"""What is known of a client, written down as it happens, for the daemon that comes after us.

Law: what is done to a client is written down before it counts as done; the order of both is what makes every message
reach it once. Source: `core.client_records` for what is written, `native.inflight_layout` for what counts.
"""

from __future__ import annotations

from collections.abc import Callable

from bccnd.core import client_records
from bccnd.handover.memfd import File
from bccnd.native import inflight_layout as layout
from bccnd.native.inflight import InflightState


class ClientLog:
    """Nothing is kept. `StoredClientLog` does; what it does is said here."""

    #: bytes that are known of the client by now
    length = 0
    #: where it stands in the ledger
    slot = -1

    def holds(self, pattern: bytes, times: int = 1) -> None:
        """It has subscribed to a pattern."""

    def drops(self, pattern: bytes, times: int) -> None:
        """It holds a pattern no more."""

    def asked(self, frame: bytes) -> None:
        """It has asked to be served in another way."""

    def put(self, frame: bytes) -> None:
        """A frame for it waits in its queue."""

    def lost(self) -> None:
        """A message for it was dropped, behind all that waits."""

    def lost_here(self) -> None:
        """The message that would have been next in its queue was dropped."""

    def untold(self) -> None:
        """A control message for it was dropped."""

    def took(self, entries: int) -> None:
        """It has taken so many entries of its queue."""

    def waits(self, packet: bytes) -> None:
        """A packet of its own has to wait."""

    def begins(self) -> None:
        """That packet is tried again,"""

    def goes_on(self) -> None:
        """and has gone on its way."""

    def speaks(self, seq: int) -> None:
        """The seq that it is to use next."""

    def counts(self, **numbers: int) -> None:
        """Numbers that the next daemon is to go on from."""


#: for all clients of a daemon that is not to leave anything behind
NOTHING = ClientLog()


class StoredClientLog(ClientLog):
    """Everything is kept: on a tape, and in a slot of the ledger. ``give_up`` is called when there is no memory for it;
    nothing can be kept of this client from then on."""

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
        self._append(client_records.record(kind, body, number, self._inflight.serial))

    def holds(self, pattern: bytes, times: int = 1) -> None:
        self._write(client_records.HOLDS, pattern, times)

    def drops(self, pattern: bytes, times: int) -> None:
        self._write(client_records.DROPS, pattern, times)

    def asked(self, frame: bytes) -> None:
        self._write(client_records.ASKED, frame)

    def put(self, frame: bytes) -> None:
        self._write(client_records.PUT, frame, self._inflight.counted(self._fd) + 1)
        self._inflight.count(self._fd, 1)

    def lost(self) -> None:
        inflight = self._inflight
        self._append(client_records.lost(1, inflight.counted(self._fd) + 1, inflight.serial))
        inflight.count(self._fd, 1)

    def lost_here(self) -> None:
        self._write(client_records.LOST_HERE, number=1)

    def untold(self) -> None:
        self._inflight.count(self._fd, 1)

    def took(self, entries: int) -> None:
        self._write(client_records.TOOK, number=entries)

    def waits(self, packet: bytes) -> None:
        self._write(client_records.WAITS, packet)

    def begins(self) -> None:
        self._inflight.begin(layout.HELD, self.number, self._fd)

    def goes_on(self) -> None:
        self._write(client_records.GOES_ON)

    def speaks(self, seq: int) -> None:
        self._inflight.say_seq(self._fd, seq)

    def counts(self, **numbers: int) -> None:
        self._append(client_records.counts(**numbers))
