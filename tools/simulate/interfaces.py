"""An interface that is deleted and made anew, with a segment on it: one end of a pair, the other is the wire."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any, Final

from tools.simulate import interposer
from tools.simulate.datagrams import Datagram
from tools.simulate.host import Host
from tools.simulate.network import Arrival
from tools.simulate.observers import SECOND
from tools.simulate.world import World

NAME: Final = "bccnsim0"
_WIRE: Final = "bccnsim1"
PORT: Final = 19_999
_SIOCGIFFLAGS: Final = 0x8913
_IFF_RUNNING: Final = 0x40
#: seconds within which a daemon uses an interface that was made anew
SETTLED: Final = 5.0


def settings() -> dict[str, Any]:
    """Return the segment of the configuration."""
    return {"address": "10.77.0.255", "port": PORT, "interface": NAME, "name": SECOND}


def is_possible() -> bool:
    """Whether this process may make interfaces: it has a network of its own, and the tool."""
    own = [name for _, name in socket.if_nameindex()] == ["lo"]
    return own and os.geteuid() == 0 and shutil.which("ip") is not None


def _ip(*words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(["ip", *words], check=True, env=environment, stdin=subprocess.DEVNULL)


def _is_running(name: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16s16x", name.encode())
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))
    return bool(flags & _IFF_RUNNING)


class Interface:
    """The interface of one host, which is there from the beginning."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host
        self._wire: socket.socket | None = None
        self.there = False
        self._since = 0.0
        self.make()

    def make(self) -> None:
        """Make the pair anew."""
        if self.there:
            return
        # Both ends are in this namespace, so that senders seem to be this machine itself.
        for name in ("all", "default"):
            Path(f"/proc/sys/net/ipv4/conf/{name}/accept_local").write_text("1")
            Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        _ip("link", "add", NAME, "type", "veth", "peer", "name", _WIRE)
        for name, address in ((NAME, "10.77.0.1/24"), (_WIRE, "10.77.0.2/24")):
            _ip("address", "add", address, "broadcast", "10.77.0.255", "dev", name)
            _ip("link", "set", name, "up")
        # The kernel tells of a carrier when it likes.
        interposer.wait(lambda: all(map(_is_running, (NAME, _WIRE))), f"a carrier of {NAME} and {_WIRE}")
        self._wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _WIRE.encode())
        self.there = True
        self._since = self._world.now

    def delete(self) -> None:
        """Delete the pair; it is made anew after a while."""
        world = self._world
        if not self.there:
            return
        world.note("the interface is deleted")
        world.injected["interface"] += 1
        self.close()

        def again() -> None:
            world.note("the interface is made anew")
            self.make()

        world.at(0.2 + world.rng.random() * 4, again)

    def send(self, datagram: Datagram) -> bool:
        """Send on the wire, where it is certain that the host receives it; else return False."""
        world, host = self._world, self._host
        port = world.network.ports[host.name]
        quiet_since = max(self._since, world.disturbed[host.name])
        # What waits in a socket that no unit has opened ends with its daemon.
        up = self.there and host.alive and not (host.stalled or host.out_of_descriptors or host.kill_at)
        if not up or world.now < quiet_since + SETTLED or port.arrivals:
            return False
        assert self._wire is not None
        world.fly(host, datagram.token, datagram.chan)
        port.arrivals.append(Arrival(datagram, world.now, world.events))
        self._wire.sendto(datagram.raw, ("10.77.0.255", PORT))
        # The kernel passes it on by itself, and not always at once.
        ready = lambda: host.is_ready(world.now) and host.has_events()  # noqa: E731 - a name for an argument
        interposer.wait(ready, f"{host.name} to receive on an interface that is there")
        return True

    def close(self) -> None:
        if self.there:
            assert self._wire is not None
            self._wire.close()
            _ip("link", "delete", NAME)
            self.there = False
