"""Faults that were found by reading once, each as a small plugin that puts it back into the running package.

The simulation has to find each of them. A plugin replaces a function, mostly by one that calls the real one; so it runs
with the uncompiled core (`BCCND_CORE=python`). A function that is gone is an error: then say here how the fault would
come back today.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple


class KnownFault(NamedTuple):
    """A fault, and the function that puts it back."""

    name: str
    what: str
    install: Callable[[], None]


FAULTS: Final[dict[str, KnownFault]] = {}
#: what was replaced: owner, name, and the real one
_replaced: Final[list[tuple[Any, str, Any]]] = []


def fault(what: str) -> Callable[[Callable[[], None]], None]:
    def register(install: Callable[[], None]) -> None:
        FAULTS[install.__name__] = KnownFault(install.__name__, what, install)

    return register


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put ``make(real)`` in the place of a function of a class or module. Raises AttributeError if there is none."""
    real = getattr(owner, name)
    _replaced.append((owner, name, real))
    setattr(owner, name, make(real))


def undo() -> None:
    """Take all faults out again."""
    while _replaced:
        owner, name, real = _replaced.pop()
        setattr(owner, name, real)


@fault("a stop reads a socket that outlives the process, faster than clients read")
def stop_drains() -> None:
    from bccnd.daemon.daemon import Daemon

    def make(real: Any) -> Any:
        def read_remaining(self: Any) -> None:
            passed = [segment.passed for segment in self.segments]
            for segment in self.segments:
                segment.passed = False
            real(self)
            for segment, before in zip(self.segments, passed, strict=True):
                segment.passed = before

        return read_remaining

    replace(Daemon, "_read_remaining", make)


@fault("the time at which a source was last heard moves backward, when a datagram waited in a link")
def heard_backward() -> None:
    from bccnd.core.tracking.dedup import TrackerTable
    from bccnd.core.wire.verdicts import LAST_ACCEPTED

    def make(real: Any) -> Any:
        def judge_next(self: Any, source: Any, seq: int, now: float, from_link: bool = False) -> int:
            verdict: int = real(self, source, seq, now, from_link)
            if verdict <= LAST_ACCEPTED:
                source.heard = now
            return verdict

        return judge_next

    replace(TrackerTable, "judge_next", make)


@fault("the record of a client that has gone stays in frozen memory, through a cycle")
def frozen_cycle() -> None:
    from bccnd.handover.descriptor_store import ClientRecord, DescriptorStore

    def make_close(real: Any) -> Any:
        def close(self: Any) -> None:
            kept = self.grown, self.failed
            real(self)
            self.grown, self.failed = kept

        return close

    def make_forget(real: Any) -> Any:
        def forget(self: Any, client: Any) -> None:
            record = client.record
            real(self, client)
            if not client.open:
                client.record = record

        return forget

    replace(ClientRecord, "close", make_close)
    replace(DescriptorStore, "forget", make_forget)


@fault("the image has no queues")
def queues_left_out() -> None:
    from bccnd.bus import client_handover
    from bccnd.core.formats.image_sections import BYTES

    def make(real: Any) -> Any:
        def image(clients: Any) -> Iterator[Any]:
            for section in real(clients):
                section.columns |= {"frame": (BYTES, []), "gap": ("Q", [])}
                yield section

        return image

    replace(client_handover, "image", make)


@fault("the image has no sources")
def sources_left_out() -> None:
    from bccnd.core.tracking.source_table import SourceTable

    replace(SourceTable, "oldest_first", lambda _real: lambda _self: iter(()))


@fault("what a client asks for later is not in its record")
def requests_not_recorded() -> None:
    from bccnd.handover.descriptor_store import ClientRecord

    replace(ClientRecord, "append", lambda _real: lambda _self, _frame: None)


@fault("an image stays in the descriptor store once a daemon serves from it")
def image_read_twice() -> None:
    from bccnd.handover.descriptor_store import DescriptorStore

    def make(real: Any) -> Any:
        def discard_images(self: Any) -> None:
            images = list(self._images)
            self._images.clear()
            real(self)
            for fd in images:
                os.close(fd)

        return discard_images

    replace(DescriptorStore, "discard_images", make)


@fault("numbers are used that the record of the host does not reserve")
def ceiling_not_raised() -> None:
    from bccnd.core.sending.datagram_builder import DatagramBuilder

    def make(real: Any) -> Any:
        def reserve_from(self: Any, seq: int) -> None:
            reserve, self._reserve = self._reserve, None
            real(self, seq)
            self._reserve = reserve

        return reserve_from

    replace(DatagramBuilder, "_reserve_from", make)


@fault("clients are not told that a crash may have lost messages for them")
def crash_not_told() -> None:
    from bccnd.bus.client_handover import ClientRestorer

    def make(real: Any) -> Any:
        def restore(self: Any) -> None:
            self._after_crash = False
            real(self)

        return restore

    replace(ClientRestorer, "restore", make)


@fault("after a crash a host takes its own datagrams for those of another one")
def own_delivered_again() -> None:
    from bccnd.daemon.daemon import Daemon

    def make(real: Any) -> Any:
        def begin(self: Any) -> None:
            # The numbers of crashes are reported elsewhere.
            crashes, self.crashes = self.crashes, 0
            real(self)
            self.crashes = crashes

        return begin

    replace(Daemon, "begin", make)


@fault("the receivers of routes that have gone stay shared")
def interned_receivers() -> None:
    from bccnd.core.matching.routes import Routes

    def make(real: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            real(self, *arguments, **options)
            self._shared = {}

        return init

    replace(Routes, "__init__", make)


@fault("a segment is deaf once its interface was deleted and made anew")
def interface_not_watched() -> None:
    from bccnd.daemon import daemon

    replace(daemon, "watch_interfaces", lambda _real: lambda *_arguments: None)


@fault("an event of a child that was replaced in this round waits for the end of its successor")
def child_waited_for() -> None:
    from bccnd.net import process_supervisor

    class Forgetful:
        """A loop whose poller still has the events of what is unwatched."""

        def __init__(self, loop: Any) -> None:
            self._loop = loop

        def unwatch(self, fd: int) -> None:
            self._loop._handlers[fd] = None
            self._loop._unregistered.pop(fd, None)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._loop, name)

    def make(real: Any) -> Any:
        def release(self: Any) -> None:
            loop, self._loop = self._loop, Forgetful(self._loop)
            real(self)
            self._loop = loop

        return release

    replace(process_supervisor.ChildProcess, "_release", make)
    replace(process_supervisor, "_reap", lambda _real: lambda pid: os.waitpid(pid, 0)[1])


@fault("copies under a slow rule hold back those of a fast one")
def slow_copies() -> None:
    from bccnd.bus.incoming.publisher import Publisher

    def send_due_copies(self: Any) -> None:
        for datagram in self._repeater.due(time.monotonic()):
            self.send(datagram)
        due = self._repeater.next_due
        if due is not None and not self._timers:
            self._timers.append(due)
            self._loop.later(max(0.0, due - time.monotonic()), self._on_timer)

    replace(Publisher, "send_due_copies", lambda _real: send_due_copies)


@fault("each token of a user's rate wakes all its waiting publishers")
def rate_wakes_all() -> None:
    from bccnd.bus.incoming.backpressure import Backpressure

    def block_for_rate(self: Any, client: Any, packet: bytes, retry: Any) -> None:
        self._queues.counters.held.add("rate")
        self.block(client, packet, retry)

        def again() -> None:
            if client.retry is not None and self._quota.publish(client.account, time.monotonic()):
                self._queues.counters.held.add("rate")
                self._loop.later(1 / self._quota.limits.rate, again)
            elif client.retry is not None:
                self._unblock_all([client])

        self._loop.later(0.0, again)

    replace(Backpressure, "block_for_rate", lambda _real: block_for_rate)


@fault("a descriptor that the kernel has no memory to watch ends a client, or the daemon")
def watch_refused() -> None:
    from bccnd.net import loop

    def make(real: Any) -> Any:
        def watch(self: Any, fd: int, events: int, handler: Any) -> None:
            known: Any = loop.EXHAUSTED
            vars(loop)["EXHAUSTED"] = ()
            try:
                real(self, fd, events, handler)
            finally:
                vars(loop)["EXHAUSTED"] = known

        return watch

    replace(loop.Loop, "watch", make)


@fault("a report is believed about sources of another host")
def report_of_others() -> None:
    from bccnd.bus import host_reports

    class Anyone(str):
        """A host that owns every source."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

    replace(host_reports, "read_report", lambda real: lambda host, payload: real(Anyone(host), payload))


@fault("a new daemon with the pid of the one before is not believed while its clock is behind")
def outdated_for_good() -> None:
    from bccnd.fleet.matrix import FleetMatrix
    from bccnd.fleet.report_format import BadReport

    def make(real: Any) -> Any:
        def update(self: Any, host: str, src: bytes, seq: int, *rest: Any, **options: Any) -> Any:
            row = self.get(host)
            if row is not None and row.last[0] == src and seq <= row.last[1]:
                raise BadReport("outdated")
            return real(self, host, src, seq, *rest, **options)

        return update

    replace(FleetMatrix, "update", make)


@fault("a reload that takes away the signing key fails when it is half applied")
def reload_unsigned() -> None:
    from bccnd import log
    from bccnd.bus.host_reports import HostReports
    from bccnd.daemon.daemon import Daemon

    def make(real: Any) -> Any:
        def reload(self: Any, loaded: Any) -> None:
            # The last report is not sent before the key is gone, but after that, without the signature.
            set_interval = self.reports.set_interval
            calls: list[float] = []

            def later(interval: float) -> None:
                calls.append(interval)
                if interval or len(calls) > 1:
                    set_interval(interval)

            self.reports.set_interval = later
            try:
                real(self, loaded)
            finally:
                del self.reports.set_interval

        return reload

    def publish(self: Any) -> None:
        try:
            self._send_report()
        except Exception:  # noqa: BLE001 - as the real one, which expects that there is no key
            log.bug("a report failed")

    replace(Daemon, "reload", make)
    replace(HostReports, "_publish", lambda _real: publish)


@fault("a trace meets a client whose patterns are being removed, and ends its own client")
def trace_of_gone() -> None:
    from bccnd.bus.requests import client_requests

    class Blind:
        """Routes that take every receiver for one that is there."""

        def __init__(self, routes: Any) -> None:
            self._routes = routes

        def present(self, receivers: Any) -> tuple[Any, ...]:
            return tuple(receivers)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._routes, name)

    def make(real: Any) -> Any:
        return lambda routes, clients, chan: real(Blind(routes), clients, chan)

    replace(client_requests, "describe_receivers", make)
