"""Sends clients the daemon's own messages: answers to their requests, and reasons why a frame was refused."""

from __future__ import annotations

from typing import Final

from bccnd import log
from bccnd.bus.clients.client import Client
from bccnd.bus.delivery.fanout import Fanout
from bccnd.core.observing.counters import BusCounters
from bccnd.core.wire import frames
from bccnd.drop_catalog.drops import BY_NAME

#: bytes of a key or pattern that are repeated in a refusal
MAX_REPEATED: Final = 1024
#: meaning and remedy of the refusals that an operator should see, because the program may ignore them
_AFTER_REFUSAL: Final = {
    name: drop.explain() for (family, name), drop in BY_NAME.items() if family == "client_errors" and drop.serious
}


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
        _log_refusal(client, reason, key)
        self._fanout.send_control(client, frames.error(reason, key[:MAX_REPEATED]))


def _log_refusal(client: Client, reason: str, key: bytes) -> None:
    """Log that a frame about ``key`` was refused, where an operator should know."""
    fields = log.peer_fields(client.peer, client.identity)
    if reason == "not_permitted":
        about = repr(key[:MAX_REPEATED].decode("ascii", "backslashreplace"))
        log.event(
            "not_permitted",
            f"{client} requested {about} without the right to it",
            about=f"not_permitted/{client.peer.uid}/{client.peer.program.decode('ascii')}",
            remedy="see access in the configuration",
            channel=key[:MAX_REPEATED],
            drop=reason,
            **fields,
        )
    elif reason in _AFTER_REFUSAL:
        means, remedy = _AFTER_REFUSAL[reason]
        log.event(
            "frame_refused",
            f"a frame of {client} was refused ({reason}): {means}",
            about=(reason, client.peer.uid, client.peer.program),
            remedy=remedy,
            reason=reason,
            drop=reason,
            channel=key[:MAX_REPEATED],
            **fields,
        )


def count_own_refusal(counters: BusCounters, reason: str, what: str, remedy: str) -> None:
    """Count and log that messages of the daemon's own (``what``) cannot be sent; ``remedy`` is the usual one."""
    counters.errors.add(reason)
    remedy = _AFTER_REFUSAL[reason][1] if reason in _AFTER_REFUSAL else remedy
    log.event("dropped", f"this daemon's own {what} cannot be sent", about=(what, reason), remedy=remedy, drop=reason)
