"""The broker with limits so short that a test can see them, and its log while things go wrong."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from bccnd.config import BrokerSettings
from bccnd.drop_catalog.drops import GATEWAY_REASONS
from bccnd.errors import StartError
from bccnd.gateways.broker.codec import DISCONNECT, MESSAGE, STRING, SUBSCRIBE, UNSUBSCRIBE
from bccnd.gateways.broker.gateway import BrokerGateway
from bccnd.gateways.broker.subscriber import MAX_REQUESTS, Subscriber
from bccnd.gateways.broker.subscriber_server import listen
from tests.e2e.brokers import asking, publication, took_apart
from tests.e2e.harness import BIN, PATIENCE, wait
from tests.gateways.peers import RunningGateway
from tests.refusals import refused
from tests.support import free_port


class Running(RunningGateway):
    """A broker without a daemon."""

    def __init__(self, folder: Path, *, patience: float = 30.0, **section: Any) -> None:
        self.tcp, self.udp = free_port(), free_port()
        places = {"tcp": f"127.0.0.1:{self.tcp}", "udp": f"127.0.0.1:{self.udp}"}
        settings = BrokerSettings.model_validate({**places, "state": "subscriptions.db", **section})
        super().__init__(BrokerGateway(settings, str(folder / "none"), str(folder), patience=patience))
        self.publisher = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.publisher.close()
        super().__exit__(kind, *rest)
        # Others would be shown nowhere.
        assert set(self.gateway.status.dropped) <= set(GATEWAY_REASONS)

    def sub(self, name: bytes, *topics: bytes, receive_buffer: int = 0) -> socket.socket:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(PATIENCE)
        sock.connect(("127.0.0.1", self.tcp))
        sock.sendall(name.ljust(11, b"\0") + b"".join(asking(SUBSCRIBE, topic) for topic in topics))
        return sock

    def publish(self, topic: bytes, text: bytes) -> None:
        self.publisher.sendto(publication(topic, STRING, text), ("127.0.0.1", self.udp))

    def receive(self, sock: socket.socket) -> bytes:
        return took_apart(sock.recv(MESSAGE, socket.MSG_WAITALL)).data

    def ready(self, name: bytes, topic: bytes = b"a", receive_buffer: int = 0) -> socket.socket:
        """A subscriber whose subscription is in force."""
        sock = self.sub(name, topic, receive_buffer=receive_buffer)
        self.published_until_heard(sock, topic)
        return sock

    def serves(self, sock: socket.socket) -> None:
        """What is published now comes to a subscriber, behind what was published before."""
        self.publish(b"a", b"still served")
        while self.receive(sock) != b"still served":
            pass

    def published_until_heard(self, sock: socket.socket, topic: bytes) -> None:
        """Publish again and again until it comes: then its subscription is in force."""
        sock.settimeout(0.05)
        for number in range(400):
            self.publish(topic, b"%d" % number)
            with suppress(TimeoutError):
                sock.recv(MESSAGE, socket.MSG_WAITALL)
                break
        else:
            raise AssertionError("it never comes")
        sock.settimeout(PATIENCE)


@pytest.mark.parametrize("years", [30, -30])
def test_a_clock_that_is_set_forgets_no_subscriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """Also with a restart behind it."""
    wall = time.time
    with Running(tmp_path, expire=3600, hello=0.2) as broker:
        broker.ready(b"absent").close()
        wait(lambda: not broker.gateway.status.peers, "it to leave", PATIENCE)
        monkeypatch.setattr(time, "time", lambda: wall() + years * 365 * 86_400)
        # The sessions are checked once before this one is ended.
        with broker.sub(b"") as silent:
            assert silent.recv(1) == b""
    with Running(tmp_path, expire=3600) as broker:
        with broker.sub(b"absent") as sock:
            broker.published_until_heard(sock, b"a")
        assert "id_expired" not in broker.gateway.status.dropped


def test_of_subscribers_that_have_left_nothing_stays(tmp_path: Path) -> None:
    """Neither do those that cost many steps to match."""
    deep = b"a/" * 24 + b"a"
    with Running(tmp_path) as broker:
        for number in range(40):
            with broker.sub(b"%d" % number, b"/".join([b"*/a"] * 12)) as sock:
                broker.published_until_heard(sock, deep)
        wait(lambda: not broker.gateway.status.peers, "all to leave", PATIENCE)
        gc.collect()
        assert sum(isinstance(one, Subscriber) for one in gc.get_objects()) <= 2


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Running]:
    """A broker whose daemon is not there."""
    with Running(tmp_path) as one:
        yield one


@pytest.mark.parametrize("topic", [b"*/a/" * 12 + b"*/", b"+/" * 25, b"/" * 50, b"*/+/" * 12 + b"a"])
def test_any_topic_but_not_any_number_of_wildcards_is_accepted(nowhere: Running, topic: bytes) -> None:
    mine = topic.replace(b"*", b"x").replace(b"+", b"y")
    with nowhere.sub(b"C1", topic) as one, nowhere.sub(b"C2", b"*/a/" * 12 + b"*/", *[b"*/z/+"] * 2, b"z/z/z") as two:
        nowhere.published_until_heard(one, mine)
        nowhere.published_until_heard(two, b"z/z/z")
        assert nowhere.gateway.status.dropped["too_many_wildcards"] == 2


def test_one_that_takes_nothing_and_loses_messages_is_ended(tmp_path: Path) -> None:
    with (
        Running(tmp_path, patience=0.5, queue=8192) as broker,
        broker.ready(b"SLOW", receive_buffer=4096) as slow,
        broker.ready(b"QUICK") as quick,
    ):
        end = time.monotonic() + PATIENCE
        while not broker.texts("peer_ended"):
            assert time.monotonic() < end
            broker.publish(b"a", b"more")
            assert broker.receive(quick)
        assert "SLOW" in broker.texts("peer_ended")[0]
        assert broker.gateway.status.dropped["slow"] == 1
        assert broker.gateway.status.dropped["queue_full"] > 0
        # What it was sent before is still there for it, and then the end.
        with suppress(ConnectionResetError):
            while slow.recv(65_536):
                pass
        broker.serves(quick)


@pytest.mark.parametrize(
    ("hello", "said", "dropped"),
    [
        (b"C2", asking(DISCONNECT, b"whatever stands here"), {}),
        (b"", b"", {"no_id": 1}),
        (b"C2", asking(DISCONNECT + 1), {"malformed": 1}),
        (b"C2", asking(SUBSCRIBE) + asking(SUBSCRIBE, b"x" * 51), {"malformed": 2, "idle": 1}),
        (b"C2", b"", {"idle": 1}),
    ],
    ids=["disconnects", "no id", "no request", "no topics", "silent"],
)
def test_strangers_are_ended_and_counted(tmp_path: Path, hello: bytes, said: bytes, dropped: dict[str, int]) -> None:
    """One with a subscription may be silent."""
    with Running(tmp_path, idle=0.1, hello=0.1) as broker, broker.ready(b"C1") as one, broker.sub(hello) as stranger:
        stranger.sendall(said)
        assert stranger.recv(1) == b""
        broker.serves(one)
        counts = broker.gateway.status.dropped
        assert {reason: counts[reason] for reason in ("no_id", "malformed", "idle") if counts.get(reason)} == dropped


def test_an_address_of_no_host_is_refused_at_once() -> None:
    """One that is taken is waited for: tests/cli/test_gateway.py."""
    with refused("cannot_listen", kind=StartError):
        listen(socket.SOCK_DGRAM, ("192.0.2.1", 1), 45.0)


def test_neither_a_bad_file_nor_a_missing_daemon_stops_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("where a folder should be")
    state = str(tmp_path / "file" / "subscriptions.db")
    with Running(tmp_path, state=state) as broker, broker.ready(b"C1") as one:
        for event, name in (("state_not_written", state), ("daemon_away", str(tmp_path / "none"))):
            wait(lambda event=event: broker.texts(event), "the line")  # type: ignore[misc]
            assert [name in text for text in broker.texts(event)] == [True]
        broker.serves(one)
        assert broker.gateway.status.dropped["not_connected"] > 0


@pytest.mark.slow
def test_a_flood_of_requests_waits_its_turn(nowhere: Running) -> None:
    flood = b"".join(asking(SUBSCRIBE, b"t/+") + asking(UNSUBSCRIBE, b"t/+") for _ in range(3 * MAX_REQUESTS))
    with nowhere.sub(b"FLOOD") as one, nowhere.ready(b"C2") as other:
        sending = threading.Thread(target=lambda: one.sendall(flood + asking(SUBSCRIBE, b"end")))
        began = time.monotonic()
        sending.start()
        nowhere.published_until_heard(one, b"end")  # nothing is lost of it
        sending.join()
        # The first thousands are free, as is what was read with them.
        assert time.monotonic() - began > 2.0
        nowhere.serves(other)


def test_the_oldest_connection_without_an_id_gives_way(tmp_path: Path) -> None:
    with Running(tmp_path, max_connections=3, hello=600.0) as broker, ExitStack() as stack:
        first = stack.enter_context(broker.ready(b"C1"))
        address = "127.0.0.1", broker.tcp
        silent = [stack.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(2)]
        wait(lambda: broker.gateway.status.connects == 3, "all to be there")
        for number, one in enumerate(silent):
            stack.enter_context(broker.ready(b"LATE%d" % number))
            assert one.recv(1) == b""
        broker.serves(first)
        with broker.sub(b"C4") as refused_one, suppress(ConnectionResetError):
            assert refused_one.recv(1) == b""
        dropped = broker.gateway.status.dropped
        wait(lambda: (dropped.get("no_id"), dropped.get("too_many_peers")) == (2, 1), "the counts")


def test_messages_are_not_held_back_and_silent_hosts_are_ended() -> None:
    with (
        listen(socket.SOCK_STREAM, ("127.0.0.1", 0), 45.0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert 0 < accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000


def test_strangers_cannot_take_the_brokers_own_descriptors(tmp_path: Path) -> None:
    address = ("127.0.0.1", free_port())
    place = "{}:{}".format(*address)
    log, config = tmp_path / "log", tmp_path / "bccnd.yaml"
    section = {"tcp": place, "udp": place, "state": "state.db", "hello": "1s"}
    config.write_text(json.dumps({"bus": {"path": str(tmp_path / "none")}, "gateways": {"broker": section}}))
    few = ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", str(BIN / "bccnd")]
    with log.open("w") as out:
        words = [*few, "--gateway", "broker", "--config", str(config)]
        broker = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    crowd: list[socket.socket] = []
    try:
        wait(lambda: "the broker serves" in log.read_text(), "the broker")
        one = socket.create_connection(address, PATIENCE)
        one.sendall(b"C1".ljust(11, b"\0") + asking(SUBSCRIBE, b"a"))
        wait(lambda: "connected as C1" in log.read_text(), "it")
        crowd = [one, *(socket.create_connection(address, PATIENCE) for _ in range(60))]
        wait(lambda: "was refused" in log.read_text(), "some of them to be refused")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as publisher:
            publisher.sendto(publication(b"a", STRING, b"still served"), address)
        assert took_apart(one.recv(MESSAGE, socket.MSG_WAITALL)).data == b"still served"
        # The file could be written meanwhile, and when the crowd has gone others are let in.
        wait((tmp_path / "state.db").exists, "the file")
        while "connected as LATE" not in log.read_text():
            late = socket.create_connection(address, PATIENCE)
            crowd.append(late)
            with suppress(ConnectionError):
                late.sendall(b"LATE".ljust(11, b"\0"))
            time.sleep(0.1)
        assert "cannot be written" not in log.read_text()
        assert "because of a bug" not in log.read_text(), log.read_text()
    finally:
        for sock in crowd:
            sock.close()
        broker.kill()
        broker.wait()
