"""A reload changes each key that it can change, and a bad one changes nothing."""

from __future__ import annotations

import copy
import hmac
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import pytest
from pydantic import BaseModel

from bccnd.config import Settings, load
from bccnd.config.schema import RESTART_KEYS
from bccnd.core.tracking.dedup import CLOCK_MIN
from bccnd.core.trust.signatures import Signatures, generate, public_of
from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import NAMES
from bccnd.daemon import gateway_processes
from bccnd.fleet.report_planner import ReportPlanner
from tests.daemon.running import daemon_in_process
from tests.e2e.harness import Wire, seqpacket
from tests.support import BROADCAST, datagram, free_port, turn, turn_until

Settable = dict[str, Any]

ME: Final = str(os.geteuid())
OUR_GROUP: Final = str(os.getegid())
PROGRAM: Final = Path("/proc/self/comm").read_text().strip()
KEYS: Final = [b"the first key of the daemon", b"the second key of the daemon"]
SIGNERS: Final = [generate(), generate()]
#: seconds that do not pass, and seconds that have passed at once
LONG: Final = 3600
SHORT: Final = 0.001


class Running:
    """A daemon on the loopback, and what a test asks of it. Most questions begin with a source that is new to it."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self.folder = folder
        self.path = folder / "bccnd.yaml"
        port = free_port()
        self.wire = cleanup.enter_context(Wire(port))
        self.fixed: Settable = {
            "host": "relay01",
            "segments": [{"address": BROADCAST, "port": port, "receive_buffer": "1MiB"}],
            "bus": {"path": str(folder / "bus.sock")},
            "metrics": {"listen": "off"},
            "reports": {"interval": 0},
            "dedup": {"horizon": LONG},
        }
        for name, key, private in zip(("first", "second"), KEYS, SIGNERS, strict=True):
            (folder / f"{name}.pub").write_bytes(public_of(private))
            (folder / f"{name}.key").write_bytes(key)
            (folder / f"{name}.key").chmod(0o600)
        self.daemon = cleanup.enter_context(daemon_in_process(self.path, self.fixed))
        self.daemon.begin()
        self._numbers = count(1)

    def reload(self, settings: Settable, *, resolve: bool = True) -> None:
        """Put settings in force over those that are fixed; without ``resolve`` no user is found."""
        merged = {
            name: {**self.fixed.get(name, {}), **section} if isinstance(section, dict) else section
            for name, section in settings.items()
        }
        self.path.write_text(json.dumps({**self.fixed, **merged}))
        self.daemon.reload(lambda: load(str(self.path), resolve=resolve))
        self.turn()
        list(self.wire.rest())

    def turn(self, rounds: int = 5) -> None:
        turn(self.daemon.loop, rounds)

    def verdicts(self, *seqs: int, chan: str = "c", key: bytes | None = None, src: str = "") -> list[str]:
        """The verdicts on datagrams of a source, which come one after the other."""
        src = src or f"relay02/p/{next(self._numbers)}"
        return [self.verdict(datagram(src, seq, chan, "", key)) for seq in seqs]

    def verdict(self, raw: bytes) -> str:
        time.sleep(2 * SHORT)
        counters = self.daemon.segments[0].counters
        before = counters.verdicts
        self.wire.send(raw)
        turn_until(self.daemon.loop, lambda: counters.verdicts != before, "the verdict")
        return next(NAMES[number] for number, total in enumerate(counters.verdicts) if total > before[number])

    def signed(self) -> str:
        """The verdict on a datagram that the first signer has signed."""
        body = b"relay02/p/%d:1:c|" % next(self._numbers)
        return self.verdict(b"BCCN1[%d:sig=%b]%b" % (len(body), Signatures({}, SIGNERS[0]).sum(body), body))

    def is_kept(self, others: int = 0) -> bool:
        """Whether a source is tracked after so many others."""
        src = f"relay02/q/{next(self._numbers)}"
        for one in (src, *[f"relay02/q/{next(self._numbers)}" for _ in range(others)]):
            self.verdicts(1, src=one)
        time.sleep(2 * SHORT)
        while self.daemon.sources.sweep(time.monotonic()):
            pass
        return src.encode() in self.daemon.sources

    def liveness(self) -> tuple[str, str]:
        """What a client is told first and last of a source within some intervals of its only heartbeat."""
        src = f"relay02/h/{next(self._numbers)}"
        told = []
        with self.client(frames.subscribe(frames.LIVENESS + src.encode())) as sock:
            self.verdicts(1, src=src, chan=f"heartbeat/{src}")
            until = time.monotonic() + 0.6
            turn_until(self.daemon.loop, lambda: time.monotonic() > until)
            with suppress(BlockingIOError):
                while True:
                    told.append(sock.recv(frames.MAX_PACKET).partition(b"\0")[2].decode())
        return told[0], told[-1]

    def hosts(self) -> tuple[int, int]:
        """How many sending hosts are known, and how many reporting ones, after the reports of five."""
        (report,) = ReportPlanner().write("1", 1000, None, [], [], 1000)
        for number in range(5):
            src, chan = f"host{number}/bccnd/{next(self._numbers)}", f"bccn/report/host{number}"
            self.verdict(datagram(src, 1, chan, report))
        return len(self.daemon.sources.senders), len(self.daemon.reports.matrix)

    def groups(self) -> set[str]:
        """The groups in which a message on ``g`` is counted."""
        before = {name: messages for name, messages, _ in self.daemon.groups}
        self.verdicts(1, chan="g")
        return {name for name, messages, _ in self.daemon.groups if messages > before[name]}

    def signs_with(self) -> str:
        """The algorithm of what the daemon broadcasts; with ``first`` if it signs with the first key."""
        found: list[bytes] = []

        def broadcast() -> bool:
            found.extend(one for one in self.wire.rest() if b":s|" in one)
            return bool(found)

        with self.client(frames.message(b"s", b"")):
            turn_until(self.daemon.loop, broadcast, "the broadcast")
        (raw,) = found
        head, body = raw.split(b"]", 1)
        first = hmac.digest(KEYS[0], body, "sha256").hex()[:16].encode() in head
        return head.partition(b":")[2].partition(b"=")[0].decode() + " first" * first

    def hears(self, part: bytes) -> int:
        """How many datagrams with this part have come from the daemon."""
        self.turn()
        return sum(part in one for one in self.wire.rest())

    # -- clients

    def refusal(self, *packets: bytes, clients: int = 1) -> str:
        """Why the last of some clients was turned away or its packets were refused; empty if they were not."""
        with ExitStack() as connected:
            for _ in range(clients):
                sock = connected.enter_context(self.client())
            self.send(sock, *packets)
            sock.setblocking(False)
            found = b""
            while b"!/bccn/error" not in found:
                try:
                    found = sock.recv(frames.MAX_PACKET)
                except BlockingIOError:
                    return ""
            return found.partition(b"\0")[2].partition(b" ")[0].decode()

    def client(self, *packets: bytes) -> socket.socket:
        sock = seqpacket(str(self.folder / "bus.sock"))
        self.turn()
        self.send(sock, *packets)
        return sock

    def send(self, sock: socket.socket, *packets: bytes) -> None:
        for packet in packets:
            sock.setblocking(False)
            sock.send(packet)
            self.turn(2)
        self.turn()

    def copies(self) -> int:
        """How often a message on ``r`` is broadcast at once."""
        with self.client(frames.message(b"r", b"")):
            return self.hears(b":r|")

    def published(self) -> int:
        """How many of some messages are published at once."""
        before = self.daemon.bus.counters.published
        with self.client(*[frames.message(b"c", b"")] * 5):
            return int(self.daemon.bus.counters.published - before)

    def drops(self) -> set[str]:
        """Why messages are dropped for a client that does not read."""
        before = self.daemon.bus.counters.dropped.all()
        with self.client(frames.subscribe(b"d"), frames.LOCAL_ON), self.client(frames.request(frames.LOCAL_ON)) as sock:
            self.send(sock, *[frames.message(b"d", bytes(1000))] * 400)
            after = self.daemon.bus.counters.dropped.all()
        self.turn()
        return {reason for reason, total in after.items() if total > before.get(reason, 0)}

    def is_blocked(self) -> bool:
        """Whether a publisher still waits for a client that has asked for it, and reads nothing."""
        modes = frames.subscribe(b"b"), frames.request(frames.SOFT + b"block")
        with self.client(*modes), self.client(frames.request(frames.LOCAL_ON)) as publisher:
            reader, writer = self.daemon.bus.clients.values()
            while reader.patient and writer.blocked_packet is None:
                self.send(publisher, frames.message(b"b", bytes(1000)))
            time.sleep(2 * SHORT)
            self.turn()
            found = writer.blocked_packet is not None
        self.turn()
        return found


class Effect(NamedTuple):
    """What is seen of a key: before with ``base`` in force, after with ``value`` in its place."""

    base: Settable
    value: object
    see: Callable[[Running], object]
    before: object
    after: object


CRC: Final = {"integrity": {"algorithm": "crc32"}}
TWICE: Final = {"repeat": [{"channels": "r", "copies": 2, "spacing": 0}]}
FULL: Final = {"messages": 1_000_000, "bytes": 1 << 30}
USER: Final = {"queue_bytes": 1 << 34}


def access(**right: object) -> Settable:
    return {"access": [right]}


def subscribes(one: Running) -> str:
    return one.refusal(frames.subscribe(b"a"))


def publishes(one: Running) -> str:
    return one.refusal(frames.message(b"a", b""))


EFFECTS: Final = {
    "integrity.algorithm": Effect(
        {},
        "crc32",
        lambda one: (*one.verdicts(1), one.signs_with()),
        ("accepted", ""),
        ("integrity_missing", "crc32"),
    ),
    "integrity.keys": Effect(
        {"integrity": {"algorithm": "hmac", "keys": ["first.key"]}},
        ["second.key"],
        lambda one: (*one.verdicts(1, key=KEYS[0]), one.signs_with()),
        ("accepted", "hmac first"),
        ("integrity_failed", "hmac"),
    ),
    "integrity.signers": Effect(
        {"integrity": {"algorithm": "sig", "signers": {"": ["first.pub"]}}},
        {"": ["second.pub"]},
        Running.signed,
        "accepted",
        "integrity_failed",
    ),
    "integrity.required": Effect(CRC, False, lambda one: one.verdicts(1), ["integrity_missing"], ["accepted"]),
    "integrity.unverifiable": Effect(
        CRC, "accept", lambda one: one.verdicts(1, key=KEYS[0]), ["integrity_unknown"], ["accepted"]
    ),
    "dedup.sanity": Effect({}, 16, lambda one: one.verdicts(100, 50)[1], "stale", "restart"),
    "dedup.horizon": Effect({}, SHORT, lambda one: one.verdicts(1, 1)[1], "duplicate", "restart"),
    "dedup.late": Effect({}, "deliver", lambda one: one.verdicts(10, 12, 11)[2], "stale", "reordered"),
    "dedup.freshness": Effect({}, "monotonic", lambda one: one.verdicts(5000, 1)[1], "restart", "replayed"),
    "dedup.linked": Effect({}, True, lambda one: one.verdicts(CLOCK_MIN + 5000, CLOCK_MIN)[1], "restart", "duplicate"),
    "dedup.expire": Effect({}, SHORT, Running.is_kept, True, False),
    "dedup.max_sources": Effect({}, 1, lambda one: one.is_kept(others=1), True, False),
    "bus.max_clients": Effect({}, 1, lambda one: one.refusal(clients=2), "", "too_many_clients"),
    "bus.user.clients": Effect({}, 1, lambda one: one.refusal(clients=2), "", "too_many_clients_of_user"),
    "bus.max_subscriptions": Effect(
        {}, 1, lambda one: one.refusal(*map(frames.subscribe, (b"a", b"b"))), "", "too_many_subscriptions"
    ),
    "bus.user.subscriptions": Effect(
        {}, 1, lambda one: one.refusal(*map(frames.subscribe, (b"a", b"b"))), "", "too_many_subscriptions"
    ),
    "bus.user.wildcards": Effect({}, 0, lambda one: one.refusal(frames.subscribe(b"a/*/b")), "", "too_many_wildcards"),
    "bus.queue.messages": Effect(
        {"bus": {"queue": {**FULL, "messages": 1}, "user": USER}}, 1000, Running.drops, {"queue_messages"}, set()
    ),
    "bus.queue.bytes": Effect(
        {"bus": {"queue": {**FULL, "bytes": 4096}, "user": USER}}, 1 << 30, Running.drops, {"queue_bytes"}, set()
    ),
    "bus.user.queue_bytes": Effect(
        {"bus": {"queue": FULL, "user": {"queue_bytes": 4096}}}, 1 << 34, Running.drops, {"user_queue_bytes"}, set()
    ),
    "bus.user.rate": Effect({}, 0.001, Running.published, 5, 1),
    "bus.patience": Effect({"bus": {"patience": LONG}}, SHORT, Running.is_blocked, True, False),
    "metrics.groups": Effect(
        {"metrics": {"groups": {"one": "g"}}}, {"two": "g", "three": "h"}, Running.groups, {"one"}, {"two"}
    ),
    "heartbeat.interval": Effect({}, 0.1, lambda one: one.hears(b":heartbeat/relay01/") > 0, False, True),
    "heartbeat.dead_after": Effect(
        {"heartbeat": {"interval": 0.1, "dead_after": 1000}},
        2,
        Running.liveness,
        ("alive", "silent"),
        ("alive", "dead"),
    ),
    "reports.interval": Effect({}, 0.2, lambda one: one.hears(frames.REPORT) > 0, False, True),
    "reports.max_hosts": Effect({"reports": {"interval": 0, "max_hosts": 3}}, 2, Running.hosts, (3, 3), (2, 2)),
    "repeat.channels": Effect(TWICE, "other", Running.copies, 2, 1),
    "repeat.copies": Effect(TWICE, 3, Running.copies, 2, 3),
    "repeat.spacing": Effect(TWICE, 60, Running.copies, 2, 1),
    "access.user": Effect(access(user=ME, subscribe=[]), "4999", subscribes, "not_permitted", ""),
    "access.group": Effect(access(group=OUR_GROUP, subscribe=[]), "4999", subscribes, "not_permitted", ""),
    "access.program": Effect(access(program=PROGRAM, subscribe=[]), "other", subscribes, "not_permitted", ""),
    "access.publish": Effect(access(publish=["b"]), ["a"], publishes, "not_permitted", ""),
    "access.subscribe": Effect(access(subscribe=["b"]), ["a"], subscribes, "not_permitted", ""),
    "access.tap": Effect(
        access(tap=False), True, lambda one: one.refusal(frames.subscribe(frames.TAP)), "not_permitted", ""
    ),
    "access.tag": Effect(
        access(tag=False), True, lambda one: one.refusal(frames.request(frames.TAG, b"x")), "not_permitted", ""
    ),
    "access.link": Effect(
        access(link=False), True, lambda one: one.refusal(frames.subscribe(frames.LINK)), "not_permitted", ""
    ),
}
#: gateways that can be started
GATEWAYS: Final[dict[str, Settable]] = {
    "nng": {"listen": ["tcp://127.0.0.1:5402"]},
    "broker": {"tcp": "127.0.0.1:5401", "udp": "127.0.0.1:5401"},
}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    # It ends with its standard input, as gateways do.
    monkeypatch.setattr(gateway_processes, "python_command", lambda *_: ["/bin/cat"])
    with ExitStack() as cleanup:
        yield Running(tmp_path, cleanup)


def changed(base: Settable, key: str, value: object) -> Settable:
    """Return settings with another value at a key; of a list, in its first entry."""
    settings = copy.deepcopy(base)
    section: Any = settings
    *above, last = key.split(".")
    for name in above:
        section = section.setdefault(name, {})
        section = section[0] if isinstance(section, list) else section
    section[last] = value
    return settings


def reloadable_keys(model: type[BaseModel] = Settings, above: str = "") -> Iterator[str]:
    """Yield the keys of the daemon that a reload can change. Gateways and the recorder read their own."""
    for name, field in model.model_fields.items():
        key = f"{above}{name}"
        section = section_of(field.annotation)
        if key in (*RESTART_KEYS, "gateways", "recorder"):
            continue
        yield from [key] if section is None else reloadable_keys(section, f"{key}.")


def section_of(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(section_of, get_args(annotation))), None)


def test_each_key_that_a_reload_can_change_has_an_effect(running: Running) -> None:
    assert set(reloadable_keys()) == set(EFFECTS)
    for key, effect in EFFECTS.items():
        for value, settings in (
            (effect.before, effect.base),
            (effect.after, changed(effect.base, key, effect.value)),
        ):
            running.reload(settings)
            assert not running.daemon.refused, key
            turn_until(running.daemon.loop, lambda: effect.see(running) == value, f"{key}: {value}")  # noqa: B023


def test_a_gateway_whose_settings_change_is_started_anew(running: Running) -> None:
    for name, section in GATEWAYS.items():
        process = running.daemon.gateway_processes[name]
        starts = []
        for queue in (8192, 4096, 4096):
            running.reload({"gateways": {name: {**section, "queue": queue}}})
            assert not running.daemon.refused
            starts.append(process.starts)
        assert starts == [1, 2, 2], name
    running.reload({})
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    turn_until(running.daemon.loop, lambda: not children.read_text(), "the end of gateways")


def test_a_reload_whose_last_part_fails_changes_nothing(running: Running) -> None:
    effects = [effect for key, effect in EFFECTS.items() if not effect.base and not key.startswith("integrity")]
    settings: Settable = {"access": [{"user": ME, "subscribe": []}]}
    for key, effect in EFFECTS.items():
        if effect in effects:
            settings = changed(settings, key, effect.value)
    running.reload(settings, resolve=False)
    assert running.daemon.refused
    assert [effect.see(running) for effect in effects] == [effect.before for effect in effects]
