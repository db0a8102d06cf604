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


def fault(name: str, what: str, module: str, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a plugin of a fault; ``what`` is empty for its second one."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS.setdefault(name, what)
        _PLUGINS.append((name, module, path, function))
        return function

    return register


class Like:
    """An object with some attributes of its own, and all others of another one."""

    def __init__(self, other: Any, **own: Any) -> None:
        self._other = other
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


@fault(
    *("stop_drains", "a stop reads a socket that outlives the process, faster than clients read"),
    *("daemon.daemon", "Daemon._read_remaining"),
)
def _read_remaining(real: Any, self: Any) -> None:
    passed = [segment.passed for segment in self.segments]
    for segment in self.segments:
        segment.passed = False
    real(self)
    for segment, before in zip(self.segments, passed, strict=True):
        segment.passed = before


@fault(
    *("heard_backward", "the time at which a source was last heard moves backward, when a datagram waited in a link"),
    *("core.tracking.dedup", "TrackerTable.judge_next"),
)
def _judge_next(real: Any, self: Any, source: Any, seq: int, now: float, from_link: bool = False) -> int:
    from bccnd.core.wire.verdicts import LAST_ACCEPTED

    verdict: int = real(self, source, seq, now, from_link)
    if verdict <= LAST_ACCEPTED:
        source.heard = now
    return verdict


@fault(
    *("frozen_cycle", "the record of a client that has gone stays in frozen memory, through a cycle"),
    *("handover.descriptor_store", "ClientRecord.close"),
)
def _close_record(real: Any, self: Any) -> None:
    kept = self.grown, self.failed
    real(self)
    self.grown, self.failed = kept


@fault("frozen_cycle", "", "handover.descriptor_store", "DescriptorStore.forget")
def _forget(real: Any, self: Any, client: Any) -> None:
    record = client.record
    real(self, client)
    if not client.open:
        client.record = record


@fault("queues_left_out", "the image has no queues", "bus.client_handover", "image")
def _image(real: Any, clients: Any) -> Iterator[Any]:
    from bccnd.core.formats.image_sections import BYTES

    for section in real(clients):
        section.columns |= {"frame": (BYTES, []), "gap": ("Q", [])}
        yield section


@fault("sources_left_out", "the image has no sources", "core.tracking.source_table", "SourceTable.oldest_first")
def _oldest_first(_real: Any, _self: Any) -> Iterator[Any]:
    return iter(())


@fault(
    *("requests_not_recorded", "what a client asks for later is not in its record"),
    *("handover.descriptor_store", "ClientRecord.append"),
)
def _append(_real: Any, _self: Any, _frame: bytes) -> None:
    pass


@fault(
    *("image_read_twice", "an image stays in the descriptor store once a daemon serves from it"),
    *("handover.descriptor_store", "DescriptorStore.discard_images"),
)
def _discard_images(real: Any, self: Any) -> None:
    images = list(self._images)
    self._images.clear()
    real(self)
    for fd in images:
        os.close(fd)


@fault(
    *("ceiling_not_raised", "numbers are used that the record of the host does not reserve"),
    *("core.sending.datagram_builder", "DatagramBuilder._reserve_from"),
)
def _reserve_from(real: Any, self: Any, seq: int) -> None:
    reserve, self._reserve = self._reserve, None
    real(self, seq)
    self._reserve = reserve


@fault(
    *("crash_not_told", "clients are not told that a crash may have lost messages for them"),
    *("bus.client_handover", "ClientRestorer.restore"),
)
def _restore(real: Any, self: Any) -> None:
    self._after_crash = False
    real(self)


@fault(
    *("own_delivered_again", "after a crash a host takes its own datagrams for those of another one"),
    *("daemon.daemon", "Daemon.begin"),
)
def _begin(real: Any, self: Any) -> None:
    # The numbers of crashes are reported elsewhere.
    crashes, self.crashes = self.crashes, 0
    real(self)
    self.crashes = crashes


@fault(
    *("interned_receivers", "the receivers of routes that have gone stay shared"),
    *("core.matching.routes", "Routes.__init__"),
)
def _make_routes(real: Any, self: Any, *arguments: Any, **options: Any) -> None:
    real(self, *arguments, **options)
    self._shared = {}


@fault(
    *("interface_not_watched", "a segment is deaf once its interface was deleted and made anew"),
    *("daemon.daemon", "watch_interfaces"),
)
def _watch_interfaces(_real: Any, *_arguments: Any) -> None:
    pass


@fault(
    *("child_waited_for", "an event of a child that was replaced in this round waits for the end of its successor"),
    *("net.process_supervisor", "ChildProcess._release"),
)
def _release(real: Any, self: Any) -> None:
    loop = self._loop

    def unwatch(fd: int) -> None:
        """Leave the events of a descriptor to a poller that still has them."""
        loop._handlers[fd] = None
        loop._unregistered.pop(fd, None)

    self._loop = Like(loop, unwatch=unwatch)
    real(self)
    self._loop = loop


@fault("child_waited_for", "", "net.process_supervisor", "_reap")
def _reap(_real: Any, pid: int) -> int:
    return os.waitpid(pid, 0)[1]


@fault(
    *("slow_copies", "copies under a slow rule hold back those of a fast one"),
    *("bus.incoming.publisher", "Publisher.send_due_copies"),
)
def _send_due_copies(_real: Any, self: Any) -> None:
    for datagram in self._repeater.due(time.monotonic()):
        self.send(datagram)
    due = self._repeater.next_due
    if due is not None and not self._timers:
        self._timers.append(due)
        self._loop.later(max(0.0, due - time.monotonic()), self._on_timer)


@fault(
    *("rate_wakes_all", "each token of a user's rate wakes all its waiting publishers"),
    *("bus.incoming.backpressure", "Backpressure.block_for_rate"),
)
def _block_for_rate(_real: Any, self: Any, client: Any, packet: bytes, retry: Any) -> None:
    self._queues.counters.held.add("rate")
    self.block(client, packet, retry)

    def again() -> None:
        if client.retry is not None and self._quota.publish(client.account, time.monotonic()):
            self._queues.counters.held.add("rate")
            self._loop.later(1 / self._quota.rate, again)
        elif client.retry is not None:
            self._unblock_all([client])

    self._loop.later(0.0, again)


@fault(
    *("watch_refused", "a descriptor that the kernel has no memory to watch ends a client, or the daemon"),
    *("net.loop", "Loop.watch"),
)
def _watch(real: Any, self: Any, fd: int, events: int, handler: Any) -> None:
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


@fault(
    *("report_of_others", "a report is believed about sources of another host"),
    *("bus.host_reports", "read_report"),
)
def _read_report(real: Any, host: str, payload: bytes) -> Any:
    return real(Anyone(host), payload)


@fault(
    *("outdated_for_good", "a new daemon with the pid of the one before is not believed while its clock is behind"),
    *("fleet.matrix", "FleetMatrix.update"),
)
def _update(real: Any, self: Any, host: str, src: bytes, seq: int, *rest: Any, **options: Any) -> Any:
    from bccnd.fleet.report_format import BadReport

    row = self.get(host)
    if row is not None and row.last[0] == src and seq <= row.last[1]:
        raise BadReport("outdated")
    return real(self, host, src, seq, *rest, **options)


@fault(
    *("reload_unsigned", "a reload that takes away the signing key fails when it is half applied"),
    *("daemon.daemon", "Daemon.reload"),
)
def _reload(real: Any, self: Any, loaded: Any) -> None:
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


@fault("reload_unsigned", "", "bus.host_reports", "HostReports._publish")
def _publish(_real: Any, self: Any) -> None:
    from bccnd import log

    try:
        self._send_report()
    except Exception:  # noqa: BLE001 - as the real one, which expects that there is no key
        log.bug("a report failed")


@fault(
    *("trace_of_gone", "a trace meets a client whose patterns are being removed, and ends its own client"),
    *("bus.requests.client_requests", "describe_receivers"),
)
def _describe_receivers(real: Any, routes: Any, clients: Any, chan: bytes) -> Any:
    return real(Like(routes, present=tuple), clients, chan)
