"""Writes the image of a client: the records from which `bus.client_restore` restores it in the next daemon."""

from __future__ import annotations

from collections.abc import Iterable

from bccnd.bus.clients.client import Client
from bccnd.core.formats import client_log_format


def write_image(client: Client, requests: Iterable[bytes], patterns: dict[bytes, int]) -> bytes:
    """Return the records that describe a client from its beginning.

    ``requests`` are the control messages in force for it, ``patterns`` those that it holds and how often.
    """
    peer = client.peer
    head = {
        "program": peer.program.decode("ascii"),
        "started": peer.started,
        "dialect": client.dialect.name,
        "since": client.since,
        "slot": client.state_log.slot,
    }
    records = [client_log_format.pack_head(**head)]
    records += [client_log_format.pack_record(client_log_format.REQUESTED, frame) for frame in requests]
    records += [
        client_log_format.pack_record(client_log_format.SUBSCRIBED, text, times) for text, times in patterns.items()
    ]
    records += [client_log_format.pack_queue_entry(entry) for entry in client.queue]
    if client.blocked_packet is not None:
        records.append(client_log_format.pack_record(client_log_format.BLOCKED, client.blocked_packet))
    records.append(client_log_format.pack_counts(published=client.published, lost=client.lost))
    return b"".join(records)
