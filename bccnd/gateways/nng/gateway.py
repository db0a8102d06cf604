"""Carries datagrams between the daemon and links. Nothing blocks: what cannot be taken is dropped and counted."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from functools import partial
from typing import Final

from bccnd import log
from bccnd.boot_clock import now
from bccnd.config import NngSettings
from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import MAX_UDP
from bccnd.drop_catalog.drops import GATEWAY_REASONS
from bccnd.gateways import base
from bccnd.gateways.frame_connection import FrameConnection
from bccnd.gateways.nng.connection import InputAge, LinkConnection
from bccnd.gateways.nng.endpoints import MAX_GREETING, Endpoints
from bccnd.gateways.nng.filter import Filter
from bccnd.gateways.nng.tls import Contexts
from bccnd.gateways.status import GatewayStatus

#: messages that may wait for the daemon, and those that it may queue for this gateway
_ROOM, _BUS_ROOM = 8192, 65_536
#: seconds between checks of the links, and until a refused request is repeated
_CHECK, _AGAIN = 0.25, 5.0
#: the start of messages for links, up to what `frames.read_forwarded` takes apart
_PASSED: Final = frames.message(frames.LINK, b"")
#: what filters keep back is as it should be; other refusals are logged for each peer, and bugs with their traceback
_LOGGED: Final = [one for one in GATEWAY_REASONS if one not in ("filtered", "nameless", "too_many_peers", "bug")]
_SAFE: Final = ("tcp://127.", "tcp://[::1]:", "tcp://localhost:", "tls", "ipc", "abstract")


class NngGateway:
    """``bus`` is the daemon's socket; ``folder`` is that of relative file names; messages that may be older than
    ``horizon`` seconds are dropped. Raises StartError for certificates that cannot be used."""

    def __init__(self, settings: NngSettings, bus: str, *, folder: str, horizon: float) -> None:
        self._settings, self._bus, self._horizon = settings, bus, horizon
        self._contexts = None if settings.tls is None else Contexts(settings.tls, folder)
        self._out = Filter(settings.send, nameless=settings.nameless)
        self._in = Filter(settings.receive, nameless=settings.nameless)
        self.status = GatewayStatus("nng")
        self._links: dict[int, LinkConnection] = {}
        #: these begin anywhere, as the daemon may still have messages of a gateway before this one
        self._numbers = itertools.count(1 + int.from_bytes(os.urandom(3), "big"))
        self._from_daemon = InputAge(horizon / 4, _BUS_ROOM)
        effect = "links stay, but carry no messages until it is back"
        self._away = base.AwayReporter("nng", effect, "systemctl status bccnd")
        self._refused_at = self._reported = 0.0

    async def run(self, stop: asyncio.Event, supervisor: base.Supervisor | None = None) -> None:
        """As `Gateway.run`."""
        settings, self._loop = self._settings, asyncio.get_running_loop()
        base.handle_loop_errors(self.status)
        base.raise_descriptor_limit(settings.max_peers + len(settings.dial) + MAX_GREETING + 64)
        self._line = FrameConnection(
            self._bus,
            _ROOM,
            on_frames=self._on_frames,
            on_emptied=lambda: self._from_daemon.mark_empty(now()),
            on_up=self._on_up,
        )
        async with base.Tasks(stop) as tasks:
            try:
                endpoints = Endpoints(self, self._contexts, tasks, room=settings.queue, horizon=self._horizon)
                await self._open(endpoints, stop, supervisor)
                await base.run_every(_CHECK, stop, self._check)
            finally:
                for link in list(self._links.values()):
                    link.flush()
                    self.status.drop("not_connected", len(link.queue))
                self.status.drop("not_connected", len(self._line.waiting))
                self._line.close()
                base.log_drops(self.status, _LOGGED)

    async def _open(self, endpoints: Endpoints, stop: asyncio.Event, supervisor: base.Supervisor | None) -> None:
        """Listen, dial, and connect to the daemon. Raises StartError."""
        settings = self._settings
        for url in settings.listen:
            await base.wait_to_listen(partial(endpoints.listen, url), base.TAKEOVER, stop, supervisor)
        for url in settings.dial:
            endpoints.dial(url)
        for url in (*settings.listen, *settings.dial):
            if not url.startswith(_SAFE):
                remedy = "use tls+tcp with certificates, or accept only trusted hosts there (docs/links.md)"
                text = f"every program that reaches {url} can read and send everything that the links carry"
                log.event("doubtful_setting", text, remedy=remedy, setting="gateways.nng")
        listens, dials = (", ".join(urls) or "nothing" for urls in (settings.listen, settings.dial))
        log.event("gateway_ready", f"nng: listens at {listens}, dials {dials}", gateway="nng")
        if supervisor is not None:
            supervisor.ready("serving")
        self._line.start()

    # -- links

    def on_open(self, link: LinkConnection) -> None:
        if link.accepted and sum(one.accepted for one in self._links.values()) >= self._settings.max_peers:
            link.close("too_many_peers")
            return
        link.number, link.report.since = next(self._numbers), time.time()
        self._links[link.number] = link
        self.status.connects += 1
        how = f"{'has connected to' if link.accepted else 'was reached at'} {link.report.name}"
        base.log_peer("peer_connected", "nng", link.report.peer, how)
        self._subscribe()

    def on_closed(self, link: LinkConnection, reason: str, detail: str) -> None:
        known = self._links.pop(link.number, None)
        if reason:
            self.status.drop(reason)
        if known is not None:
            what = f"was ended: {detail}" if reason else f"was disconnected from {link.report.name}"
            base.log_peer("peer_ended" if reason else "peer_gone", "nng", link.report.peer, what, reason)
            self.status.drop("queue_full" if reason == "slow" else "not_connected", len(link.queue))
            self._subscribe()
        elif reason not in ("", "no_id"):
            what = f"was refused at {link.report.name} {detail}"
            base.log_peer("peer_refused", "nng", link.report.peer, what, reason)

    def on_messages(self, link: LinkConnection, messages: list[bytes], age: float) -> None:
        status, check, send = self.status, self._in.check, self._line.send
        given = self._loop.time() - age
        head = frames.arrived("nng", link.number, time.time_ns() - int(age * 1e9), link.report.peer, b"")
        status.received += len(messages)
        status.received_bytes += sum(map(len, messages))
        for datagram in messages:
            if reason := "oversize" if len(datagram) > MAX_UDP else check(datagram):
                status.drop(reason)
            elif not send(head + datagram, given):
                status.drop("bus_full" if self._line.up else "not_connected")

    def _subscribe(self) -> None:
        """Request what is needed: what links bring only where it can go on over another."""
        self._reported = 0.0
        wanted = frames.LINK if len(self._links) > 1 else frames.LINK_HERE if self._links else b""
        for pattern in (frames.LINK, frames.LINK_HERE):
            (self._line.subscribe if pattern == wanted else self._line.unsubscribe)(pattern)

    # -- the daemon

    def _on_frames(self, packet: list[bytes]) -> None:
        moment, links = now(), list(self._links.values())
        late = self._from_daemon.age() > self._horizon
        self._from_daemon.add(len(packet), moment)
        for one in packet:
            if not one.startswith(_PASSED):
                self._on_control(one)
                continue
            number, datagram = frames.read_forwarded(one[len(_PASSED) :])
            others = [link for link in links if link.number != number]
            if others and (reason := "late" if late else self._out.check(datagram)):
                self.status.drop(reason)
            else:
                for link in others:
                    link.put(datagram, moment)
        for link in links:
            link.flush()

    def _on_control(self, packet: bytes) -> None:
        verb, key, payload = frames.read(packet)
        if verb == frames.CMSG and key == frames.GAP and payload.isdigit():
            self.status.drop("slow", int(payload))
        elif verb == frames.CMSG and key == frames.ERROR and frames.LINK in payload:
            if not self._refused_at:
                reason = payload.decode("ascii", "replace")
                text = f"the daemon at {self._bus} does not give this gateway the datagrams ({reason})"
                remedy = "run this as root or in the daemon's group, or set access: [{user: NAME, link: true}]"
                log.event("gateway_refused", text, about="nng", remedy=remedy, gateway="nng", reason="not_permitted")
            self._line.refused(payload.partition(b" ")[2])
            self._refused_at = self._loop.time()

    def _on_up(self) -> None:
        self._from_daemon.mark_empty(now())
        self._refused_at = self._reported = 0.0

    def _check(self) -> None:
        moment = self._loop.time()
        self._line.read()  # that there is nothing, here and below, bounds the age of what comes later
        if not self._line.up:
            self.status.drop("not_connected", self._line.forget(moment - self._horizon))
        for link in list(self._links.values()):
            link.read()
            queued, sending = link.delay()
            if queued > self._horizon / 4 or sending > self._horizon / 2:
                link.close("slow", f"it is {queued + sending:.1f} s behind, and its waiting messages are dropped")
        if moment - self._reported >= base.REPORT - _CHECK / 2:
            self._reported = moment
            self.status.peers = [link.report for link in self._links.values()]
            self._line.send_report(self.status.report())
            base.log_drops(self.status, _LOGGED)
            if self._refused_at and moment - self._refused_at > _AGAIN:
                self._line.again()
        self._away.report(self._line.session)
