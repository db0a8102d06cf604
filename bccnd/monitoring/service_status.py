"""The line about the daemon that `systemctl status` shows."""

from __future__ import annotations

import time

from bccnd.monitoring.daemon_state import DaemonState


class ServiceStatus:
    """Makes the line; its rate is over the time since it was made last."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        self._last = (time.monotonic(), 0)

    def line(self) -> str:
        daemon = self._daemon
        (before, received), now = self._last, time.monotonic()
        self._last = now, sum(segment.counters.received for segment in daemon.segments)
        if daemon.refused:
            return daemon.refused
        rate = (self._last[1] - received) / max(now - before, 0.001)
        # Two digits are enough, and make the line change seldom.
        rate = round(rate, min(0, 2 - len(str(int(rate)))))
        clients, segments, sources = len(daemon.bus.clients), len(daemon.segments), len(daemon.sources)
        return (
            f"serving {count_of(clients, 'client')} on {count_of(segments, 'segment')}; "
            f"{count_of(sources, 'source')} known, {rate:,.0f} datagrams a second"
        )


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
