"""Serves what is known of the fleet as JSON, made in steps: with hundreds of hosts it takes longer than the loop may
wait.

Invariant: requests within two seconds share one answer, so that the cost does not grow with the number of readers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from bccnd.fleet import view
from bccnd.fleet.matrix import FleetMatrix
from bccnd.fleet.steps import Steps
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.net.http import Answer

#: seconds for which an answer is reused
CACHE_TIME: Final = 2.0

#: makes an answer of the matrix, the name of this host and the time
Make = Callable[[FleetMatrix, str, float], Steps[bytes]]


class FleetPage:
    """One page about the fleet."""

    def __init__(self, daemon: DaemonState, make: Make) -> None:
        self._daemon = daemon
        self._make = make
        self._job: FleetJob | None = None
        self._expires = 0.0

    def __call__(self, _accept: str) -> Answer | FleetJob:
        now = self._daemon.now()
        if self._job is None or now >= self._expires:
            reports = self._daemon.reports
            reports.refresh()
            self._job = FleetJob(partial(self._make, reports.matrix, reports.host, now))
            self._expires = now + CACHE_TIME
        return self._job.answer or self._job


class FleetJob:
    """One answer, which all that wait for it make together. A failure costs the one that met it; the next begins it
    again."""

    def __init__(self, make: Callable[[], Steps[bytes]]) -> None:
        self._make = make
        self._steps: Steps[bytes] | None = None
        self.answer: Answer | None = None

    def step(self) -> Answer | None:
        """Do one step; return the answer once it is made."""
        if self.answer is None:
            steps, self._steps = self._steps or self._make(), None
            try:
                next(steps)
                self._steps = steps
            except StopIteration as end:
                self.answer = 200, "application/json", end.value
        return self.answer


def write_fleet(matrix: FleetMatrix, own: str, now: float) -> Steps[bytes]:
    """Write hosts, links and findings, since the start of each daemon."""
    return view.to_json(view.fleet(matrix, own, now), ("hosts", "links", "findings"), {})


def write_table(matrix: FleetMatrix, own: str, now: float) -> Steps[bytes]:
    """Write the matrix of the last minutes."""
    rows = view.table(matrix, own, now)
    return view.to_json(rows, ("senders", "receivers", "findings"), {"own": own, "minutes": view.RECENT})
