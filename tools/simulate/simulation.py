"""One run: a fleet drawn from a seed, episodes in which some kinds of events happen often, and a rest after each."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tools.simulate import fleet, interfaces
from tools.simulate.clients import Client
from tools.simulate.disturbances import Disturbances
from tools.simulate.host import Host
from tools.simulate.interfaces import Interface
from tools.simulate.local_programs import LocalPrograms
from tools.simulate.network import Weather
from tools.simulate.observers import Observer
from tools.simulate.operators import Operators
from tools.simulate.rest import Rest
from tools.simulate.senders import Sender, draw_sender
from tools.simulate.violation import Violation
from tools.simulate.world import World

#: seconds of an episode, before the rest
EPISODE: Final = 120.0
#: events after which a fleet ends; an episode has a quarter of them at most
MOST_EVENTS: Final = 24_000
FIRST_PORT: Final = 20_000


@dataclass
class Account:
    """What a run has done."""

    seed: int
    simulated: float = 0.0
    events: int = 0
    injected: int = 0
    digest: str = ""
    fault: str = ""
    history: tuple[str, ...] = ()


class Act(NamedTuple):
    """What happens at random: how often, what is done, and what picks a host, client or sender that it is done to."""

    weight: float
    do: Callable[..., object]
    pick: Callable[[], object] | None = None


class Simulation:
    """The run of a seed; `go` ends it after some simulated seconds, or at a time of the machine's clock."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._rng = random.Random(seed)
        settings = fleet.draw_settings(self._rng, folder)
        self.world = World(self._rng.randrange(1 << 62), folder, self._rng.choice([1, 2, 2, 3]), settings, FIRST_PORT)
        self.senders: list[Sender] = []
        self.programs = LocalPrograms(self.world, self.senders)
        self.operators = Operators(self.world)
        self.disturbances = Disturbances(self.world)
        self._neighbour: Sender | None = None
        self.rest = Rest(self.world, self.programs, self.operators)
        self.interface: Interface | None = None
        if interfaces.is_possible() and self._rng.random() < 0.4:
            host = self.world.hosts[0]
            self.interface = Interface(self.world, host)
            host.configure({**host.settings, "more": [interfaces.settings()]})

    def go(self, seconds: float, over: Callable[[], bool]) -> None:
        """Run episodes until so many seconds have passed, or it is ``over``."""
        world = self.world
        for host in world.hosts:
            self.operators.start(host)
        world.run(1.0)
        self.rest.check()  # the base line
        end = world.now + seconds
        while world.now < end and world.events < MOST_EVENTS and not over():
            self._draw_episode()
            stop, most = world.now + EPISODE, world.events + MOST_EVENTS // 4
            while world.now < stop and world.events < most and not over():
                self._act()
                world.run(self._rng.expovariate(self._pace))
            if self.interface is not None:
                self.interface.make()
            self.rest.check()

    def _draw_episode(self) -> None:
        """Draw what happens often in the next episode, and what never."""
        rng, world = self._rng, self.world
        world.network.weather = Weather(
            loss=rng.choice([0.0, 0.0, 0.05, 0.3]), copy=rng.choice([0.0, 0.1]), delay=rng.choice([0.0, 0.001, 0.2])
        )
        programs, operators, disturbances = self.programs, self.operators, self.disturbances
        programs.only_literal = rng.random() < 0.3
        programs.sloppy = rng.choice([0.0, 0.3, 0.8])
        self._pace = rng.choice([1.0, 5.0, 20.0])
        self.senders[:] = [draw_sender(world, rng) for _ in range(rng.randrange(1, 6))]
        senders, clients = lambda: rng.choice(self.senders), programs.any_client
        settled = partial(programs.any_client, settled=True)
        hosts, busy_hosts = world.any_host, lambda: world.any_host(descriptors=False)
        always: list[Act] = [
            Act(10, self._send, senders),
            Act(8, programs.publish, clients),
            Act(4, programs.connect, hosts),
            Act(3, programs.disconnect, clients),
            Act(2, programs.subscribe, clients),
            Act(1, programs.unsubscribe, clients),
        ]
        sometimes: list[Act] = [
            Act(2, programs.stall, clients),
            Act(1, programs.half_close, clients),
            Act(1, programs.send_garbage, clients),
            Act(2, programs.ask, clients),
            Act(1, programs.leave_while_traced, settled),
            Act(1, programs.tap, hosts),
            Act(1, programs.flood, hosts),
            Act(3, programs.bring, hosts),
            Act(2, self._burst, senders),
            Act(0.7, operators.stop, hosts),
            Act(2, self._stop_with_backlog, hosts),
            Act(0.7, self._kill, hosts),
            Act(0.5, self._kill_behind_client, settled),
            Act(1, operators.reload, hosts),
            Act(1, operators.replace_child, hosts),
            Act(0.5, operators.look, hosts),
            Act(1, disturbances.stall, busy_hosts),
            Act(0.5, self._clock_steps),
            Act(0.5, disturbances.child_dies, busy_hosts),
        ]
        # These excuse losses: some episodes have none of them.
        if rng.random() < 0.5:
            sometimes += [
                Act(0.5, disturbances.no_descriptors, busy_hosts),
                Act(1, disturbances.calls_fail),
                Act(2, self._watching_fails, hosts),
                Act(0.5, disturbances.manager_stalls, busy_hosts),
                Act(0.5, disturbances.store_refuses, busy_hosts),
            ]
        if self.interface is not None:
            always.append(Act(2, self._send_on_interface))
            sometimes.append(Act(0.5, self.interface.delete))
        share = rng.choice([0.15, 0.3, 0.6])
        chosen = [act._replace(weight=act.weight * rng.choice([1, 3])) for act in sometimes if rng.random() < share]
        self._acts = always + chosen
        world.note("an episode with " + " ".join(act.do.__name__ for act in chosen))

    def _act(self) -> None:
        self.world.events += 1
        (act,) = self._rng.choices(self._acts, [act.weight for act in self._acts])
        if act.pick is None:
            act.do()
        elif (picked := act.pick()) is not None:
            act.do(picked)
        self.world.settle()

    def _send(self, sender: Sender) -> None:
        self.world.note(f"{sender.src.decode()} {sender.act()}")

    def _send_on_interface(self) -> None:
        """A sender that only the interface reaches sends its next message there."""
        assert self.interface is not None
        if self._neighbour is None:
            self._neighbour = Sender(self.world, 99)
        (datagram,) = self._neighbour.made(1)
        if self.interface.send(datagram):
            self.world.note(f"{datagram.token!r} on the interface")

    def _kill(self, host: Host) -> None:
        """A daemon is killed, often while it broadcasts what one of its clients publishes."""
        self.operators.kill(host)
        clients = [client for client in self.world.clients[host.name] if not isinstance(client, Observer)]
        if clients and self._rng.random() < 0.5:
            self.programs.publish(self._rng.choice(clients))

    def _kill_behind_client(self, client: Client) -> None:
        """A daemon is killed behind the last message and the end of a client, before that broadcast comes back."""
        host = client.host
        host.kill_behind = client.pid
        self.world.note(f"{client.name} publishes and leaves, and {host.name} will be killed")
        self.world.injected["kill"] += 1
        self.programs.publish(client, 1)
        self.world.remove(client)

    def _clock_steps(self) -> None:
        """The clock is set, and often a daemon is killed before it has caught up."""
        self.disturbances.clock_steps()
        host = self.world.any_host()
        if host is not None and self._rng.random() < 0.5:
            self.operators.kill(host)

    def _watching_fails(self, host: Host) -> None:
        """Clients connect while the kernel refuses to watch descriptors."""
        self.disturbances.watching_fails()
        for _ in range(3):
            self.programs.connect(host)

    def _stop_with_backlog(self, host: Host) -> None:
        """A daemon is not run while more arrives than clients' queues hold; then it is told to stop."""
        self.operators.stop_after_stall(host)
        for datagram in self._rng.choice(self.senders).made(4000):
            self.world.network.deliver(host.name, datagram)

    def _burst(self, sender: Sender) -> None:
        """A sender sends very much at once."""
        count = self._rng.choice([200, 1500])
        self.world.note(f"{sender.src.decode()} sends {count}")
        if count > 500 and not any(host.stalled for host in self.world.hosts):
            count = 200
        sender.send(count)


def run(seed: int, seconds: float, over: Callable[[], bool]) -> Account:
    """Run a seed for some simulated seconds, or until it is ``over``."""
    account = Account(seed)
    with tempfile.TemporaryDirectory(prefix="bccnd-") as folder:
        simulation = Simulation(seed, Path(folder))
        world = simulation.world
        begun = world.now
        try:
            simulation.go(seconds, over)
        except Violation as violation:
            account.fault = str(violation)
        finally:
            account.simulated = world.now - begun
            account.events, account.injected = world.events, sum(world.injected.values())
            account.history = tuple(world.history)
            account.digest = world.digest.hexdigest()[:16]
            world.close()
            if simulation.interface is not None:
                simulation.interface.close()
    return account
