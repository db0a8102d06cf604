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
    """Namespaces ``a``, ``b`` and ``c`` at 10.77.0.1, .2 and .3, with their ends of the wires called ``lan0``."""

    def __init__(self) -> None:
        tag = f"bc{os.getpid() % 100_000}"
        self.switch = f"{tag}sw"
        self.names = {host: f"{tag}{host}" for host in "abc"}

    def open(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, (host, name) in enumerate(self.names.items(), start=1):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "lan0", "type", "veth", "peer", "name", f"to{host}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"to{host}", "master", "br0", "up")
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "brd", "+", "dev", "lan0")
            ip("-n", name, "link", "set", "lan0", "up")

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

    def daemon(
        self, host: str, folder: Path, segment: dict[str, object] | None = None, *, start: bool = True
    ) -> Daemon:
        """A daemon on a host, called like the host."""
        daemon = Daemon(folder / host, prefix=self.on(host), start=False)
        daemon.configure(
            {
                "host": f"host-{host}",
                "segments": [segment or {"address": "10.77.0.255"}],
                "metrics": {"listen": "127.0.0.1:9540"},
                "integrity": daemon.with_key(KEY),
            }
        )
        if start:
            daemon.start()
        return daemon
