"""Hosts made of network namespaces, joined by a bridge, with real broadcast and multicast between them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.harness import KEY, PATIENCE, Daemon

PORT = 5400
#: a plain BCCN program: sends what it reads in hex, a line each, to an address
SENDER = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
if sys.argv[2:]: sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[2].encode())
for line in sys.stdin: sock.sendto(bytes.fromhex(line), (sys.argv[1], 5400))
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Net:
    """Namespaces ``a``, ``b`` and ``c``, or others, joined by two separate wires: ``lan0``, where they are 10.77.0.1,
    .2 and .3, and ``lan1``, where they are 10.78.0.1, .2 and .3. The other ends, in the switch, are called ``toa0`` and
    so on. With ``wires=1`` there is only the first."""

    def __init__(self, hosts: str = "abc", *, tag: str = f"bc{os.getpid() % 100_000}", wires: int = 2) -> None:
        self._wires = wires
        self.switch = f"{tag}sw"
        self.names = {host: f"{tag}{host}" for host in hosts}

    def open(self) -> None:
        ip("netns", "add", self.switch)
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for lan in range(self._wires):
            self._wire(f"br{lan}", lan)

    def _wire(self, bridge: str, number: int) -> None:
        ip("-n", self.switch, "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
        ip("-n", self.switch, "link", "set", bridge, "up")
        for host in self.names:
            self.plug(host, number)

    def plug(self, host: str, number: int = 0) -> None:
        """Make the interface ``lan0`` or ``lan1`` of a host."""
        name, lan, end = self.names[host], f"lan{number}", f"to{host}{number}"
        ip("-n", name, "link", "add", lan, "type", "veth", "peer", "name", end, "netns", self.switch)
        ip("-n", self.switch, "link", "set", end, "master", f"br{number}", "up")
        ip("-n", name, "address", "add", f"10.{77 + number}.0.{ord(host) - ord('a') + 1}/24", "brd", "+", "dev", lan)
        # No other host is on this wire, so an address needs no check whether it is free.
        self.run(host, "sh", "-c", f"echo 0 > /proc/sys/net/ipv6/conf/{lan}/accept_dad")
        ip("-n", name, "link", "set", lan, "up")

    def run(self, host: str, *command: str) -> str:
        """Run a command on a host and return what it says."""
        return subprocess.run([*self.on(host), *command], check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        for name in [*self.names.values(), self.switch]:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def on(self, host: str) -> list[str]:
        """What runs a command on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def send(self, host: str, address: str, *datagrams: bytes, interface: str = "") -> None:
        """Send datagrams from a plain program on a host."""
        command = [*self.on(host), sys.executable, "-c", SENDER, address, *([interface] if interface else [])]
        text = "\n".join(one.hex() for one in datagrams).encode()
        subprocess.run(command, input=text, check=True, timeout=PATIENCE)

    def daemon(self, host: str, folder: Path, *segments: dict[str, object], start: bool = True) -> Daemon:
        """A daemon on a host, called like the host, on the broadcast of ``lan0`` unless segments are given."""
        daemon = Daemon(folder / host, prefix=self.on(host), start=False)
        daemon.configure(
            {
                "host": f"host-{host}",
                "segments": list(segments) or [{"address": "10.77.0.255"}],
                "metrics": {"listen": "127.0.0.1:9540"},
                "integrity": daemon.with_key(KEY),
            }
        )
        if start:
            daemon.start()
        return daemon
