"""What is compared: how each relay is started, how it is known to be up, who sends to it and who subscribes."""

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
#: messages under way at most, in saturation: enough to keep a relay busy, and no queue of anybody overflows
WINDOW: Final = 128
#: where packages are unpacked that must not be installed: they would start services (packaging/unpack-peers.sh)
UNPACKED: Final = ROOT / ".cache/peers"
#: subscriptions of each client, all but one of all of which match nothing
PATTERNS: Final = 50
#: deliveries of one run in saturation, and what that must come to in messages
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

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def window(self) -> Path:
        return self.folder / "window"

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Peer:
    """A program of somebody else, from a Debian package."""

    package: str

    @property
    def program(self) -> str | None:
        """Where it is; None if nowhere."""
        places = [str(UNPACKED / "usr/sbin"), str(UNPACKED / "usr/bin"), os.environ.get("PATH", os.defpath)]
        return shutil.which(self.package, path=":".join([*places, "/usr/sbin"]))

    @property
    def environment(self) -> dict[str, str]:
        """With the libraries that were unpacked beside it."""
        if not str(self.program).startswith(f"{UNPACKED}/"):
            return {}
        folders = [*UNPACKED.glob("usr/lib/*-linux-gnu"), *UNPACKED.glob("lib/*-linux-gnu")]
        return {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


Start = Callable[[Place, int], list[str]]


@dataclass(frozen=True)
class Case:
    """One relay, and how its clients and publisher speak to it; without `relay`, programs listen for themselves."""

    name: str
    title: str
    protocol: str
    relay: Start | None = None
    peer: Peer | None = None
    #: flood sends to it; otherwise pub does
    datagrams: bool = True
    signed: bool = True
    over_tcp: bool = False
    #: drain's options, beside where and how many
    clients: tuple[str, ...] = ("-s", "bench/")
    #: one client gets everything, the others nothing
    one_reader: bool = False
    #: many messages go out in one packet or write, so that one costs little and a run has to be longer
    batches: bool = False
    #: what it says once it, and all that belongs to it, is up
    ready: tuple[str, ...] = ("ready",)
    #: the case that it is held against
    floor: str = "floor_hmac"
    #: share of a processor that processes of its own take meanwhile which nobody waits for, at their start above all
    beside: float = 0.0

    @property
    def alone(self) -> bool:
        """Whether there is no relay."""
        return self.relay is None

    def messages(self, fan_out: int) -> int:
        """Of one run in saturation: long enough to measure, short enough to be left alone; even shares."""
        cost = 4 if self.one_reader else 1 + fan_out // 8 if self.batches else fan_out
        n = min(MOST, max(LEAST, DELIVERIES // cost))
        return n - n % fan_out

    def deliveries(self, fan_out: int, messages: int) -> int:
        """What must have come when all is done. Who listens for himself reads everything, whatever he keeps."""
        return messages if self.one_reader else messages * fan_out


def floor(check: str, packets: str, *more: str) -> Start:
    def start(place: Place, fan_out: int) -> list[str]:
        where = ["-p", str(place.udp), "-u", str(place.socket), "-F", str(fan_out)]
        return [str(place.programs / "floor"), *where, "-m", check, "-x", packets, *more]

    return start


def publish_floor(place: Place, fan_out: int) -> list[str]:
    where = ["-p", str(place.udp), "-u", str(place.socket), "-F", str(fan_out)]
    return [str(place.programs / "publish_floor"), *where]


def bccnd(signed: bool, more: Mapping[str, object] = MappingProxyType({})) -> Start:
    def start(place: Place, fan_out: int) -> list[str]:
        settings: dict[str, object] = {
            "host": "bench",
            "segments": [{"address": BROADCAST, "port": place.udp}],
            "bus": {"path": str(place.socket)},
            "metrics": {"listen": f"127.0.0.1:{place.metrics}"},
            **more,
        }
        if signed:
            key = place.write("hmac.key", KEY.decode())
            settings["integrity"] = {"algorithm": "hmac", "keys": [key], "required": True}
        return [str(place.daemon), "--config", place.write("bccnd.yaml", json.dumps(settings))]

    return start


OURS: Final = bccnd(signed=True)


def kept(place: Place, fan_out: int) -> list[str]:
    """Everything is written down for the daemon that comes next; nobody is there to take the connections."""
    return ["env", f"NOTIFY_SOCKET={place.folder / 'notify'}", *OURS(place, fan_out)]


def with_gateways(place: Place, fan_out: int) -> list[str]:
    """Gateways that nobody has connected to."""
    link = f"ipc://{place.folder / 'link'}"
    there = {"nng": {"listen": [link]}, "broker": {"tcp": f"127.0.0.1:{place.tcp}", "state": str(place.folder / "ids")}}
    return bccnd(signed=True, more={"gateways": there})(place, fan_out)


MOSQUITTO, REDIS, NATS = Peer("mosquitto"), Peer("redis-server"), Peer("nats-server")


def mosquitto(place: Place, fan_out: int) -> list[str]:
    who = pwd.getpwuid(os.geteuid()).pw_name  # as root it would become a user who may not open our folder
    lines = (f"listener 0 {place.socket}", "allow_anonymous true", "persistence false", "log_type error", f"user {who}")
    return [str(MOSQUITTO.program), "-c", place.write("mosquitto.conf", "\n".join((*lines, "")))]


def redis(place: Place, fan_out: int) -> list[str]:
    where = ["--port", "0", "--unixsocket", str(place.socket), "--dir", str(place.folder)]
    return [str(REDIS.program), *where, "--save", "", "--appendonly", "no", "--daemonize", "no"]


def nats(place: Place, fan_out: int) -> list[str]:
    return [str(NATS.program), "-a", "127.0.0.1", "-p", str(place.tcp)]


EVERY_CHANNEL: Final = tuple(word for i in range(CHANNELS) for word in ("-s", f"bench/c{i:07d}"))


def patterns(count: int) -> tuple[str, ...]:
    return ("-x", str(count), "-o", "bench/")


CASES: Final = {
    case.name: case
    for case in (
        Case("floor", "floor", "floor", floor("none", "each"), clients=()),
        Case("floor_hmac", "floor, HMAC", "floor", floor("hmac", "each"), clients=()),
        Case("floor_epoll", "floor, HMAC, epoll", "floor", floor("hmac", "each", "-e"), clients=()),
        Case("floor_batch", "floor, HMAC, packet per batch", "floor", floor("hmac", "batch"), clients=(), batches=True),
        Case("bccnd", "bccnd", "seq", OURS),
        Case("bccnd_plain", "bccnd, no HMAC", "seq", bccnd(signed=False), signed=False),
        Case("bccnd_batch", "bccnd, batch mode", "seq", OURS, clients=("-M", "-s", "bench/"), batches=True),
        Case("bccnd_kept", "bccnd, as a service", "seq", kept),
        Case(
            *("bccnd_gateways", "bccnd, gateways idle", "seq", with_gateways),
            ready=("ready", "nng: listens", "the broker serves"),
            beside=0.6,
        ),
        Case("publish_floor", "publishing: floor", "floor", publish_floor, datagrams=False, clients=()),
        Case("publish", "publishing: bccnd", "seq", OURS, datagrams=False, floor="publish_floor"),
        Case("publish_kept", "publishing: bccnd, as a service", "seq", kept, datagrams=False, floor="publish_floor"),
        Case(
            *("publish_batch", "publishing: bccnd, batch mode", "seq", OURS),
            datagrams=False,
            clients=("-M", "-s", "bench/"),
            batches=True,
            floor="publish_floor",
        ),
        Case("mosquitto", "mosquitto", "mqtt", mosquitto, peer=MOSQUITTO, datagrams=False, clients=("-s", "bench/#")),
        Case("redis", "redis", "redis", redis, peer=REDIS, datagrams=False, clients=EVERY_CHANNEL, batches=True),
        Case(
            *("nats", "nats", "nats", nats),
            peer=NATS,
            datagrams=False,
            over_tcp=True,
            clients=("-s", "bench.>"),
            batches=True,
        ),
    )
}
