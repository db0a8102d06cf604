"""What the log says of a frame that was refused and of a client that was disconnected."""

from __future__ import annotations

from typing import Final

from bccnd import log
from bccnd.bus.clients.client import Client

#: bytes of a key or pattern that are repeated in a refusal
MAX_REPEATED: Final = 1024
#: remedies for a client that was disconnected, by the reason
_AFTER_END: Final = {
    "slow": "make it read faster, or choose another blocking mode there",
    "pid_reused": "have programs close their connections, or not leave them to others, before they end",
}
#: refusals that a program may overlook and its operator should not: what it did, and the remedy
AFTER_REFUSAL: Final = {
    "frame_too_long": ("has sent a frame longer than 409,600 bytes", "have it send less at once"),
    "no_link": ("has passed on bytes that are no datagram of a link", "bring daemon and gateway to one version"),
    "bad_report": ("has sent a report that cannot be read", "bring daemon and gateway or recorder to one version"),
    "too_many_subscriptions": (
        "has asked for more patterns than it, or its user, may hold",
        "have it subscribe to a whole branch, or raise bus.max_subscriptions or bus.user.subscriptions",
    ),
    "not_perl_safe": (
        "publishes on a channel that readers of the Perl module would discard; it stays on this host",
        "choose another channel, or set names: any if there are no such readers",
    ),
    "no_signing_key": (
        "publishes messages that cannot be signed, as there is no private key here; they stay on this host",
        "name one in integrity.keys ('bccn keygen --algorithm sig FILE' makes one)",
    ),
    "too_long": (
        "publishes messages that do not fit into one datagram; they stay on this host",
        "have it send less in one message: 1400 bytes with sender, channel and check",
    ),
}


def log_refusal(client: Client, reason: str, key: bytes) -> None:
    """Log that a frame about ``key`` was refused, where an operator should know."""
    fields = log.peer_fields(client.peer, client.identity)
    if reason == "not_permitted":
        what = repr(key[:MAX_REPEATED].decode("ascii", "backslashreplace"))
        log.event(
            "not_permitted",
            f"{client} has asked for {what} and may not",
            about=f"not_permitted/{client.peer.uid}/{client.peer.program.decode('ascii')}",
            remedy="see access in the configuration",
            channel=key[:MAX_REPEATED],
            drop=reason,
            **fields,
        )
    elif reason in AFTER_REFUSAL:
        what, remedy = AFTER_REFUSAL[reason]
        log.event(
            "frame_refused",
            f"{client} {what}",
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
        remedy=_AFTER_END.get(reason, ""),
        reason=reason,
        drop=reason,
        **log.peer_fields(client.peer, client.identity),
    )
