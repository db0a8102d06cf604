"""Meshes of real hosts: a namespace for each, a wire for each segment, one more for the links between bridges.

A host is called by its segment and its place there: ``s0b1`` is the second bridge of segment 0, ``s0p`` the plain host.
Segments are 10.80.<segment>.0/24; bridges meet on 10.90.0.0/24.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import bccnd
from tests import support
from tests.e2e import mesh_formula
from tests.e2e.harness import KEY, PATIENCE, Daemon, wait
from tests.e2e.mesh_topology import Topology
from tests.e2e.network import ip
from tests.e2e.shared import gateways, has_peers
from tests.support import cannot_here, need_root

#: where bridges listen for each other
LINKS: Final = 5500
METRICS: Final = 9540
#: seconds within which a link has healed on a busy machine: a greeting, an attempt to connect and the pause before the
#: next one may take 5 s each, and a relay in between has attempts of its own
HEALING: Final = 60.0
#: programs of this test want all of this
CHANNEL: Final = "mesh/x"
#: behind the names of namespaces, for several meshes of one test run
_SERIALS: Final = map("abcdefghijklmnopqrstuvwxyz".__getitem__, itertools.cycle(range(26)))


class MeshHost(Daemon):
    """A daemon on a host of a mesh, and a program there that wants everything."""

    def __init__(self, folder: Path, name: str, space: str, segment: int, settings: dict[str, Any]) -> None:
        super().__init__(folder / name, prefix=["ip", "netns", "exec", space], start=False)
        self.name = name
        self.space = space
        self.segment = segment
        self.client: bccnd.Connection | None = None
        self.got: Counter[bytes] = Counter()
        #: how often the daemon was away, as the program was told
        self.interrupted = 0
        self.configure(
            {
                "host": name,
                "segments": [{"address": f"10.80.{segment}.255", "receive_buffer": "4MiB"}],
                "metrics": {"listen": f"127.0.0.1:{METRICS}"},
                "bus": {"queue": {"messages": 100_000, "bytes": "64MiB"}},
                "integrity": self.with_key(KEY),
                "heartbeat": {"interval": 0},
                **settings,
            }
        )

    def join(self) -> None:
        """Start the program."""
        self.client = bccnd.connect(str(self.bus), batch=True)
        self.client.subscribe("mesh/")
        self.client.sync(PATIENCE)

    def drain(self) -> int:
        """Take what has come; how much it was."""
        if self.client is None:
            return 0
        found = 0
        while (event := self.client.receive(0)) is not None:
            if isinstance(event, bccnd.Message):
                self.got[event.payload] += 1
                found += 1
            elif isinstance(event, bccnd.Reconnected):
                self.interrupted += 1
            else:
                raise AssertionError(f"{self.name}: {event}")
        return found

    def gateways(self) -> list[int]:
        """The processes of its gateways."""
        return gateways(self)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the daemon as a crash would; its gateways end by themselves."""
        children = self.gateways()
        super().kill(number)
        wait(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in children), f"{self.name}'s gateways to end")

    def cpu(self) -> tuple[float, float]:
        """Seconds on a processor so far: of the daemon, and of its gateways."""
        return _cpu(self.pid), sum(map(_cpu, self.gateways()))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Meshwork:
    """The hosts of a topology: its bridges, and a plain host on each segment, all of them real."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self.topology = topology
        self._folder = folder
        self._tag = f"bm{os.getpid() % 100_000}{next(_SERIALS)}"
        self.switch = f"{self._tag}sw"
        self._sent = 0
        self.hosts: dict[str, MeshHost] = {}
        self.bridges: list[MeshHost] = []
        places: Counter[int] = Counter()
        for number, segment in enumerate(topology.homes):
            name = f"s{segment}b{places[segment]}"
            places[segment] += 1
            self.bridges.append(self._host(name, segment, self._gateway(number)))
        self.plain = [
            self._host(f"s{segment}p", segment, {"dedup": {"linked": True}}) for segment in range(topology.segments)
        ]

    def _host(self, name: str, segment: int, settings: dict[str, Any]) -> MeshHost:
        self.hosts[name] = host = MeshHost(self._folder, name, f"{self._tag}{name}", segment, settings)
        return host

    def _gateway(self, number: int) -> dict[str, Any]:
        """Of two that are linked the one with the higher number dials."""
        if not self.topology.degrees[number]:
            return {}
        others = [min(link) for link in self.topology.links if number == max(link)]
        dial = [f"tcp://{_wan(other)}:{LINKS}" for other in others]
        return {"gateways": {"nng": {"listen": [f"tcp://{_wan(number)}:{LINKS}"], "dial": dial}}}

    # -- wires

    def lay(self) -> None:
        """Namespaces and wires."""
        ip("netns", "add", self.switch)
        lines = ["link set lo up", "link add wan type bridge mcast_snooping 0", "link set wan up"]
        for segment in range(self.topology.segments):
            lines += [f"link add seg{segment} type bridge mcast_snooping 0", f"link set seg{segment} up"]
        self._batch(self.switch, lines)
        places: Counter[int] = Counter()
        for name, host in self.hosts.items():
            places[host.segment] += 1
            ip("netns", "add", host.space)
            lines = ["link set lo up", *self._wire("lan0", f"l{name}", f"10.80.{host.segment}.{places[host.segment]}")]
            if host in self.bridges:
                lines += self._wire("wan0", f"w{name}", _wan(self.bridges.index(host)))
            self._batch(host.space, lines)
        lines = []
        for name, host in self.hosts.items():
            lines.append(f"link set l{name} master seg{host.segment} up")
            if host in self.bridges:
                lines.append(f"link set w{name} master wan up")
        self._batch(self.switch, lines)
        # These wires need no IPv6, and so no search for addresses that are in use.
        ends = [f"net.ipv6.conf.{line.split()[2]}.disable_ipv6=1" for line in lines]
        command = ["ip", "netns", "exec", self.switch, "sysctl", "-qw", *ends]
        subprocess.run(command, check=False, capture_output=True)

    def _wire(self, name: str, end: str, address: str) -> list[str]:
        return [
            f"link add {name} type veth peer name {end} netns {self.switch}",
            f"address add {address}/24 brd + dev {name}",
            f"link set {name} addrgenmode none up",
        ]

    @staticmethod
    def _batch(space: str, lines: list[str]) -> None:
        subprocess.run(
            ["ip", "-n", space, "-batch", "-"], input="\n".join(lines), text=True, check=True, capture_output=True
        )

    # -- life

    def start(self) -> None:
        """All daemons, links and programs."""
        for host in self.hosts.values():
            host.process = host.spawn()
        for host in self.hosts.values():
            wait(lambda host=host: "ready: " in host.output() or host.process.poll() is not None, host.name)  # type: ignore[misc]
            assert "ready: " in host.output(), host.output()
        for host in self.hosts.values():
            host.join()
        self.wait_for_links()

    def wait_for_links(self) -> None:
        """Until each bridge has as many peers as it has links."""
        for host, peers in zip(self.bridges, self.topology.degrees, strict=True):
            if peers:
                support.wait(partial(has_peers, host, peers), f"{host.name} to have {peers} peers", HEALING)

    def close(self) -> None:
        """End everything that was started here, and take the wires away."""
        for host in self.hosts.values():
            if host.client is not None:
                host.client.close()
            if not host.ended():
                for pid in [host.pid, *host.gateways()]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                host.running.terminate()
        for host in self.hosts.values():
            if host.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    host.process.wait(PATIENCE)
                host.process.kill()
                host.process.wait(PATIENCE)
        for space in [*(host.space for host in self.hosts.values()), self.switch]:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)

    def __enter__(self) -> Meshwork:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            for host in self.hosts.values():
                assert "bug" not in host.output(), host.output()

    # -- faults

    def cut_links(self, *names: str) -> None:
        """These bridges get nothing over their links any more; the others do."""
        rule = 'chain in { type filter hook prerouting priority -300; iifname "wan0" drop; };'
        for host in self.bridges:
            lines = ["table inet links", "delete table inet links"]
            lines += [f"table inet links {{ {rule} }}"] * (host.name in names)
            command = ["ip", "netns", "exec", host.space, "nft", "-f", "-"]
            subprocess.run(command, input="\n".join(lines), text=True, check=True, capture_output=True)

    def cable(self, host: MeshHost, state: str) -> None:
        """Plug in the cable of its links (up), or pull it (down)."""
        ip("-n", self.switch, "link", "set", f"w{host.name}", state)

    def mend(self) -> None:
        """Undo whatever was done to wires and processes, and count anew, whatever has become of the test before."""
        self.cut_links()
        for host in self.bridges:
            self.cable(host, "up")
        for host in self.hosts.values():
            if host.ended():
                host.start()
            for pid in [host.pid, *host.gateways()]:
                os.kill(pid, signal.SIGCONT)
        self.drain()
        for host in self.hosts.values():
            host.got.clear()

    # -- traffic

    def say(self, names: Iterable[str], count: int, rate: float) -> list[bytes]:
        """So many messages of each of these hosts, ``rate`` of them a second together; what was said."""
        speakers = [self.hosts[name] for name in names]
        output = []
        begin = time.monotonic()
        for number in range(count * len(speakers)):
            host = speakers[number % len(speakers)]
            payload = b"%b %d" % (host.name.encode(), self._sent)
            self._sent += 1
            assert host.client is not None
            host.client.publish(CHANNEL, payload)
            output.append(payload)
            ahead = begin + (number + 1) / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            self.drain()
        return output

    def drain(self) -> int:
        return sum(host.drain() for host in self.hosts.values())

    def settle(self, output: Iterable[bytes] = (), but: Iterable[str] = (), *, quiet: float = 1.0) -> None:
        """Until every program, but for these, has all of it; or nothing has come for a while."""
        wanted, hosts = set(output), [host for host in self.hosts.values() if host.name not in set(but)]
        last = time.monotonic()
        while time.monotonic() - last < quiet:
            if self.drain():
                last = time.monotonic()
            elif wanted and all(wanted <= host.got.keys() for host in hosts):
                quiet = min(quiet, 0.3)  # copies would come now
            time.sleep(0.01)

    def exactly_once(self, output: Iterable[bytes], but: Iterable[str] = ()) -> None:
        """Every program, but for those of these hosts, has each of these, and none has anything twice."""
        twice = [
            f"{host.name}: {payload.decode()}"
            for host in self.hosts.values()
            for payload, times in host.got.items()
            if times > 1
        ]
        assert not twice, f"{len(twice)} deliveries too many: {twice[:10]}"
        hosts = [host for host in self.hosts.values() if host.name not in set(but)]
        never = [f"{host.name}: {payload.decode()}" for host in hosts for payload in output if payload not in host.got]
        assert not never, f"{len(never)} deliveries did not take place: {never[:10]}"

    def exchange(self, names: Iterable[str], count: int, rate: float, output: Sequence[bytes] = ()) -> list[bytes]:
        """Have these hosts send messages, which every program gets once, as it gets those that were sent before."""
        sent = [*output, *self.say(names, count, rate)]
        self.settle(sent)
        self.exactly_once(sent)
        return sent

    def broadcasts(self) -> list[int]:
        """Datagrams sent so far, by segment."""
        sent = [0] * self.topology.segments
        for host in self.hosts.values():
            sent[host.segment] += int(host.metric("datagrams_sent_total"))
        return sent

    def link_messages(self, direction: str = "out") -> int:
        """Messages that went over links so far, as those say who sent them; they say it every second."""
        return sum(
            int(host.metric("gateway_messages_total", gateway="nng", direction=direction)) for host in self.bridges
        )


def live(topology: Topology, folder: Path) -> Iterator[Meshwork]:
    """A fixture: all of it, running; skipped with a reason where there can be no namespaces."""
    need_root("a mesh takes network namespaces")
    with Meshwork(topology, folder) as work:
        try:
            work.lay()
        except (OSError, subprocess.CalledProcessError) as error:
            cannot_here(f"cannot make network namespaces: {getattr(error, 'stderr', error)}")
        work.start()
        yield work


def amplification(work: Meshwork, rate: float) -> None:
    """Every host speaks; each message goes everywhere once, and costs what the formula says."""
    messages = 6 * len(work.hosts)
    before, links_before = sum(work.broadcasts()), work.link_messages()
    work.exchange(work.hosts, 6, rate)
    relayed = sum(work.broadcasts()) - before - messages
    ends = 2 * len(work.topology.links) * messages
    # Gateways tell how many they have sent once a second.
    wait(
        lambda: work.link_messages() - links_before + relayed == ends,
        f"link messages and {relayed} relayed broadcasts to be {ends} together",
    )
    least, most = mesh_formula.bounds(work.topology)
    assert least.datagrams <= relayed / messages / (work.topology.segments - 1) <= most.datagrams


def _wan(bridge: int) -> str:
    """Where a bridge is found by others."""
    return f"10.90.0.{bridge + 1}"
