"""The relays that are compared: how each is started, how it is known to be up, and how its clients speak to it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tools.bench.programs import ROOT

#: in load/message.h too
KEY: Final = b"0123456789abcdef0123456789abcdef"
BROADCAST: Final = "127.255.255.255"
#: bytes of a whole message on the wire, envelope included
SIZE: Final = 150
CHANNELS: Final = 16
#: where packages are unpacked that must not be installed: they would start services (packaging/unpack-peers.sh)
UNPACKED: Final = ROOT / ".cache/peers"
#: deliveries of one run at full load, and the least and the most messages
DELIVERIES, LEAST, MOST = 320_000, 8_000, 120_000


@dataclass(frozen=True)
class Place:
    """Where one run takes place: nothing in it is used by another one."""

    folder: Path
    programs: Path
    daemon: Path
    udp: int
    tcp: int
    metrics: int
    #: messages of a run at most
    most: int

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return str(path)


#: returns the command of a relay with so many clients
Start = Callable[[Place, int], list[str]]


@dataclass(frozen=True)
class Relay:
    """A relay, and how its clients and publisher speak to it; without `start`, programs listen for themselves."""

    name: str
    title: str
    protocol: str
    start: Start | None = None
    #: the Debian package, and program, of a relay that is not ours
    package: str = ""
    #: datagrams are sent to it; else a client publishes
    datagrams: bool = True
    #: options of the clients, beside where and how many
    clients: tuple[str, ...] = ("-s", "bench/")
    #: one client gets everything, the others nothing
    one_reader: bool = False
    #: many messages go out in one packet or write, so that one costs little and a run has to be longer
    batches: bool = False
    #: the relay that it is compared with
    floor: str = "floor_hmac"

    def messages(self, fan_out: int) -> int:
        """Return the messages of a run at full load: long enough to measure, and even shares."""
        cost = 4 if self.one_reader else 1 + fan_out // 8 if self.batches else fan_out
        n = min(MOST, max(LEAST, DELIVERIES // cost))
        return n - n % fan_out

    @property
    def program(self) -> str | None:
        """Return where the program of the package is; None if nowhere."""
        places = [str(UNPACKED / "usr/sbin"), str(UNPACKED / "usr/bin"), os.environ.get("PATH", os.defpath)]
        return shutil.which(self.package, path=":".join([*places, "/usr/sbin"]))

    @property
    def environment(self) -> dict[str, str]:
        """Return where the libraries are that were unpacked beside the program."""
        if not str(self.program).startswith(f"{UNPACKED}/"):
            return {}
        folders = [*UNPACKED.glob("usr/lib/*-linux-gnu"), *UNPACKED.glob("lib/*-linux-gnu")]
        return {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


def floor(*options: str) -> Start:
    def start(place: Place, fan_out: int) -> list[str]:
        where = ["-p", str(place.udp), "-u", str(place.socket), "-F", str(fan_out)]
        return [str(place.programs / "floor"), *where, *options]

    return start


def bccnd(more: Mapping[str, object] = MappingProxyType({})) -> Start:
    def start(place: Place, fan_out: int) -> list[str]:
        settings: dict[str, object] = {
            "host": "bench",
            "segments": [{"address": BROADCAST, "port": place.udp}],
            "integrity": {"algorithm": "hmac", "keys": [place.write("hmac.key", KEY.decode())], "required": True},
            "bus": {"path": str(place.socket)},
            "metrics": {"listen": f"127.0.0.1:{place.metrics}"},
            **more,
        }
        return [str(place.daemon), "--config", place.write("bccnd.yaml", json.dumps(settings))]

    return start


def mosquitto(place: Place, fan_out: int) -> list[str]:
    user = pwd.getpwuid(os.geteuid()).pw_name  # as root it would become a user who may not open our folder
    lines = (f"listener 0 {place.socket}", "allow_anonymous true", "persistence false", "log_type information")
    configuration = place.write("mosquitto.conf", "\n".join((*lines, f"user {user}", "")))
    return [str(RELAYS["mosquitto"].program), "-c", configuration]


def redis(place: Place, fan_out: int) -> list[str]:
    where = ["--port", "0", "--unixsocket", str(place.socket), "--dir", str(place.folder)]
    return [str(RELAYS["redis"].program), *where, "--save", "", "--appendonly", "no", "--daemonize", "no"]


def nats(place: Place, fan_out: int) -> list[str]:
    return [str(RELAYS["nats"].program), "-a", "127.0.0.1", "-p", str(place.tcp)]


EVERY_CHANNEL: Final = tuple(word for i in range(CHANNELS) for word in ("-s", f"bench/c{i:07d}"))
BATCH: Final = ("-M", "-s", "bench/")
LISTENERS: Final = Relay("listeners", "listeners", "bccn", clients=())
RELAYS: Final = {
    relay.name: relay
    for relay in (
        Relay("floor_hmac", "floor", "floor", floor(), clients=()),
        Relay("floor_epoll", "floor, epoll", "floor", floor("-e"), clients=()),
        Relay("floor_batch", "floor, packet per batch", "floor", floor("-b"), clients=(), batches=True),
        Relay("bccnd", "bccnd", "seq", bccnd()),
        Relay("bccnd_batch", "bccnd, batch mode", "seq", bccnd(), clients=BATCH, batches=True),
        Relay("publish_floor", "publishing: floor", "floor", floor("-P"), "", False, (), floor=""),
        Relay("publish", "publishing: bccnd", "seq", bccnd(), datagrams=False, floor="publish_floor"),
        Relay("mosquitto", "mosquitto", "mqtt", mosquitto, "mosquitto", False, ("-s", "bench/#")),
        Relay("redis", "redis", "redis", redis, "redis-server", False, EVERY_CHANNEL, batches=True),
        Relay("nats", "nats", "nats", nats, "nats-server", False, ("-s", "bench.>"), batches=True),
    )
}
