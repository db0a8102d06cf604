"""The input being processed: a batch of datagrams, a packet of a client, or a packet that had to wait.

Invariant: between `begin` (or the receipt that began it) and `commit`, the state that outlives the process says which
input is being processed, so that the next daemon can replay it; `commit` sends all that it brought before it ends.
"""

from __future__ import annotations

from bccnd.bus.delivery.fanout import Fanout
from bccnd.native.memory.inflight import InflightState


class InputTransaction:
    """``inflight`` is the state that outlives the process; without it an input just ends."""

    def __init__(self, fanout: Fanout, inflight: InflightState | None = None) -> None:
        self._fanout = fanout
        self._inflight = inflight

    def begin(self, now: float) -> None:
        """Record the time (monotonic) by which datagrams that were just received are judged."""
        if self._inflight is not None:
            self._inflight.set_time(now)

    def commit(self) -> None:
        """Send what the input has brought, then record that it was processed."""
        if self._inflight is not None:
            self._fanout.send_batches()
            self._inflight.finish()
