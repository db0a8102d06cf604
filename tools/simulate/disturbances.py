"""Faults at random: what runs out, stalls, is refused or jumps, and passes again."""

from __future__ import annotations

import errno
from collections.abc import Callable

from tools.simulate import interposer
from tools.simulate.host import Host
from tools.simulate.operators import end_child
from tools.simulate.world import World


class Disturbances:
    """Faults of all hosts; each ends by itself after a while."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _begin(self, host: Host | None, what: str) -> None:
        world = self._world
        world.note(f"{host.name if host is not None else 'all'}: {what}")
        world.injected[what] += 1
        self._disturb(host)

    def _disturb(self, host: Host | None) -> None:
        for one in self._world.hosts if host is None else [host]:
            self._world.disturbed[one.name] = self._world.now

    def _end_after(self, seconds: float, host: Host | None, end: Callable[[], None]) -> None:
        def end_it() -> None:
            end()
            self._disturb(host)

        self._world.at(self._world.rng.random() * seconds, end_it)

    def _switch(self, host: Host, what: str, attribute: str, seconds: float) -> None:
        """Set an attribute of a host, or of its descriptor store, for a while."""
        self._begin(host, what)
        switched: object = host
        if attribute.startswith("store."):
            switched, attribute = host.store, attribute.removeprefix("store.")
        setattr(switched, attribute, True)
        self._end_after(seconds, host, lambda: setattr(switched, attribute, False))

    def no_descriptors(self, host: Host) -> None:
        self._switch(host, "no descriptors", "out_of_descriptors", 15)

    def stall(self, host: Host) -> None:
        self._switch(host, "not run", "stalled", 4)

    def manager_stalls(self, host: Host) -> None:
        self._switch(host, "manager stalls", "store.stalled", 5)
        host.store.refused += 1

    def store_refuses(self, host: Host) -> None:
        self._switch(host, "store refuses", "store.refuses", 5)

    def calls_fail(self) -> None:
        """Some calls of all hosts fail."""
        kind, error, what = self._world.rng.choice(
            [
                (interposer.CAST, errno.ENOBUFS, "no buffers for the segment"),
                (interposer.CAST, errno.ENETUNREACH, "no network"),
                (interposer.BUS, errno.ENOBUFS, "no buffers for clients"),
                (interposer.FILE, errno.ENOSPC, "no memory for files"),
                (interposer.MEMORY, errno.ENFILE, "no files in memory"),
                (interposer.RECEIVE, errno.ENETDOWN, "network down"),
                (interposer.ACCEPT, errno.ECONNABORTED, "connections aborted"),
                (interposer.SHORT, 0, "messages sent and received in parts"),
            ]
        )
        self._fail(kind, error, what)

    def watching_fails(self) -> None:
        """The kernel has no memory to watch more descriptors."""
        self._fail(interposer.WATCH, errno.ENOSPC, "no more descriptors watched")

    def _fail(self, kind: int, error: int, what: str) -> None:
        self._begin(None, what)
        if kind in (interposer.FILE, interposer.MEMORY):
            for host in self._world.hosts:
                host.store.refused += 1
        interposer.fail(kind, error, self._world.rng.choice([1, 3, 20]))
        self._end_after(2, None, lambda: interposer.fail(0, 0, 0))

    def clock_steps(self) -> None:
        """The wall clock of the machine is set, or jumps ahead as by a suspend."""
        if any(port.arrivals for port in self._world.network.ports.values()):
            return
        self._begin(None, "clock step")
        self._world.step_wall(self._world.rng.choice([-3600.0, -5.0, -0.5, 0.5, 5.0, 3600.0, 8 * 3600.0]))

    def child_dies(self, host: Host) -> None:
        for child in list(host.serving.gateway_processes.values()):
            if child.pid:
                self._begin(host, "child dies")
                end_child(child.pid)
