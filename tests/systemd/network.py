"""One segment between hosts: network namespaces on a bridge."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from tests.systemd.stage import PREFIX, command

#: the last part of a host's address is its place among these
LETTERS: Final = "abcd"
NET: Final = "10.79.0"
BROADCAST: Final = f"{NET}.255"


class Segment:
    """Hosts ``a``, ``b``, ... are 10.79.0.1, .2, ... on their interface ``lan0``."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.names = {host: f"{PREFIX}{os.getpid()}-n{host}" for host in hosts}
        self._switch = f"{PREFIX}{os.getpid()}-nx"
        self._made: list[str] = []

    def open(self) -> None:
        """The namespaces, each with its loopback."""
        for name in (self._switch, *self.names.values()):
            command("ip", "netns", "add", name)
            self._made.append(name)
            command("ip", "-n", name, "link", "set", "lo", "up")

    def bridge(self) -> None:
        """Join all by a bridge, and give the interfaces their addresses."""
        switch = ("ip", "-n", self._switch, "link")
        command(*switch, "add", "br0", "type", "bridge", "mcast_snooping", "0")
        command(*switch, "set", "br0", "up")
        for host, name in self.names.items():
            ip = ("ip", "-n", name)
            ends = ("add", "lan0", "type", "veth", "peer", "name", f"to-{host}", "netns", self._switch)
            command(*ip, "link", *ends)
            command(*switch, "set", f"to-{host}", "master", "br0", "up")
            command(*ip, "address", "add", f"{NET}.{LETTERS.index(host) + 1}/24", "brd", "+", "dev", "lan0")
            command(*ip, "link", "set", "lan0", "up")
            command(*ip, "route", "add", "default", "dev", "lan0")

    def on(self, host: str) -> list[str]:
        """What runs a command of this machine in the network of a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def close(self) -> None:
        while self._made:
            subprocess.run(["ip", "netns", "delete", self._made.pop()], check=False, capture_output=True)
