"""The line about the daemon that `systemctl status` shows."""

from __future__ import annotations

import time

from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.take_snapshot import summarize, take_snapshot


class ServiceStatus:
    """Makes the line; its rate is over the time since it was made last."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        #: when the line was made last, and the datagrams received until then
        self._last: tuple[float, int] | None = None

    def line(self) -> str:
        taken = summarize(take_snapshot(self._daemon))
        now = time.monotonic()
        before, received_before = self._last or (now, taken.received)
        self._last = now, taken.received
        if self._daemon.refused:
            return self._daemon.refused
        rate = (taken.received - received_before) / max(now - before, 0.001)
        # Two digits are enough, and make the line change seldom.
        rate = round(rate, min(0, 2 - len(str(int(rate)))))
        return (
            f"serving {count_of(taken.clients, 'client')} on {count_of(len(taken.segments), 'segment')}; "
            f"{count_of(taken.sources, 'source')} known, {rate:,.0f} datagrams a second"
        )


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
