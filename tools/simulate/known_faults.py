"""Faults that were found by reading once, each as a small plugin that puts it back into the running package.

The simulation has to find each of them. A plugin is a function that takes the place of another one, which it gets as
``real``; so it runs with the uncompiled core (`BCCND_CORE=python`). A function that is gone is an error: then say here
how the fault would come back today.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

#: what each fault is, by name; and the plugins of each: a module, the path to a function in it, and what replaces it
FAULTS: Final[dict[str, str]] = {}
_PLUGINS: Final[list[tuple[str, str, str, Callable[..., Any]]]] = []


def install(fault: str) -> None:
    """Put a fault back. Raises AttributeError where a function is gone."""
    for name, module, path, function in _PLUGINS:
        if name == fault:
            *owners, attribute = path.split(".")
            owner: Any = import_module(f"bccnd.{module}")
            for one in owners:
                owner = getattr(owner, one)
            setattr(owner, attribute, _bound(function, getattr(owner, attribute)))


def _bound(function: Callable[..., Any], real: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: function(real, *arguments, **options)


def fault(module: str, path: str, of: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the plugin of a fault, which has its name; or as the second one ``of`` a fault."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS.setdefault(of or function.__name__, function.__doc__ or "")
        _PLUGINS.append((of or function.__name__, module, path, function))
        return function

    return register


class Like:
    """An object with some attributes of its own, and all others of another one."""

    def __init__(self, other: Any, **own: Any) -> None:
        self._other = other
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


@fault("daemon.daemon", "Daemon._read_remaining")
def stop_drains(real: Any, self: Any) -> None:
    """A stop reads a socket that outlives the process, faster than clients read."""
    passed = [segment.passed for segment in self.segments]
    for segment in self.segments:
        segment.passed = False
    real(self)
    for segment, before in zip(self.segments, passed, strict=True):
        segment.passed = before


@fault("core.tracking.dedup", "TrackerTable.judge_next")
def heard_backward(real: Any, self: Any, source: Any, seq: int, now: float, from_link: bool = False) -> int:
    """The time at which a source was last heard moves backward, when a datagram waited in a link."""
    from bccnd.core.wire.verdicts import LAST_ACCEPTED

    verdict: int = real(self, source, seq, now, from_link)
    if verdict <= LAST_ACCEPTED:
        source.heard = now
    return verdict


@fault("handover.descriptor_store", "ClientRecord.close")
def frozen_cycle(real: Any, self: Any) -> None:
    """The record of a client that has gone stays in frozen memory, through a cycle."""
    kept = self.grown, self.failed
    real(self)
    self.grown, self.failed = kept


@fault("handover.descriptor_store", "DescriptorStore.forget", of="frozen_cycle")
def _forget(real: Any, self: Any, client: Any) -> None:
    record = client.record
    real(self, client)
    if not client.open:
        client.record = record


@fault("bus.client_handover", "image")
def queues_left_out(real: Any, clients: Any) -> Iterator[Any]:
    """The image has no queues."""
    from bccnd.core.formats.image_sections import BYTES

    for section in real(clients):
        section.columns |= {"frame": (BYTES, []), "gap": ("Q", [])}
        yield section


@fault("core.tracking.source_table", "SourceTable.oldest_first")
def sources_left_out(_real: Any, _self: Any) -> Iterator[Any]:
    """The image has no sources."""
    return iter(())


@fault("handover.descriptor_store", "ClientRecord.append")
def requests_not_recorded(_real: Any, _self: Any, _frame: bytes) -> None:
    """What a client asks for later is not in its record."""


@fault("handover.descriptor_store", "DescriptorStore.discard_images")
def image_read_twice(real: Any, self: Any) -> None:
    """An image stays in the descriptor store once a daemon serves from it."""
    images = list(self._images)
    self._images.clear()
    real(self)
    for fd in images:
        os.close(fd)


@fault("core.sending.datagram_builder", "DatagramBuilder._reserve_from")
def ceiling_not_raised(real: Any, self: Any, seq: int) -> None:
    """Numbers are used that the record of the host does not reserve."""
    reserve, self._reserve = self._reserve, None
    real(self, seq)
    self._reserve = reserve


@fault("bus.client_handover", "ClientRestorer.restore")
def crash_not_told(real: Any, self: Any) -> None:
    """Clients are not told that a crash may have lost messages for them."""
    self._after_crash = False
    real(self)


@fault("daemon.daemon", "Daemon.begin")
def own_delivered_again(real: Any, self: Any) -> None:
    """After a crash a host takes its own datagrams for those of another one."""
    # The numbers of crashes are reported elsewhere.
    crashes, self.crashes = self.crashes, 0
    real(self)
    self.crashes = crashes


@fault("core.matching.routes", "Routes.__init__")
def interned_receivers(real: Any, self: Any, *arguments: Any, **options: Any) -> None:
    """The receivers of routes that have gone stay shared."""
    real(self, *arguments, **options)
    self._shared = {}


@fault("daemon.daemon", "watch_interfaces")
def interface_not_watched(_real: Any, *_arguments: Any) -> None:
    """A segment is deaf once its interface was deleted and made anew."""


@fault("net.process_supervisor", "ChildProcess._release")
def child_waited_for(real: Any, self: Any) -> None:
    """An event of a child that was replaced in this round waits for the end of its successor."""
    loop = self._loop

    def unwatch(fd: int) -> None:
        """Leave the events of a descriptor to a poller that still has them."""
        loop._handlers[fd] = None
        loop._unregistered.pop(fd, None)

    self._loop = Like(loop, unwatch=unwatch)
    real(self)
    self._loop = loop


@fault("net.process_supervisor", "_reap", of="child_waited_for")
def _reap(_real: Any, pid: int) -> int:
    return os.waitpid(pid, 0)[1]


@fault("bus.incoming.publisher", "Publisher.send_due_copies")
def slow_copies(_real: Any, self: Any) -> None:
    """Copies under a slow rule hold back those of a fast one."""
    for datagram in self._repeater.due(time.monotonic()):
        self.send(datagram)
    due = self._repeater.next_due
    if due is not None and not self._timers:
        self._timers.append(due)
        self._loop.later(max(0.0, due - time.monotonic()), self._on_timer)


@fault("bus.incoming.backpressure", "Backpressure.block_for_rate")
def rate_wakes_all(_real: Any, self: Any, client: Any, packet: bytes, retry: Any) -> None:
    """Each token of a user's rate wakes all its waiting publishers."""
    self._queues.counters.held.add("rate")
    self.block(client, packet, retry)

    def again() -> None:
        if client.retry is not None and self._quota.publish(client.account, time.monotonic()):
            self._queues.counters.held.add("rate")
            self._loop.later(1 / self._quota.rate, again)
        elif client.retry is not None:
            self._unblock_all([client])

    self._loop.later(0.0, again)


@fault("net.loop", "Loop.watch")
def watch_refused(real: Any, self: Any, fd: int, events: int, handler: Any) -> None:
    """A descriptor that the kernel has no memory to watch ends a client, or the daemon."""
    from bccnd.net import loop

    known: Any = loop.EXHAUSTED
    vars(loop)["EXHAUSTED"] = ()
    try:
        real(self, fd, events, handler)
    finally:
        vars(loop)["EXHAUSTED"] = known


class Anyone(str):
    """A host that owns every source."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


@fault("bus.host_reports", "read_report")
def report_of_others(real: Any, host: str, payload: bytes) -> Any:
    """A report is believed about sources of another host."""
    return real(Anyone(host), payload)


@fault("fleet.matrix", "FleetMatrix.update")
def outdated_for_good(real: Any, self: Any, host: str, src: bytes, seq: int, *rest: Any, **options: Any) -> Any:
    """A new daemon with the pid of the one before is not believed while its clock is behind."""
    from bccnd.fleet.report_format import BadReport

    row = self.get(host)
    if row is not None and row.last[0] == src and seq <= row.last[1]:
        raise BadReport("outdated")
    return real(self, host, src, seq, *rest, **options)


@fault("daemon.daemon", "Daemon.reload")
def reload_unsigned(real: Any, self: Any, loaded: Any) -> None:
    """A reload that takes away the signing key fails when it is half applied."""
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


@fault("bus.host_reports", "HostReports._publish", of="reload_unsigned")
def _publish(_real: Any, self: Any) -> None:
    from bccnd import log

    try:
        self._send_report()
    except Exception:  # noqa: BLE001 - as the real one, which expects that there is no key
        log.bug("a report failed")


@fault("bus.requests.client_requests", "describe_receivers")
def trace_of_gone(real: Any, routes: Any, clients: Any, chan: bytes) -> Any:
    """A trace meets a client whose patterns are being removed, and ends its own client."""
    return real(Like(routes, present=tuple), clients, chan)
