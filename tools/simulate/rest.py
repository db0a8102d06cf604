"""What must hold once faults have passed: everything is accounted for, served as before, and given back."""

from __future__ import annotations

import gc
import os
from collections import Counter, deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from tools.simulate import interposer
from tools.simulate.fleet import REPEATS
from tools.simulate.host import Host
from tools.simulate.local_programs import LocalPrograms
from tools.simulate.operators import Operators
from tools.simulate.reporting import Reporting
from tools.simulate.violation import Violation
from tools.simulate.world import World

#: seconds for what waits to be sent, and until all that is kept for a while has expired
CALM: Final = 12.0
EMPTY: Final = 100.0
#: entries by which the tables of a daemon may differ from one rest to another
SLACK: Final = 400
#: objects of the package that may be garbage where memory is frozen
_GARBAGE: Final = 6
#: tables that fill up to a size of their own, whatever comes and goes: by class, attribute, or the kind of container
_BOUNDED: Final = (
    "Allowed._answers",
    "Index",
    "Deliveries",
    "Liveness.dead",
    "History._samples",
    "History._rises",
    "RecentLines._lines",
    "StatusPage._status",
    "LossBySource.by_src",
)
#: what does not belong to one daemon
_SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, type(os.environ))
_CONTAINERS: Final = (dict, list, set, tuple, frozenset, deque, bytearray)
#: seconds by which copies may be late
_LATE: Final = 0.1


class Rest:
    """Brings a fleet to rest and checks it."""

    def __init__(self, world: World, programs: LocalPrograms, operators: Operators) -> None:
        self._world = world
        self._programs = programs
        self._operators = operators
        self._reporting = Reporting(world, operators)
        self._base: dict[str, Counter[str]] = {}
        self._base_fds: dict[str, int] = {}
        #: calls that were made to fail before the last rest
        self._failed = 0

    def check(self) -> None:
        """Let everything come to rest, and check it; the clients leave."""
        world = self._world
        world.note("rest")
        interposer.fail(0, 0, 0)
        world.network.weather.loss = world.network.weather.copy = world.network.weather.delay = 0.0
        for host in world.hosts:
            host.stalled = host.out_of_descriptors = False
            host.store.stalled = host.store.refuses = False
            host.kill_at = host.kill_behind = 0
        for host in world.hosts:
            for client in list(world.clients[host.name]):
                client.reading = True
            world.serve_clients(host)
            for client in world.clients[host.name]:
                # The answer to the last request may be lost in a crash.
                if client.unconfirmed or not (client.settled or client.half_closed):
                    client.sync(change=not client.settled)
        world.run(CALM)
        world.resolve_unsure()
        self._check_accounts()
        self._check_repeats()
        self._check_work()
        self._check_service()
        for clients in list(world.clients.values()):
            for client in list(clients):
                world.remove(client)
        self._reporting.check()
        world.run(EMPTY)
        for host in world.hosts:
            self._check_given_back(host)
        self._check_process()
        for host in world.hosts:
            host.store.refused = 0
        world.crashed.clear()
        world.killed_starts.clear()
        world.clock_was_set = False
        self._failed = interposer.failed()
        world.overrun.clear()
        world.models.clear()
        world.broadcasts.clear()

    def _check_accounts(self) -> None:
        world = self._world
        for host in world.hosts:
            if not host.alive:
                raise Violation(f"{host.name} has not come up again")
            port = world.network.ports[host.name]
            if port.arrivals:
                raise Violation(f"{host.name} has not processed {len(port.arrivals)} datagrams")
            for client in world.clients[host.name]:
                if client.backed_up or not (client.settled or client.half_closed):
                    raise Violation(f"{client.name} is not served any more")
                queued = host.client_of(client.pid)
                if queued is None or queued.queue:
                    raise Violation(f"{client.name} reads, and yet something waits for it")
                if client.plain and client.ledger.gaps and not self._may_lose(host):
                    raise Violation(f"{client.name} has read all the time, and lost {client.ledger.gaps} messages")
                client.balance()

    def _may_lose(self, host: Host) -> bool:
        queue = self._world.settings["bus"]["queue"]["messages"]
        failed = interposer.failed() > self._failed
        return bool(queue < 1024 or failed or host.name in self._world.overrun)

    def _check_repeats(self) -> None:
        """Check the copies of what daemons have broadcast."""
        world = self._world
        rules = REPEATS if "repeat" in world.settings else ()
        for (name, src, seq), (datagram, times) in world.broadcasts.items():
            channel = datagram.chan
            rule = next((rule for rule in rules if channel.startswith(rule[0])), None)
            copies, spacing = (rule[1], rule[2]) if rule is not None else (1, 0.0)
            # A start that was killed may have sent what was due, and the next one does so again.
            if len(times) > copies + world.killed_starts[name]:
                raise Violation(f"{name} has broadcast {src!r} {seq} {len(times)} times")
            if times[0] < world.disturbed[name] + 1.0 or rule is None:
                continue
            for number, when in enumerate(times):
                if when > times[0] + number * spacing + _LATE:
                    late = when - times[0] - number * spacing
                    raise Violation(f"{name} has sent copy {number} of {channel!r} {late:.3f} s late")
            if len(times) < copies:
                raise Violation(f"{name} has broadcast {channel!r} {len(times)} times instead of {copies}")

    def _check_work(self) -> None:
        """Check that what a limit has delayed was tried again a few times only."""
        for host in self._world.hosts:
            counters = host.serving.bus.counters
            if counters.held["rate"] > counters.published + 100:
                raise Violation(
                    f"{host.name}: {counters.held['rate']} attempts for {counters.published} messages under a limit"
                )

    def _check_service(self) -> None:
        """Check that a new client is served, and that what it publishes arrives on all hosts."""
        world = self._world
        for host in world.hosts:
            if self._operators.fetch(host, "/healthz").strip() == "":
                raise Violation(f"{host.name}: /healthz does not answer")
        for host in world.hosts:
            for client in list(world.clients[host.name])[20:]:
                world.remove(client)
            client_of_host = self._programs.connect(host, sloppy=False)
            if client_of_host is None:
                raise Violation(f"{host.name} takes no client")
            client_of_host.subscribe(b"a/x/1")
        world.run(1.0)
        for host in world.hosts:
            world.clients[host.name][-1].publish(b"a/x/1")
            world.clients[host.name][-1].sync()
        world.run(5.0)
        for host in world.hosts:
            for client in world.clients[host.name]:
                if not (client.settled or client.half_closed) or client.ledger.waiting:
                    raise Violation(f"{client.name} is not served as before")
                client.balance()

    # -- what is given back

    def _check_given_back(self, host: Host) -> None:
        daemon = host.serving
        held = {
            "clients": len(daemon.bus.clients),
            "subscriptions": daemon.routes.subscriptions,
            "clients of users": sum(account.clients for account in daemon.bus.quota),
            "queued bytes": daemon.bus.queue_bytes,
            "missing": daemon.sources.missing,
        }
        wrong = {name: count for name, count in held.items() if count}
        if wrong:
            raise Violation(f"{host.name} still holds {wrong}")
        lost = daemon.sources.counted["lost"], sum(daemon.sources.losses.by_src.values())
        if lost[0] != lost[1]:
            raise Violation(f"{host.name} has counted {lost[0]} messages as lost, and {lost[1]} by source")
        sizes = measure(daemon)
        base = self._base.setdefault(host.name, sizes)
        grown = {
            name: (base[name], count)
            for name, count in sizes.items()
            if count > base[name] + SLACK and not {name, name.partition(".")[0]} & {*_BOUNDED}
        }
        for name, count in sizes.items():
            base[name] = max(base[name], min(count, base[name] + SLACK // 8))
        if grown:
            raise Violation(f"{host.name} holds more than at an earlier rest: {grown}")

    def _check_process(self) -> None:
        """Check that frozen memory holds no garbage, and that no descriptor is left."""
        world = self._world
        gc.collect()
        gc.unfreeze()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("bccnd"))
        gc.set_debug(0)
        gc.garbage.clear()
        if sum(found.values()) > _GARBAGE:
            raise Violation(f"frozen memory holds what has gone: {dict(found)}")
        open_now = len(os.listdir("/proc/self/fd"))
        stored = sum(len(host.store.all()) for host in world.hosts)
        children = 2 * sum(len(host.serving.gateway_processes) for host in world.hosts)
        base = self._base_fds.setdefault("all", open_now - stored - children)
        if open_now - stored - children > base + 2 * len(world.hosts):
            raise Violation(f"{open_now} descriptors are open, of which {base + stored + children} are needed")


def measure(root: Any) -> Counter[str]:
    """Count the entries of all containers that an object refers to, by the attribute that leads to them.

    A compiled object does not name its attributes: there it is the kind of container that tells them apart.
    """
    sizes: Counter[str] = Counter()
    seen = {id(root)}
    todo: list[tuple[Any, str]] = [(root, "")]
    while todo:
        one, path = todo.pop()
        if isinstance(one, _CONTAINERS):
            sizes[path] += len(one)
            following = [(other, path) for other in gc.get_referents(one)]
        elif hasattr(one, "__dict__"):
            following = [(value, f"{type(one).__name__}.{name}") for name, value in vars(one).items()]
        else:
            kind = type(one).__name__
            following = [
                (other, f"{kind}.{type(other).__name__}" if isinstance(other, _CONTAINERS) else kind)
                for other in gc.get_referents(one)
            ]
        for other, place in following:
            if id(other) not in seen and not isinstance(other, (*_SHARED, str, bytes, int, float)):
                seen.add(id(other))
                todo.append((other, place))
    return sizes
