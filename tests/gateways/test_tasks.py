"""Gateways in this process: no task of theirs ends unseen, and patience with strangers ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from bccnd.config.gateway_schema import BrokerSettings, NngSettings
from bccnd.gateways.broker.gateway import BrokerGateway
from bccnd.gateways.broker.session_store import SessionStore
from bccnd.gateways.broker.subscriber import Subscriber
from bccnd.gateways.nng.connection import LinkConnection
from bccnd.gateways.nng.gateway import NngGateway
from bccnd.net.host_lookup import look_up
from tests.gateways import certificates
from tests.gateways.logs import Events
from tests.gateways.peers import HELLO, PATIENCE, RawPeer, place, url
from tests.support import free_port, wait


class Bug(Exception):
    """What nothing expects."""


def broker(folder: Path, port: int) -> BrokerGateway:
    settings = BrokerSettings(tcp=f"127.0.0.1:{port}", state="state.db")  # type: ignore[arg-type]
    return BrokerGateway(settings, str(folder / "bus.sock"), str(folder))


def nng(folder: Path, **section: Any) -> NngGateway:
    settings = NngSettings.model_validate(section)
    return NngGateway(settings, str(folder / "bus.sock"), folder=str(folder), horizon=2.0)


def during(gateway: BrokerGateway | NngGateway, work: Callable[[], None]) -> int:
    """Do blocking work while a gateway runs; return the number of bugs that it has counted."""

    async def scenario() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        running = loop.create_task(gateway.run(stop))
        await loop.run_in_executor(None, work)
        stop.set()
        await running

    asyncio.run(asyncio.wait_for(scenario(), 2 * PATIENCE))
    return gateway.status.dropped.get("bug", 0)


def refused_twice(where: tuple[str, int]) -> None:
    """Connect twice to what ends each connection."""
    for _ in range(2):
        with socket.create_connection(where, PATIENCE) as failed:
            assert failed.recv(1) == b""


@pytest.fixture
def events() -> Iterator[Events]:
    with closing(Events()) as one:
        yield one


def test_a_gateway_whose_work_fails_does_not_go_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_store: SessionStore) -> None:
        raise Bug

    monkeypatch.setattr(SessionStore, "write_changes", fail)
    with pytest.raises(Bug):
        asyncio.run(asyncio.wait_for(broker(tmp_path, free_port()).run(asyncio.Event()), PATIENCE))


def test_a_link_that_fails_by_a_bug_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """At both ends of a link, making a connection fails twice; one that was made and ends is made again, too."""
    ours, theirs = url(), url()
    failures = {True: 2, False: 2}

    def fail(*words: object, accepted: bool, **more: object) -> LinkConnection:
        failures[accepted] -= 1
        if failures[accepted] >= 0:
            raise Bug
        return LinkConnection(*words, accepted=accepted, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("bccnd.gateways.nng.endpoints.LinkConnection", fail)
    with socket.create_server(place(theirs)) as server:
        server.settimeout(PATIENCE)

        def work() -> None:
            wait(lambda: events.texts("gateway_ready"), "the listener", PATIENCE)
            refused_twice(place(ours))
            RawPeer(ours).close()
            for _ in range(4):
                server.accept()[0].close()

        assert during(nng(tmp_path, listen=[ours], dial=[theirs]), work) == 4
    assert events.texts("internal_error")


@pytest.mark.parametrize("fault", [ValueError("a"), UnicodeError("label empty or too long")])
def test_a_lookup_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    where = url()
    attempts: list[Exception] = [fault, fault]

    def fail(host: str, port: int, kind: socket.SocketKind) -> object:
        if attempts:
            raise attempts.pop()
        return look_up(host, port, kind)

    monkeypatch.setattr("bccnd.gateways.nng.endpoints.look_up", fail)
    with socket.create_server(place(where)) as server:
        server.settimeout(PATIENCE)
        assert during(nng(tmp_path, dial=[where]), lambda: server.accept()[0].close()) == 2


def test_a_subscriber_that_fails_by_a_bug_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    failures = [Bug(), Bug()]

    def fail(*words: Any) -> Subscriber:
        if failures:
            raise failures.pop()
        return Subscriber(*words)

    monkeypatch.setattr("bccnd.gateways.broker.subscriber_server.Subscriber", fail)
    where = ("127.0.0.1", free_port())

    def work() -> None:
        wait(lambda: events.texts("gateway_ready"), "the listener", PATIENCE)
        refused_twice(where)
        with socket.create_connection(where, PATIENCE) as sock:
            sock.sendall(b"C1".ljust(11, b"\0"))
            wait(lambda: events.texts("peer_connected"), "the subscriber", PATIENCE)

    assert during(broker(tmp_path, where[1]), work) == 2


def test_a_connection_without_a_greeting_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    monkeypatch.setattr("bccnd.gateways.nng.connection._GREETING_TIMEOUT", 0.2)
    certificates.make(tmp_path)
    plain, encrypted = url(), url().replace("tcp://", "tls+tcp://")
    files = {"ca": "ca.pem", "certificate": "relay01.pem", "key": "relay01.key"}
    gateway = nng(tmp_path, listen=[plain, encrypted], tls=files)
    dropped = gateway.status.dropped

    def work() -> None:
        wait(lambda: events.texts("gateway_ready"), "the listeners", PATIENCE)
        silent = [(plain, HELLO[:5]), (encrypted, b""), (encrypted, b"\0" * 600)]
        with ExitStack() as stack:
            strangers = [stack.enter_context(RawPeer(where, hello)) for where, hello in silent]
            wait(lambda: all(stranger.ended() for stranger in strangers), "the end of all", PATIENCE)
        RawPeer(plain, b"").close()
        RawPeer(plain, HELLO[:5]).close()
        wait(lambda: (dropped.get("no_id"), dropped.get("malformed")) == (3, 2), "counts", PATIENCE)

    assert during(gateway, work) == 0
