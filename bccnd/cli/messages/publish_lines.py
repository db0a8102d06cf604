"""Publishes payloads or lines of standard input, and reports what is refused meanwhile."""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from bccnd.cli.shared.connection import explain, report_absence
from bccnd.cli.shared.output import print_notice
from bccnd.client.bus import Connection
from bccnd.client.event_queues import Reconnected, Refusal
from bccnd.core.wire.frames import MAX_PACKET
from bccnd.errors import BusError
from bccnd.waiting_io import read_input

#: bytes read at once
_CHUNK = 65_536
#: messages sent before replies of the daemon are read; far fewer than it queues for a client
_TURN = 256
#: seconds between two reports of the same reason
_PAUSE = 5.0
#: seconds to wait at the end for the daemon to have handled everything, which it may do slowly (bus.user.rate)
_LAST = 60.0


class LineSplitter:
    """Splits a stream of bytes into lines; what is left at the end is a line too."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete now; an empty ``chunk`` is the end. Raises BusError: too_long."""
        if not chunk:
            rest, self._rest = self._rest, b""
            return [rest] if rest else []
        lines = chunk.split(b"\n")
        lines[0] = self._rest + lines[0]
        self._rest = lines.pop()
        if len(self._rest) > MAX_PACKET:
            raise BusError("too_long", f"a line has more than {MAX_PACKET} bytes")
        return lines


class RefusalReports:
    """Reports refusals: the first of each reason at once, later ones every few seconds, with their number."""

    def __init__(
        self, write: Callable[[str], None] = print_notice, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total = 0
        self._write = write
        self._clock = clock
        self._waiting: Counter[str] = Counter()
        self._latest: dict[str, Refusal] = {}
        self._reported: dict[str, float] = {}

    def add(self, refusal: Refusal) -> None:
        self.total += 1
        self._waiting[refusal.reason] += 1
        self._latest[refusal.reason] = refusal
        self.write_due()

    def write_due(self, *, everything: bool = False) -> None:
        """Write the reports that are due, or all."""
        for reason in list(self._waiting):
            last = self._reported.get(reason)
            if everything or last is None or self._clock() - last >= _PAUSE:
                count = self._waiting.pop(reason)
                again = "" if last is None else "more "
                more = f" ({count} {again}messages)" if count > 1 or again else ""
                self._write(explain(self._latest[reason]) + more)
                self._reported[reason] = self._clock()


def publish_all(bus: Connection, messages: Iterable[tuple[str, bytes]]) -> int:
    """Publish payloads on channels; return how many were refused. Raises BusError."""
    return _publish(bus, ([message] for message in messages), RefusalReports())


def publish_lines(bus: Connection, channel: str, fd: int) -> int:
    """Publish the lines of ``fd`` as they come, until its end; return how many were refused. Raises BusError."""
    reports = RefusalReports()
    batches = ([(channel, line) for line in lines] for lines in _read_lines(bus, fd, reports))
    return _publish(bus, batches, reports)


def _publish(bus: Connection, batches: Iterable[list[tuple[str, bytes]]], reports: RefusalReports) -> int:
    try:
        for batch in batches:
            for start in range(0, len(batch), _TURN):
                bus.publish_many(batch[start : start + _TURN])
                _take_refusals(bus, reports)
        for refusal in bus.sync(_LAST):
            reports.add(refusal)
    finally:
        reports.write_due(everything=True)
    return reports.total


def _read_lines(bus: Connection, fd: int, reports: RefusalReports) -> Iterator[list[bytes]]:
    """Yield complete lines, as many as there are at once; refusals are received while there are none."""
    splitter = LineSplitter()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    alone = True
    while True:
        ready = {one for one, _ in poll.poll(0 if alone else None)}
        if not ready and alone:  # a descriptor of the connection costs a thread, so only when there is time
            poll.register(bus.fileno(), select.POLLIN)
            alone = False
        elif fd in ready:
            chunk = read_input(fd, _CHUNK)
            yield splitter.feed(chunk)
            if not chunk:
                return
        elif ready:
            _take_refusals(bus, reports)


def _take_refusals(bus: Connection, reports: RefusalReports) -> None:
    """Receive what the daemon has sent; messages are discarded."""
    while (event := bus.receive(0)) is not None:
        if isinstance(event, Refusal):
            reports.add(event)
        elif isinstance(event, Reconnected):
            report_absence(event, "it may have lost the last lines")
