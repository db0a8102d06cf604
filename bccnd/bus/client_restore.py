"""Restores clients from the images that the previous daemon wrote (`bus.clients.client_image`) and from their logs, and
replays the input that it did not finish."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from bccnd import log
from bccnd.bus.clients.client import Client
from bccnd.bus.clients.registry import BUG
from bccnd.bus.server import Bus
from bccnd.core.formats import client_log_format
from bccnd.core.matching.patterns import DIALECTS
from bccnd.handover.stored_state import Handover, Stored
from bccnd.native.memory.inflight_layout import DATAGRAMS, PACKET, InflightInput
from bccnd.net.peer import is_shut_down


def restore_clients(bus: Bus, handover: Handover) -> dict[int, int]:
    """Take over the stored clients; return how much each has received of the unfinished input.

    To be called once, when everything else is ready. Rules and limits of today are enforced only after the input was
    replayed: what clients were sent before belongs to it.
    """
    received: dict[int, int] = {}
    bus.connections = handover.last_number
    for stored in handover.clients:
        client = _restore(bus, handover, stored)
        if client is not None and client.open:
            bus.reader.watch(client)
            received[client.fd] = stored.received
            if client.queue:
                bus.loop.soon(partial(_flush, bus, client))
    handover.clients.clear()  # they hold all that had waited
    if handover.unfinished is None:
        bus.enforce_rules()
    return received


def replay_input(
    bus: Bus,
    handover: Handover,
    unfinished: InflightInput,
    received: dict[int, int],
    feed: Callable[[InflightInput], None],
    *,
    broadcast: bool = False,
) -> None:
    """Process again what the previous daemon did not finish; ``feed`` processes datagrams.

    ``broadcast`` is whether the message of a client was broadcast on a segment: then it cannot wait any more.
    """

    def process() -> None:
        if unfinished.kind == DATAGRAMS:
            feed(unfinished)
            return
        client = next((one for one in bus.clients.values() if one.number == unfinished.number), None)
        if client is None:
            return
        if unfinished.kind == PACKET:
            if unfinished.packet or not is_shut_down(client.sock):
                bus.reader.process(client, unfinished.packet)
        else:
            bus.backpressure.retry_replayed(client)

    handover.count_try()
    try:
        bus.fanout.replay(received, process, broadcast=broadcast)
    except Exception:  # noqa: BLE001 - given up rather than met again and again
        what = "the input that the previous daemon was processing is lost"
        log.bug(what)
        handover.dropped.append(f"{what}, because of a bug")
    bus.transaction.commit()
    bus.enforce_rules()


def _flush(bus: Bus, client: Client) -> None:
    """Send what waits: a socket that has some room left is not reported as ready before the client reads more."""
    if client.open:
        bus.queues.flush(client)


def _restore(bus: Bus, handover: Handover, stored: Stored) -> Client | None:
    fd = stored.sock.fileno()
    try:
        return _admit_again(bus, handover, stored)
    except Exception:  # noqa: BLE001 - no client is worth the others
        log.bug("a client of the previous daemon could not be taken over")
        if fd in bus.clients:
            bus.registry.end(bus.clients[fd], "bug", BUG)
        handover.refuse(stored, BUG)
        return None


def _admit_again(bus: Bus, handover: Handover, stored: Stored) -> Client:
    head = stored.image.head
    if head["version"] != client_log_format.VERSION:  # it may lack some of this
        found = bus.identifier.identify(stored.sock)
        usual = {"program": found.program.decode("ascii"), "started": found.started, "dialect": "path"}
        head = {**usual, "since": time.time(), **head}
    peer = bus.identifier.restore(stored.sock, str(head["program"]).encode("ascii"), int(head["started"]))
    client = bus.admit(stored.sock, stored.number, peer, DIALECTS[str(head["dialect"])], bus.quota.reopen(peer.uid))
    client.since = float(head["since"])
    for what in dict.fromkeys(_apply(bus, client, stored.image)):
        handover.dropped.append(f"connection {stored.number}: {what}")
    bus.identities.resume_seq(client, stored.seq)
    handover.resume(client, stored)
    bus.queues.restore(client)
    if client.blocked_packet is not None:
        bus.backpressure.charge_packet(client, client.blocked_packet)
        bus.backpressure.keep_waiting(client, partial(bus.reader.process, client, client.blocked_packet))
        bus.backpressure.reconsider(client)
    return client


def _apply(bus: Bus, client: Client, image: client_log_format.ClientImage) -> Iterator[str]:
    """Apply records to a client, whatever it may do by now; yield what is not understood of them."""
    for one in image.records:
        try:
            understood = _apply_record(bus, client, one)
        except Exception:
            if not image.unknown:
                raise
            understood = False  # it builds on what this version does not know
        if not understood:
            yield f"a record of kind {one.kind}: {one.body[:64]!r}"


def _apply_record(bus: Bus, client: Client, one: client_log_format.Record) -> bool:
    """Apply a record to a client; return False for an unknown request."""
    kind, _, number, body = one
    if kind == client_log_format.SUBSCRIBED:
        bus.subscriptions.add(client, body, number)
    elif kind == client_log_format.UNSUBSCRIBED:
        bus.subscriptions.remove(client, [body] * number)
    elif kind == client_log_format.REQUESTED:
        return bus.control.repeat(client, body)
    elif kind == client_log_format.BLOCKED:
        client.blocked_packet = body
    elif kind == client_log_format.RESUMED:
        client.blocked_packet = None
    elif kind == client_log_format.COUNTS:
        numbers = client_log_format.read_counts(one)
        client.published, client.lost = int(numbers.get("published", 0)), int(numbers.get("lost", 0))
    else:
        client.lost += number if kind in (client_log_format.DROPPED, client_log_format.HEAD_DROPPED) else 0
        client.queue.apply_record(kind, number, body)
    return True
