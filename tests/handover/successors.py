"""A bus that stops or crashes and starts again; only what systemd would keep outlives it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from bccnd.bus.client_acceptor import Entrance
from bccnd.bus.clients.access_rules import Rule, admit_all
from bccnd.bus.clients.client import Client
from bccnd.bus.server import Bus
from bccnd.config.schema import BusSettings
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.sending.redundancy import Repeater, RepeatRules
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import HeartbeatRules, Liveness
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire.identity_format import identity, tagged
from bccnd.daemon import takeover
from bccnd.handover.descriptor_store import DescriptorStore
from bccnd.net.listen import listen_abstract, listen_unix
from bccnd.net.loop import Loop
from tests.rules import BusRules, bus_limits, dedup_rules
from tests.support import FakeSegment, Hub, Peer, unhurried


class Store:
    """Keeps copies of descriptors by name, as systemd does: each open file once."""

    def __init__(self) -> None:
        self.kept: dict[str, list[int]] = {}
        #: whether `store` refuses
        self.full = False

    def store(self, name: str, *descriptors: int) -> bool:
        if self.full:
            return False
        held = self.kept.setdefault(name, [])
        held += [os.dup(fd) for fd in descriptors if not any(os.path.sameopenfile(fd, one) for one in held)]
        return True

    def forget(self, name: str) -> None:
        for fd in self.kept.pop(name, ()):
            os.close(fd)

    def passed(self) -> list[tuple[str, int]]:
        """Return what a new process gets: copies, in random order."""
        found = [(name, os.dup(fd)) for name, fds in self.kept.items() for fd in fds]
        random.Random(len(found)).shuffle(found)
        return found

    def close(self) -> None:
        for name in list(self.kept):
            self.forget(name)


class Site(Hub):
    """A hub whose daemon can be stopped, or crash, and be started again."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: BusSettings | None = None,
        dialect: str = "path",
        rules: Iterable[Rule] = (),
        others: Iterable[str] = (),
        monotonic: bool = False,
    ) -> None:
        self.path = str(folder / "bus.sock")
        self.segment = FakeSegment()
        self.sent = self.segment.datagrams
        self.limits = limits or bus_limits()
        self.rules = tuple(rules)
        self.dialect = DIALECTS[dialect]
        self.names = [dialect, *others]
        self.store = Store()
        self.monotonic = monotonic
        self.peers: list[Peer] = []
        self._listeners = [listen_unix(self.path, 0o600, None), *(listen_abstract() for _ in others)]
        self.addresses = [one.getsockname() for one in self._listeners]
        self.start()

    def start(self) -> None:
        """Start a daemon, as `bccnd.daemon` does."""
        self.stopped = False
        self.loop = Loop()
        self.kept = DescriptorStore(self.store, self.store.passed())
        self.left = left = takeover.read_left(self.kept, monotonic=self.monotonic)
        self.sources = TrackerTable(dedup_rules(max_sources=1000, monotonic=self.monotonic))
        self.anonymous = AnonymousDedup(self.sources.limits)
        self.liveness = Liveness(self.sources, HeartbeatRules(), time.monotonic())
        takeover.resume_sources(left, self.sources, self.anonymous, self.liveness)
        self.routes = Routes(self.dialect)
        self.repeater = Repeater(RepeatRules([], self.dialect), self.sources.limits)
        self.builder = DatagramBuilder(
            IntegrityChecker(), self.sources, first_seq=self.kept.ceiling, reserve=self.kept.raise_ceiling
        )
        self.ingress = Ingress(IntegrityChecker(), self.sources, self.anonymous, self.routes, host=b"relay01")
        entrances = []
        for listener, name in zip(self._listeners, self.names, strict=True):
            own = listener.dup()
            own.setblocking(False)
            entrances.append(Entrance(own, DIALECTS[name], admit_all))
        self.in_force = BusRules(self.limits, self.access(self.rules))
        self.bus = Bus(
            self.loop,
            entrances,
            self.routes,
            partial(identity, b"relay01"),
            tagged,
            self.in_force,
            builder=self.builder,
            segments=[self.segment],
            repeater=self.repeater,
            store=self.kept,
        )
        unhurried(self.bus)
        takeover.restore(left, self.kept, self.bus, self.sources, self.repeater, self.ingress)
        self.kept.discard_images()
        for peer in self.peers:
            if hasattr(peer, "client"):
                peer.client = self.by_number(peer.client.number) or peer.client

    def _end(self) -> None:
        """Close the descriptors of the daemon, as the kernel does."""
        if not self.stopped:
            self.bus.acceptor.stop()
        for client in list(self.bus.clients.values()):
            client.sock.close()  # before the loop makes its last calls, which a crash would not make
        self.loop.close()
        self.bus.acceptor.identifier.close()
        self.kept.close()

    def stop(self) -> None:
        """End the daemon as SIGTERM does."""
        self.bus.acceptor.stop()
        self.stopped = True
        self.bus.finish(time.monotonic() + 0.05)
        self.bus.close()
        parts = self.sources, self.anonymous, self.liveness, self.repeater, self.ingress
        assert self.kept.write_image(takeover.image(self.bus, *parts, [])) is not self.store.full
        self._end()

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        """End the daemon as SIGKILL does, and start another one."""
        self._end()
        self.start()

    def by_number(self, number: int) -> Client | None:
        return next((one for one in self.bus.clients.values() if one.number == number), None)

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        with suppress(OSError):
            self._end()
        for sock in self._listeners:
            sock.close()
        self.store.close()
