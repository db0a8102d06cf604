"""What the log says of a frame that was refused and of a client that was disconnected."""

from __future__ import annotations

from typing import Final

from bccnd import log
from bccnd.bus.clients.client import Client
from bccnd.drops.catalog import BY_NAME

#: bytes of a key or pattern that are repeated in a refusal
MAX_REPEATED: Final = 1024
#: refusals that a program may overlook and its operator should not: what they mean, and the remedy
AFTER_REFUSAL: Final = {
    name: drop.explain() for (family, name), drop in BY_NAME.items() if family == "client_errors" and drop.serious
}


def log_refusal(client: Client, reason: str, key: bytes) -> None:
    """Log that a frame about ``key`` was refused, where an operator should know."""
    fields = log.peer_fields(client.peer, client.identity)
    if reason == "not_permitted":
        what = repr(key[:MAX_REPEATED].decode("ascii", "backslashreplace"))
        log.event(
            "not_permitted",
            f"{client} requested {what} without the right to it",
            about=f"not_permitted/{client.peer.uid}/{client.peer.program.decode('ascii')}",
            remedy="see access in the configuration",
            channel=key[:MAX_REPEATED],
            drop=reason,
            **fields,
        )
    elif reason in AFTER_REFUSAL:
        means, remedy = AFTER_REFUSAL[reason]
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


def log_end(client: Client, reason: str, why: str) -> None:
    """Log that a client was disconnected."""
    log.event(
        "client_ended",
        f"{client} was disconnected: {why}",
        about=f"ended/{client.identity.decode('ascii')}",
        remedy=BY_NAME["clients_ended", reason].explain()[1],
        reason=reason,
        drop=reason,
        **log.peer_fields(client.peer, client.identity),
    )
