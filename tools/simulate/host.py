"""One simulated host: a real daemon with its units, started, stepped, stopped and killed by hand."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bccnd.bus.clients.client import Client as BusClient
from bccnd.config import load
from bccnd.daemon.daemon import Daemon
from bccnd.errors import StartError
from bccnd.handover.descriptor_store import is_stored
from bccnd.net.service_manager import ServiceManager
from bccnd.net.socket_activation import ActivatedSockets
from tools.simulate import edges, interposer
from tools.simulate.units import DescriptorStore, SocketUnits
from tools.simulate.violation import Violation

#: rounds of a loop without a step of time, beyond which it spins
SPINS: Final = 3000
#: pids of simulated daemons begin here, beyond those of this machine
_FIRST_PID: Final = 5_000_000


class Host:
    """A host named ``name`` with its files in ``folder``, whose segment is at ``port``."""

    def __init__(self, name: str, folder: Path, port: int, http_port: int, settings: dict[str, Any]) -> None:
        folder.mkdir()
        self.name = name
        self.port = port
        self.http_port = http_port
        self.folder = folder
        self.config = folder / "bccnd.yaml"
        self.path = folder / "bus"
        self.units = SocketUnits(self.path, port)
        self.store = DescriptorStore()
        self.settings = settings
        self.configure(settings)
        self.process = edges.Process(_FIRST_PID)
        self.starts = 0
        self.daemon: Daemon | None = None
        #: whether nothing runs it, as with SIGSTOP
        self.stalled = False
        #: whether it has no descriptor left
        self.out_of_descriptors = False
        self._epoll = -1
        self._spinning = 0
        #: at which call of the next step it is killed; 0: it is not
        self.kill_at = 0
        #: the pid of a client behind whose end it is killed; 0: of none
        self.kill_behind = 0
        #: messages that the last daemon held at its end: by pid of the client that they waited for, and packets of
        #: publishers that waited
        self.held: dict[int, int] = {}
        self.blocked = 0
        #: the former before the step in which it was killed; None for another end
        self.waited: dict[int, int] | None = None
        #: whether it has left nothing from which the next one could continue
        self.crashed = False
        #: why its last start was refused
        self.refused = ""

    def configure(self, settings: dict[str, Any]) -> None:
        """Write the configuration."""
        self.settings = settings
        fixed = {
            "host": self.name,
            "segments": [{"address": "127.255.255.255", "port": self.port, "name": "seg"}, *settings.get("more", [])],
            "bus": {**settings.get("bus", {}), "path": str(self.path), "mode": "0666"},
            "metrics": {**settings.get("metrics", {}), "listen": f"127.0.0.1:{self.http_port}"},
            # The model expects every datagram.
            "reports": {"interval": 0, **settings.get("reports", {})},
        }
        own = {key: value for key, value in settings.items() if key != "more"}
        self.config.write_text(json.dumps({**own, **fixed}))

    # -- its life

    @property
    def alive(self) -> bool:
        return self.daemon is not None

    @property
    def serving(self) -> Daemon:
        assert self.daemon is not None
        return self.daemon

    def start(self, *, kill_at: int = 0) -> bool:
        """Start a daemon; False if it has not begun."""
        assert self.daemon is None
        # A process that ends leaves no garbage; the daemons of this one have frozen what they have.
        gc.unfreeze()
        gc.collect()
        self.starts += 1
        self.process = edges.Process(_FIRST_PID + 1000 * self.starts + self.port % 1000)
        self.store.stopping = False
        self.waited = None
        before = _open_descriptors()
        with self._step(kill_at):
            passed = [*self.units.passed(), *self.store.passed()]
            sockets = ActivatedSockets(passed, service=True, is_stored=is_stored)
            manager = ServiceManager(self.store.notify)
            try:
                self.daemon = Daemon(load(str(self.config)), str(self.config), sockets, manager)
                self.daemon.begin()
            except StartError as error:
                self.refused = "" if interposer.dead() else str(error)
                del sockets, manager
        if self.daemon is None:
            # What the end of a process closes.
            gc.collect()
            for fd in _open_descriptors() - before - self.store.all():
                with contextlib.suppress(OSError):  # what closing one has freed may have closed another
                    os.close(fd)
            self.held, self.blocked = {}, 0
        self._after_step()
        self.store.fresh = self.store.fresh and not self.alive
        return self.alive

    def turn(self) -> None:
        """Let the daemon's loop go round once."""
        daemon = self.serving
        if self.kill_behind and self.client_of(self.kill_behind) is None:
            self.kill_at, self.kill_behind = 1, 0
        kill_at, self.kill_at = self.kill_at, 0
        self.waited = _waiting(daemon) if kill_at else None
        with self._step(kill_at):
            daemon.loop.soon(daemon.loop.stop)
            daemon.loop.run()
            if self.store.stopping and not interposer.dead():
                daemon.finish()
        self._epoll = interposer.polled_fd()
        if kill_at and not interposer.dead():
            self.kill_at = max(1, kill_at - int(interposer.calls()))
        self._after_step()

    @contextlib.contextmanager
    def _step(self, kill_at: int) -> Iterator[None]:
        """A step of the daemon, in the process that is its own and with the descriptors that it may have."""
        fault: BaseException | None = None
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with self.process.running():
            if self.out_of_descriptors:
                # What is open stays; a new descriptor would get this number.
                fd = os.open(os.devnull, os.O_RDONLY)
                os.close(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, (fd, limits[1]))
            interposer.arm(kill_at)
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - the daemon's, judged below
                fault = error
            if self.out_of_descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if blocked := interposer.blocked():
            what = {1: "epoll_wait", 2: "waitpid", 4: "waitid"}.get(blocked, "a call")
            raise Violation(f"{self.name}: the loop waits in {what}")
        if interposer.dead() or fault is None:
            return  # a killed daemon makes anything of calls that have no effect
        if isinstance(fault, KeyboardInterrupt):
            raise fault
        raise Violation(f"{self.name}: the daemon has ended by {fault!r} in {_place(fault)}") from fault

    def _after_step(self) -> None:
        """Bury a daemon that was killed or has stopped."""
        if interposer.dead():
            self._bury()
        elif self.store.stopping and self.daemon is not None:
            self._bury(kept=False)
        interposer.disarm()

    def _bury(self, *, kept: bool = True) -> None:
        """Close what a daemon has left open; after a kill without any effect outside (``kept``)."""
        daemon, self.daemon, self._epoll = self.daemon, None, -1
        if daemon is None:
            return
        clients = list(daemon.bus.clients.values())
        self.held = _waiting(daemon)
        self.blocked = sum(client.blocked_packet is not None for client in clients)
        if kept:
            interposer.stay_dead()
        with self.process.running():
            daemon.close()
            for client in clients:
                client.sock.close()
        interposer.disarm()

    def terminate(self) -> None:
        self.process.signal(signal.SIGTERM)

    def hang_up(self) -> None:
        self.process.signal(signal.SIGHUP)

    def kill_now(self) -> None:
        """Kill the daemon between two steps."""
        interposer.arm(0)
        self._bury()

    # -- what it is up to

    def is_ready(self, now: float) -> bool:
        """Whether its loop has something to do."""
        if self.daemon is None or self.stalled:
            return False
        due = self.next_timer
        return (due is not None and due <= now) or self.has_events()

    @property
    def next_timer(self) -> float | None:
        """When its next timer is due (seconds, monotonic)."""
        if self.daemon is None or self.stalled:
            return None
        timers = self.daemon.loop._timers
        return timers[0].when if timers else None

    def has_events(self) -> bool:
        """Whether one of its descriptors is ready."""
        return self._epoll < 0 or is_readable(self._epoll)

    def has_read_all(self) -> bool:
        """Whether no datagram waits in the segment's socket."""
        return not is_readable(self.units.segment.fileno())

    def count_round(self, moved: bool) -> None:
        """Raise a Violation for a loop that turns for ever without a step of time."""
        self._spinning = 0 if moved else self._spinning + 1
        if self._spinning > SPINS:
            raise Violation(f"{self.name}: the loop spins: {SPINS} rounds without a step of time")

    # -- what it knows

    def client_of(self, pid: int) -> BusClient | None:
        if self.daemon is None:
            return None
        return next((one for one in self.daemon.bus.clients.values() if one.peer.pid == pid), None)

    def close(self) -> None:
        if self.daemon is not None:
            self.kill_now()
        self.store.close()
        self.units.close()
        self.path.unlink(missing_ok=True)


def is_readable(fd: int, milliseconds: int = 0) -> bool:
    """Whether there is something to read, by the machine's own clock."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(milliseconds))


def _waiting(daemon: Daemon) -> dict[int, int]:
    """Return the messages that wait for each client, by pid."""
    return {client.peer.pid: sum(map(_messages, client.queue)) for client in daemon.bus.clients.values()}


def _messages(entry: bytes | int) -> int:
    """Return how many messages an entry of a queue stands for."""
    return entry if isinstance(entry, int) else entry.startswith(b"MSG")


def _open_descriptors() -> set[int]:
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return set(map(int, os.listdir(listing))) - {listing}
    finally:
        os.close(listing)


def _place(fault: BaseException) -> str:
    """Return where an exception was raised."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"
