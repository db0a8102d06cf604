"""`bccn pub` for lines from standard input: each one goes at once, and what is refused is told on the way.

Law: what a line costs is a message; everything else is done once for all that came together.
"""

from __future__ import annotations

import os
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator

from bccnd.cli.show import explain, tell
from bccnd.client.bus import Connection, Reconnected, Refusal
from bccnd.core.frames import MAX_PACKET
from bccnd.errors import BusError

#: bytes read at once
_CHUNK = 65_536
#: lines sent between two looks at what the daemon has to say; far fewer than it keeps for us
_TURN = 256
#: seconds between two complaints about the same
_EVERY = 5.0
#: seconds to wait at the end for the daemon to have dealt with everything, which it may do slowly (bus.user.rate)
_LAST = 60.0


class Lines:
    """Bytes in pieces -> whole lines without their ends; what is left at the end is a line too."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now; an empty ``chunk`` is the end. Raises BusError: too_long."""
        if not chunk:
            rest, self._rest = self._rest, b""
            return [rest] if rest else []
        lines = chunk.split(b"\n")
        lines[0] = self._rest + lines[0]
        self._rest = lines.pop()
        if len(self._rest) > MAX_PACKET:
            raise BusError("too_long", f"a line has more than {MAX_PACKET} bytes")
        return lines


class Complaints:
    """Refusals, told at once and then at most every few seconds for each reason, with a count."""

    def __init__(self, say: Callable[[str], None] = tell, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._say = say
        self._clock = clock
        self._untold: Counter[str] = Counter()
        self._latest: dict[str, Refusal] = {}
        self._told: dict[str, float] = {}

    def add(self, refusal: Refusal) -> None:
        self.total += 1
        self._untold[refusal.reason] += 1
        self._latest[refusal.reason] = refusal
        if self._clock() - self._told.get(refusal.reason, float("-inf")) >= _EVERY:
            self._tell(refusal.reason)

    def end(self) -> None:
        """Tell what has not been told yet."""
        for reason in list(self._untold):
            self._tell(reason)

    def due(self) -> float | None:
        """Seconds until something has to be told; None when there is nothing."""
        waits = [self._told[reason] + _EVERY - self._clock() for reason in self._untold]
        return max(0.0, min(waits)) if waits else None

    def look(self) -> None:
        """Tell what is due."""
        for reason in list(self._untold):
            if self._clock() - self._told[reason] >= _EVERY:
                self._tell(reason)

    def _tell(self, reason: str) -> None:
        count = self._untold.pop(reason)
        again = "more " if reason in self._told else ""
        more = f" ({count} {again}messages)" if count > 1 or again else ""
        self._say(explain(self._latest[reason]) + more)
        self._told[reason] = self._clock()


def publish_lines(bus: Connection, channel: str, fd: int) -> int:
    """Publish the lines that come on ``fd`` until its end; the number of messages refused. Raises BusError."""
    complaints = Complaints()
    publish = bus.publish
    try:
        for lines in _arriving(bus, fd, complaints):
            for start in range(0, len(lines), _TURN):
                for line in lines[start : start + _TURN]:
                    publish(channel, line)
                _hear(bus, complaints)
        for refusal in bus.sync(_LAST):
            complaints.add(refusal)
    finally:
        complaints.end()
    return complaints.total


def _arriving(bus: Connection, fd: int, complaints: Complaints) -> Iterator[list[bytes]]:
    """Whole lines, as many as there are at once; while there are none, what the daemon says is heard."""
    whole = Lines()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    alone = True
    while True:
        due = complaints.due()
        wait = 0 if alone else None if due is None else due * 1000
        ready = {one for one, _ in poll.poll(wait)}
        complaints.look()
        if not ready and alone:  # only now is it worth what such a descriptor takes
            poll.register(bus.fileno(), select.POLLIN)
            alone = False
        elif fd in ready:
            chunk = os.read(fd, _CHUNK)
            yield whole.feed(chunk)
            if not chunk:
                return
        elif ready:
            _hear(bus, complaints)


def _hear(bus: Connection, complaints: Complaints) -> None:
    """Take what the daemon has sent: refusals; messages for this program are for nobody."""
    while (event := bus.receive(0)) is not None:
        if isinstance(event, Refusal):
            complaints.add(event)
        elif isinstance(event, Reconnected):
            tell(f"the daemon was away for {event.seconds:.1f} s at most, and is back; it may have lost the last lines")
