"""Segments in a full mesh, two bridges on each: every message once, whatever fails; losses are for the model.

All daemons run on this host, each segment on a port of its own; a host is called by its segment and its place there:
``s0b1`` is the second bridge of segment 0, ``s0p`` the plain host.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import bccnd
from tests.e2e.harness import KEY, Daemon, wait
from tests.e2e.shared import gateways, has_peers
from tests.support import BROADCAST, free_port

pytestmark = [pytest.mark.renews, pytest.mark.slow]

SEGMENTS: Final = 3
PLANES: Final = 2
#: the ends of all links
ENDS: Final = PLANES * SEGMENTS * (SEGMENTS - 1)
#: messages a second of all hosts together: each becomes some 10 messages over links
RATE: Final = 60.0


class Mesh:
    """Daemons, and at each a program that wants everything."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.hosts: dict[str, Daemon] = {}
        self.clients: dict[str, bccnd.Connection] = {}
        self.got: dict[str, Counter[bytes]] = {}
        self.bridges: list[Daemon] = []
        self._sent = 0
        places = [[f"tcp://127.0.0.1:{free_port()}" for _ in range(PLANES)] for _ in range(SEGMENTS)]
        for segment, here in enumerate(places):
            port = free_port()
            for plane, place in enumerate(here):
                # Of two that are linked that of the higher segment dials.
                nng = {"listen": [place], "dial": [other[plane] for other in places[:segment]]}
                self.bridges.append(self._host(folder, f"s{segment}b{plane}", port, {"gateways": {"nng": nng}}))
            self._host(folder, f"s{segment}p", port, {"dedup": {"linked": True}})
        for name, host in self.hosts.items():
            host.start()
            stack.enter_context(host)
            self.clients[name] = stack.enter_context(host.connect("mesh/"))
        self.wait_for_links()

    def _host(self, folder: Path, name: str, port: int, settings: dict[str, Any]) -> Daemon:
        segments = [{"address": BROADCAST, "port": port, "receive_buffer": "4MiB"}]
        host = Daemon(folder / name, {"host": name, "segments": segments, **settings}, start=False)
        queue = {"messages": 100_000, "bytes": "64MiB"}
        host.configure({"integrity": host.with_key(KEY), "bus": {"queue": queue}, "heartbeat": {"interval": 0}})
        self.hosts[name] = host
        self.got[name] = Counter()
        return host

    def wait_for_links(self) -> None:
        for host in self.bridges:
            wait(partial(has_peers, host, SEGMENTS - 1), f"all peers of {host.folder.name}")

    def say(self, names: Iterable[str], count: int, rate: float = RATE) -> list[bytes]:
        """So many messages of each of these hosts, ``rate`` of them a second together; what was said."""
        speakers = list(names)
        output = []
        begin = time.monotonic()
        for number in range(count * len(speakers)):
            name = speakers[number % len(speakers)]
            output.append(b"%b %d" % (name.encode(), self._sent))
            self._sent += 1
            self.clients[name].publish("mesh/x", output[-1])
            time.sleep(max(0.0, begin + (number + 1) / rate - time.monotonic()))
        return output

    def exactly_once(self, output: Sequence[bytes], but: Sequence[str] = ()) -> None:
        """Wait until every program, but for those of these hosts, has each of these; none has anything twice.

        A copy comes before what its sender says behind it: the last message of each is a mark.
        """
        hosts = [name for name in self.hosts if name not in but]
        wanted = {*output, *self.say(hosts, 1, 1000.0)}

        def arrived() -> bool:
            for name in hosts:
                while (event := self.clients[name].receive(0)) is not None:
                    if isinstance(event, bccnd.Message):
                        self.got[name][event.payload] += 1
            return all(wanted <= self.got[name].keys() for name in hosts)

        wait(arrived, "all messages to arrive")
        twice = {name: one for name, got in self.got.items() for one, times in got.items() if times > 1}
        assert twice == {}

    def used(self) -> int:
        """Datagrams sent, and messages that went over links, as the gateways report every second."""
        broadcasts = sum(host.metric("datagrams_sent_total") for host in self.hosts.values())
        links = (host.metric("gateway_messages_total", gateway="nng", direction="out") for host in self.bridges)
        return int(broadcasts + sum(links))


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with ExitStack() as stack:
        yield Mesh(tmp_path_factory.mktemp("mesh"), stack)


def test_each_message_arrives_once_and_uses_each_link_once(mesh: Mesh) -> None:
    before = mesh.used()
    output = mesh.say(mesh.hosts, 6)
    mesh.exactly_once(output)
    messages = 7 * len(mesh.hosts)  # with the marks
    # Each end is used by a link message, or by the broadcast of what arrived there first.
    wait(lambda: mesh.used() - before - messages == ENDS * messages, "each end of each link to be used once")


def test_a_bridge_that_is_killed_and_comes_back_repeats_nothing(mesh: Mesh) -> None:
    victim = "s2b0"
    others = [name for name in mesh.hosts if name != victim]
    output = mesh.say(others, 2)
    mesh.hosts[victim].kill()
    output += mesh.say(others, 4)
    mesh.exactly_once(output, [victim])
    mesh.hosts[victim].start()
    assert any(isinstance(event, bccnd.Reconnected) for event in iter(mesh.clients[victim].receive, None))
    mesh.wait_for_links()
    mesh.exactly_once(mesh.say(mesh.hosts, 4))


def test_bridges_that_stood_still_repeat_nothing(mesh: Mesh) -> None:
    """A daemon and a gateway, for longer than a link waits for its peer."""
    daemon, [gateway] = "s1b0", gateways(mesh.hosts["s2b1"])
    others = [name for name in mesh.hosts if name != daemon]
    mesh.hosts[daemon].signal(signal.SIGSTOP)
    os.kill(gateway, signal.SIGSTOP)
    try:
        output = mesh.say(others, 14, RATE / 3)
        mesh.exactly_once(output, [daemon])
    finally:
        mesh.hosts[daemon].signal(signal.SIGCONT)
        os.kill(gateway, signal.SIGCONT)
    mesh.exactly_once([*output, *mesh.say(others, 2)])
