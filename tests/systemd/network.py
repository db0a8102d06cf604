"""The segment between booted hosts."""

from __future__ import annotations

import os
from typing import Final

from tests.e2e.network import Net, ip
from tests.systemd.stage import PREFIX

BROADCAST: Final = "10.77.0.255"


class Segment(Net):
    """Hosts ``a``, ``b``, ... are 10.77.0.1, .2, ... on their interface ``lan0``, by which they reach everything."""

    def __init__(self, hosts: str) -> None:
        super().__init__(hosts, tag=f"{PREFIX}{os.getpid()}-n", wires=1)

    def open(self) -> None:
        super().open()
        for name in self.names.values():
            ip("-n", name, "route", "add", "default", "dev", "lan0")
