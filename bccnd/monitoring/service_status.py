"""The line about the daemon that `systemctl status` shows."""

from __future__ import annotations

import time

from bccnd.monitoring.daemon_state import DaemonState


class ServiceStatus:
    """Makes the line; its rate is over the time since it was made last."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        #: when the line was made last, and the datagrams received until then
        self._last: tuple[float, int] | None = None

    def line(self) -> str:
        daemon = self._daemon
        now, received = time.monotonic(), sum(segment.counters.received for segment in daemon.segments)
        before, received_before = self._last or (now, received)
        self._last = now, received
        if daemon.refused:
            return daemon.refused
        rate = (received - received_before) / max(now - before, 0.001)
        # Two digits are enough, and make the line change seldom.
        rate = round(rate, min(0, 2 - len(str(int(rate)))))
        clients, segments, sources = len(daemon.bus.clients), len(daemon.segments), len(daemon.sources)
        return (
            f"serving {count_of(clients, 'client')} on {count_of(segments, 'segment')}; "
            f"{count_of(sources, 'source')} known, {rate:,.0f} datagrams a second"
        )


def count_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
