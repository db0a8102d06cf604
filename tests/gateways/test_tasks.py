"""Tasks of gateways: none ends unseen."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bccnd.config.gateway_schema import BrokerSettings, NngSettings
from bccnd.gateways import base
from bccnd.gateways.broker.gateway import BrokerGateway
from bccnd.gateways.broker.session_store import SessionStore
from bccnd.gateways.broker.subscriber import Subscriber
from bccnd.gateways.nng.connection import LinkConnection
from bccnd.gateways.nng.gateway import NngGateway
from bccnd.net.host_lookup import look_up
from tests.gateways.logs import Events
from tests.gateways.peers import PATIENCE, RawPeer, place, url
from tests.support import free_port, wait


class Bug(Exception):
    """What nothing expects."""


def test_a_task_that_fails_ends_the_gateway_with_its_exception() -> None:
    async def fail() -> None:
        raise Bug

    async def scenario() -> None:
        stop = asyncio.Event()
        async with base.Tasks(stop) as tasks:
            lasting = tasks.start(asyncio.sleep(3600))
            tasks.start(fail())
            await asyncio.wait_for(stop.wait(), PATIENCE)
        assert lasting.cancelled()

    with pytest.raises(Bug):
        asyncio.run(scenario())


def test_a_gateway_whose_work_fails_does_not_go_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_store: SessionStore) -> None:
        raise Bug

    monkeypatch.setattr(SessionStore, "write_changes", fail)
    settings = BrokerSettings(tcp=f"127.0.0.1:{free_port()}", state="state.db")  # type: ignore[arg-type]
    gateway = BrokerGateway(settings, str(tmp_path / "bus.sock"), str(tmp_path))
    with pytest.raises(Bug):
        asyncio.run(asyncio.wait_for(gateway.run(asyncio.Event()), PATIENCE))


def test_a_connection_that_fails_by_a_bug_is_logged_counted_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both ends of a link, making a connection fails twice."""
    ours, theirs = url(), url()
    failures = {True: 2, False: 2}

    def fail(*words: object, accepted: bool, **more: object) -> LinkConnection:
        failures[accepted] -= 1
        if failures[accepted] >= 0:
            raise Bug
        return LinkConnection(*words, accepted=accepted, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("bccnd.gateways.nng.endpoints.LinkConnection", fail)

    def dial() -> None:
        wait(lambda: events.texts("gateway_ready"), "the listener", PATIENCE)
        for _ in range(2):
            with socket.create_connection(place(ours), PATIENCE) as failed:
                assert failed.recv(1) == b""
        RawPeer(ours).close()

    async def scenario(gateway: NngGateway) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        running = loop.create_task(gateway.run(stop))
        with socket.create_server(place(theirs)) as server:
            server.settimeout(PATIENCE)
            await loop.run_in_executor(None, dial)
            for _ in range(3):
                accepted, _ = await loop.run_in_executor(None, server.accept)
                accepted.close()
        stop.set()
        await asyncio.wait_for(running, PATIENCE)

    settings = NngSettings(listen=(ours,), dial=(theirs,))
    gateway = NngGateway(settings, str(tmp_path / "bus.sock"), folder=str(tmp_path), horizon=2.0)
    with closing(Events()) as events:
        asyncio.run(asyncio.wait_for(scenario(gateway), 2 * PATIENCE))
    assert gateway.status.dropped["bug"] == 4
    assert [more for event, _, more in events.records if event == "internal_error"]


@pytest.mark.parametrize("fault", [ValueError("a"), UnicodeError("label empty or too long")])
def test_a_lookup_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    where = url()
    attempts: list[Exception] = [fault, fault]

    def fail(host: str, port: int, kind: socket.SocketKind) -> object:
        if attempts:
            raise attempts.pop()
        return look_up(host, port, kind)

    monkeypatch.setattr("bccnd.gateways.nng.endpoints.look_up", fail)

    async def scenario() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        gateway = NngGateway(NngSettings(dial=(where,)), str(tmp_path / "bus.sock"), folder="", horizon=2.0)
        with socket.create_server(place(where)) as server:
            server.settimeout(PATIENCE)
            running = loop.create_task(gateway.run(stop))
            accepted, _ = await loop.run_in_executor(None, partial(server.accept))
            accepted.close()
        stop.set()
        await asyncio.wait_for(running, PATIENCE)
        return gateway.status.dropped["bug"]

    assert asyncio.run(scenario()) == 2


def test_a_subscriber_whose_connection_fails_by_a_bug_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [Bug(), Bug()]

    def fail(*words: Any) -> Subscriber:
        if failures:
            raise failures.pop()
        return Subscriber(*words)

    monkeypatch.setattr("bccnd.gateways.broker.subscriber_server.Subscriber", fail)
    where = ("127.0.0.1", free_port())

    def connect() -> None:
        wait(lambda: events.texts("gateway_ready"), "the listener", PATIENCE)
        for _ in range(2):
            with socket.create_connection(where, PATIENCE) as failed:
                assert failed.recv(1) == b""
        with socket.create_connection(where, PATIENCE) as sock:
            sock.sendall(b"C1".ljust(11, b"\0"))
            wait(lambda: events.texts("peer_connected"), "the subscriber", PATIENCE)

    async def scenario(gateway: BrokerGateway) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        running = loop.create_task(gateway.run(stop))
        await loop.run_in_executor(None, connect)
        stop.set()
        await running

    settings = BrokerSettings(tcp=f"{where[0]}:{where[1]}", state="state.db")  # type: ignore[arg-type]
    gateway = BrokerGateway(settings, str(tmp_path / "bus.sock"), str(tmp_path))
    with closing(Events()) as events:
        asyncio.run(asyncio.wait_for(scenario(gateway), 2 * PATIENCE))
    assert gateway.status.dropped["bug"] == 2
