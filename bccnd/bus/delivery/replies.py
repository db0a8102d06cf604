"""Sends clients the daemon's own messages: answers to their requests, and reasons why a frame was refused."""

from __future__ import annotations

from bccnd.bus.clients.client import Client
from bccnd.bus.clients.refusals import MAX_REPEATED, log_refusal
from bccnd.bus.delivery.fanout import Fanout
from bccnd.core.wire import frames


class Replies:
    """Sends control messages and errors by ``fanout``."""

    def __init__(self, fanout: Fanout) -> None:
        self._fanout = fanout
        self._counters = fanout.queues.counters

    def answer(self, client: Client, key: bytes, payload: bytes) -> None:
        """Send a client a control message."""
        self._fanout.send_control(client, frames.control(key, payload))

    def refuse(self, client: Client, reason: str, key: bytes) -> None:
        """Tell a client that a frame about ``key`` was refused; count and log it."""
        self._counters.errors.add(reason)
        log_refusal(client, reason, key)
        self._fanout.send_control(client, frames.error(reason, key[:MAX_REPEATED]))
