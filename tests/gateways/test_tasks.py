"""Tasks of gateways: none ends unseen."""

from __future__ import annotations

import asyncio
import socket
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
from tests.gateways.peers import PATIENCE, RawPeer, RunningGateway, place, url
from tests.support import free_port, wait


class Bug(Exception):
    """What nothing expects."""


def broker(folder: Path, port: int) -> BrokerGateway:
    settings = BrokerSettings(tcp=f"127.0.0.1:{port}", state="state.db")  # type: ignore[arg-type]
    return BrokerGateway(settings, str(folder / "bus.sock"), str(folder))


def nng(folder: Path, **section: Any) -> NngGateway:
    settings = NngSettings.model_validate(section)
    return NngGateway(settings, str(folder / "bus.sock"), folder=str(folder), horizon=2.0)


def refused_twice(where: tuple[str, int]) -> None:
    """Connect twice to what ends each connection."""
    for _ in range(2):
        with socket.create_connection(where, PATIENCE) as failed:
            assert failed.recv(1) == b""


def test_a_gateway_whose_work_fails_does_not_go_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_store: SessionStore) -> None:
        raise Bug

    monkeypatch.setattr(SessionStore, "write_changes", fail)
    with pytest.raises(Bug):
        asyncio.run(asyncio.wait_for(broker(tmp_path, free_port()).run(asyncio.Event()), PATIENCE))


def test_a_link_that_fails_by_a_bug_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At both ends of a link, making a connection fails twice; one that was made and ends is made again, too."""
    ours, theirs = url(), url()
    failures = {True: 2, False: 2}

    def fail(*words: object, accepted: bool, **more: object) -> LinkConnection:
        failures[accepted] -= 1
        if failures[accepted] >= 0:
            raise Bug
        return LinkConnection(*words, accepted=accepted, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("bccnd.gateways.nng.endpoints.LinkConnection", fail)
    with (
        socket.create_server(place(theirs)) as server,
        RunningGateway(nng(tmp_path, listen=[ours], dial=[theirs]), bugs=4),
    ):
        server.settimeout(PATIENCE)
        refused_twice(place(ours))
        RawPeer(ours).close()
        for _ in range(4):
            server.accept()[0].close()


@pytest.mark.parametrize("fault", [ValueError("a"), UnicodeError("label empty or too long")])
def test_a_lookup_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    where = url()
    attempts: list[Exception] = [fault, fault]

    def fail(host: str, port: int, kind: socket.SocketKind) -> object:
        if attempts:
            raise attempts.pop()
        return look_up(host, port, kind)

    monkeypatch.setattr("bccnd.gateways.nng.endpoints.look_up", fail)
    with socket.create_server(place(where)) as server, RunningGateway(nng(tmp_path, dial=[where]), bugs=2):
        server.settimeout(PATIENCE)
        server.accept()[0].close()


def test_a_subscriber_that_fails_by_a_bug_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [Bug(), Bug()]

    def fail(*words: Any) -> Subscriber:
        if failures:
            raise failures.pop()
        return Subscriber(*words)

    monkeypatch.setattr("bccnd.gateways.broker.subscriber_server.Subscriber", fail)
    where = ("127.0.0.1", free_port())
    with RunningGateway(broker(tmp_path, where[1]), bugs=2) as running:
        refused_twice(where)
        with socket.create_connection(where, PATIENCE) as sock:
            sock.sendall(b"C1".ljust(11, b"\0"))
            wait(lambda: running.texts("peer_connected"), "the subscriber", PATIENCE)
