"""The gateway ``broker``: connects UDP publishers and TCP subscribers with each other and with the bus.

A publication goes to subscribers unchanged, and to the bus as text; a message of the bus goes to subscribers as text.
Nothing waits for a subscriber, a publisher, the daemon or the disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from bccnd import log
from bccnd.client.event_queues import Refusal
from bccnd.client.message import Message, to_bytes
from bccnd.config import BrokerSettings
from bccnd.errors import BusError, StartError
from bccnd.gateways import base
from bccnd.gateways.broker.bus_client import BusClient
from bccnd.gateways.broker.codec import MAX_PUBLICATION, STRING, read_publication
from bccnd.gateways.broker.session_store import SessionStore, default_path
from bccnd.gateways.broker.subscriber_server import SubscriberServer, listen
from bccnd.gateways.broker.topics import channel_of, topic_of
from bccnd.gateways.status import GatewayStatus

#: publications read before anything else has its turn
_TURN: Final = 64
#: receive buffer for publications; the kernel grants what net.core.rmem_max allows
_RECEIVE_BUFFER: Final = 4 << 20
#: SO_MEMINFO of <asm-generic/socket.h>: nine numbers, of which the last one is of datagrams dropped
_SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("=9I")
#: seconds from a subscriber's coming or going to the next report, so that a crowd makes one
_SOON: Final = 0.1
#: descriptors that subscribers cannot take: for the bus, the database, the log
_RESERVED: Final = 32
#: refusals of the daemon that are usual, and how they are counted
_REFUSED: Final = {
    "too_long": "oversize",
    "not_permitted": "filtered",
    "send_failed": "filtered",
    **{name: name for name in ("too_many_subscriptions", "too_many_wildcards")},
}
#: drops that are logged by their growth; others are logged one by one, or are usual
_LOGGED: Final = (
    *("queue_full", "bus_full", "not_connected", "filtered", "oversize", "socket_drops", "id_evicted", "malformed"),
    *("no_topic", "too_many_subscriptions", "too_many_wildcards"),
)


@dataclass
class BrokerGateway:
    """A relative ``state`` is in ``folder``. ``patience`` and ``silence`` are as in `SubscriberServer` and `listen`; a
    host that answers but takes nothing is silent to the kernel, so ``silence`` is longer. ``takeover``: seconds that
    the former gateway may take to end."""

    settings: BrokerSettings
    bus_path: str
    folder: str
    patience: float = 30.0
    silence: float = 45.0
    takeover: float = base.TAKEOVER
    status: GatewayStatus = field(default_factory=lambda: GatewayStatus("broker"))

    async def run(self, stop: asyncio.Event, supervisor: base.Supervisor | None = None) -> None:
        """As `Gateway.run`."""
        base.handle_loop_errors(self.status)
        status, local = self.status, not self.settings.broadcast
        on_gap = partial(status.drop, "queue_full")
        try:
            self._bus = BusClient(self.bus_path, self._on_messages, self._on_refusal, on_gap, status.drop, local=local)
        except BusError as error:
            raise StartError(error.reason, error.detail, "set bus.path to the daemon's socket") from error
        self._server = SubscriberServer(self.settings, self._bus, status, self.patience)
        self._udp: socket.socket | None = None
        effect = "until then publishers reach subscribers, but not the bus"
        remedy = "start it (systemctl start bccnd), or check whether this user may connect"
        self._away = base.AwayReporter("broker", effect, remedy)
        async with base.Tasks(stop) as self._tasks, AsyncExitStack() as stack:
            stack.callback(base.log_drops, status, _LOGGED)
            await self._open(stack, lambda what: base.wait_to_listen(what, self.takeover, stop, supervisor))
            if supervisor is not None:
                supervisor.ready("serving")
            await base.run_every(min(base.REPORT, self.settings.hello), stop, self._check)

    async def _open(
        self, stack: AsyncExitStack, wait: Callable[[Callable[[], socket.socket]], Awaitable[socket.socket]]
    ) -> None:
        """Listen, load what is stored and connect to the bus; ``stack`` closes that in the opposite order."""
        settings, server, where = self.settings, self._server, []
        if settings.tcp is not None:
            # Closed last: the next gateway, which waits for the address, reads what this one has stored.
            tcp = stack.enter_context(await wait(partial(listen, socket.SOCK_STREAM, settings.tcp, self.silence)))
            path = settings.state and os.path.join(self.folder, settings.state)
            store = SessionStore(path or default_path(settings.tcp, os.environ), server.sessions)
            stack.push_async_callback(store.close)
            self._start(stack, store.write_changes())
            if trouble := store.load():
                self.status.drop("state_dropped")
                text = f"earlier subscriptions are lost: {trouble}"
                remedy = "subscribers have to subscribe again"
                log.event("state_dropped", text, remedy=remedy, reason="unreadable", drop="state_dropped")
            stack.callback(server.close)
            descriptors = base.raise_descriptor_limit(settings.max_connections + _RESERVED)
            self._start(stack, server.accept(tcp, min(settings.max_connections, max(1, descriptors - _RESERVED))))
            where.append(f"subscribers at {base.format_address(settings.tcp)}")
        if settings.udp is not None:
            udp = await wait(partial(listen, socket.SOCK_DGRAM, settings.udp, self.silence))
            self._udp = stack.enter_context(udp)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            asyncio.get_running_loop().add_reader(udp, self._on_publications, udp)
            stack.callback(asyncio.get_running_loop().remove_reader, udp)
            stack.callback(self._count_kernel_drops)
            where.append(f"publishers at {base.format_address(settings.udp)}")
            if settings.broadcasts_for_strangers:
                text = f"any program that reaches {where[-1]} can make this host broadcast with its key"
                remedy = "listen at 127.0.0.1, or accept only trusted hosts there (docs/broker.md)"
                log.event("doubtful_setting", text, remedy=remedy, setting="gateways.broker.broadcast_strangers")
        stack.callback(self._bus.close)
        self._bus.start()
        self._start(stack, self._report_changes())
        log.event("gateway_ready", f"the broker serves {' and '.join(where)}", gateway="broker")

    def _start(self, stack: AsyncExitStack, work: Coroutine[None, None, None]) -> None:
        stack.callback(self._tasks.start(work).cancel)

    def _on_publications(self, udp: socket.socket) -> None:
        for _ in range(_TURN):
            try:
                datagram, address = udp.recvfrom(MAX_PUBLICATION + 1)
            except BlockingIOError:
                break
            except OSError:  # an error of another datagram; the next one may be fine
                continue
            self._on_publication(datagram, base.format_address(address))
        self._server.flush()

    def _on_publication(self, datagram: bytes, address: str) -> None:
        status = self.status
        status.received += 1
        status.received_bytes += len(datagram)
        if (publication := read_publication(datagram)) is None:
            status.drop("oversize" if len(datagram) > MAX_PUBLICATION else "malformed")
        elif not publication.topic:
            status.drop("no_topic")
        else:
            chan = channel_of(publication.topic)
            if reason := self._bus.publish(chan, publication.value):
                status.drop(reason)
            self._server.deliver(chan, address, *publication[:3])

    def _count_kernel_drops(self) -> None:
        if self._udp is not None:
            info = self._udp.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
            if drops := _MEMINFO.unpack(info)[-1]:
                self.status.dropped["socket_drops"] = drops

    def _on_messages(self, messages: list[Message]) -> None:
        for one in messages:
            chan = to_bytes(one.chan)
            if chan.startswith(b"!"):  # to all, to one program, or of the bus itself: no topic
                continue
            if (topic := topic_of(chan)) is None:
                self.status.drop("no_topic")
            else:
                peer = "127.0.0.1:0" if one.peer == "local" else one.peer
                self._server.deliver(channel_of(topic), peer, topic, STRING, one.payload)
        self._server.flush()

    def _on_refusal(self, refusal: Refusal) -> None:
        reason = _REFUSED.get(refusal.reason, "filtered" if refusal.key else "")
        if reason:
            self.status.drop(reason)
        if refusal.key and refusal.reason not in _REFUSED:
            text = f"broker: the daemon has refused '{refusal.key}' ({refusal.reason})"
            remedy = "let this user publish, subscribe and report (access: link), with a daemon of the same version"
            fields: dict[str, Any] = {"gateway": "broker", "reason": reason, "drop": reason, "count": 1}
            log.event("gateway_dropped", text, about=refusal, remedy=remedy, **fields)

    def _check(self) -> None:
        self._server.check(time.monotonic())
        self._away.report(self._bus.session)
        self._count_kernel_drops()
        base.log_drops(self.status, _LOGGED)
        self._report()

    async def _report_changes(self) -> None:
        """Report soon after subscribers have come or gone."""
        while await self._server.changed.wait():
            await asyncio.sleep(_SOON)
            self._server.changed.clear()
            self._report()

    def _report(self) -> None:
        self._server.update_status()
        self._bus.send_report(self.status.report())
