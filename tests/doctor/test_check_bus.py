"""Sockets, group, daemon, traffic, gateways, metrics: each row changes one answer of a host that is well."""

from __future__ import annotations

from dataclasses import replace
from http.client import BadStatusLine
from typing import Any

import pytest

from bccnd.doctor import check_bus
from bccnd.doctor.probe_daemon import DaemonAnswer
from bccnd.doctor.probe_host import BusSocket, User
from bccnd.snapshot import GatewayState
from tests.doctor.probes import ANSWER, STATUS, assert_found, probe

BCCN = frozenset({"bccn"})


@pytest.mark.parametrize(
    ("found", "state", "text", "remedy"),
    [
        (BusSocket("", 0o660, "bccn"), "ok", "mode 0660, group bccn; ann may connect", ""),
        (BusSocket("", 0o666, "bccn"), "look", "has mode 0666, group bccn, not 0660, bccn", "SocketMode="),
        (BusSocket("", 0o660, "root"), "look", "group root, not 0660, bccn", "SocketGroup="),
        (BusSocket("EACCES", 0o660, "bccn"), "look", "ann may not connect", "see group"),
        (BusSocket("ENOENT"), "wrong", "does not exist", "systemctl start bccnd"),
        (BusSocket("ENOTSOCK"), "wrong", "is not a socket", "systemctl restart bccnd"),
        (BusSocket("ECONNREFUSED", 0o660, "bccn"), "wrong", "no program listens", "systemctl restart bccnd"),
        (BusSocket("EAGAIN", 0o660, "bccn"), "wrong", "queue of connections", "systemctl restart bccnd"),
        (BusSocket("EPROTOTYPE"), "wrong", "EPROTOTYPE", "systemctl status bccnd"),
    ],
)
def test_socket(found: BusSocket, state: str, text: str, remedy: str) -> None:
    assert_found(check_bus.check_socket(probe(bus_socket=found)), state, text, remedy)


@pytest.mark.parametrize(
    ("user", "found", "state", "remedy"),
    [
        (User("ann", BCCN, BCCN), BusSocket("", 0o660, "bccn"), "ok", ""),
        (User("root"), BusSocket("ENOENT"), "ok", ""),
        (User("ann"), BusSocket("", 0o666, "bccn"), "ok", ""),
        (User("ann", BCCN), BusSocket("EACCES", 0o660, "bccn"), "look", "newgrp bccn"),
        (User("ann"), BusSocket("EACCES", 0o660, "bccn"), "look", "adduser ann bccn"),
        (User("ann"), BusSocket("ENOENT"), "look", "adduser ann bccn"),
        (User("ann"), BusSocket("EACCES", 0o660, "root"), "look", "set bus.group: bccn"),
    ],
)
def test_group(user: User, found: BusSocket, state: str, remedy: str) -> None:
    assert_found(check_bus.check_group(probe(user=user, bus_socket=found)), state, "", remedy)


@pytest.mark.parametrize(
    ("answer", "state", "text", "remedy"),
    [
        (ANSWER, "ok", "pid 77, relay01", ""),
        (replace(ANSWER, status=replace(STATUS, version="0.0.1")), "look", "is installed", "systemctl restart bccnd"),
        (replace(ANSWER, seconds=0.9), "look", "slow", "bccn top"),
        (DaemonAnswer(seconds=0.001), "look", "bccn-sbusd", "--socket"),
        (DaemonAnswer("no_daemon", "cannot reach"), "wrong", "no daemon answers", "systemctl start bccnd"),
        (DaemonAnswer("no_answer", "", 3.0, pid=7, state="T"), "wrong", "SIGSTOP", "kill -CONT 7"),
        (DaemonAnswer("no_answer", "", 3.0, pid=7, state="R"), "wrong", "the daemon hangs", "systemctl restart"),
        (DaemonAnswer("not_permitted", "Permission denied"), "not checked", "Permission denied", "adduser"),
        (DaemonAnswer("connection_lost", "gone"), "wrong", "ended the connection: gone", "systemctl status"),
    ],
)
def test_daemon(answer: DaemonAnswer, state: str, text: str, remedy: str) -> None:
    assert_found(check_bus.check_daemon(probe(daemon=answer)), state, text, remedy)


def test_without_systemd_no_remedy_asks_for_it() -> None:
    found = check_bus.check_daemon(probe(systemd=False, daemon=DaemonAnswer("no_daemon")))
    assert [one.remedy for one in found] == ["bccnd --config FILE, or name its socket: --socket"]


@pytest.mark.parametrize(
    ("counted", "state", "text"),
    [
        ({}, "ok", "none was lost"),
        ({"verdicts": {"integrity_failed": 3}}, "look", "(integrity_failed). Integrity check failed: signed with"),
        ({"verdicts": {"integrity_failed": 3}}, "look", "3 of 10 datagrams were refused"),
        ({"verdicts": {"duplicate": 9, "looped": 4, "not_addressed": 1}}, "ok", "none was lost"),
        ({"lost": 4}, "look", "4 messages were lost"),
        ({"dropped": {"queue_messages": 5, "client_gone": 9}}, "look", "5 messages to local programs were dropped"),
        ({"dropped": {"client_gone": 9}}, "ok", "none was lost"),
    ],
)
def test_traffic(counted: dict[str, Any], state: str, text: str) -> None:
    assert_found(check_bus.check_traffic(probe(daemon=replace(ANSWER, status=replace(STATUS, **counted)))), state, text)


NNG = {"nng": {"dial": ["tcp://10.0.0.2:5401"]}}
ROW = GatewayState("nng", up=True, peers_connected=1)


@pytest.mark.parametrize(
    ("gateways", "rows", "state", "text"),
    [
        ({}, [], "ok", "none are configured"),
        (NNG, [ROW], "ok", "nng runs with 1 peer"),
        (NNG, [replace(ROW, peers_connected=0)], "look", "0 of 1 peers"),
        (NNG, [replace(ROW, up=False)], "wrong", "does not run"),
        (NNG, [], "wrong", "does not run"),
    ],
)
def test_gateways(gateways: dict[str, Any], rows: list[GatewayState], state: str, text: str) -> None:
    made = probe({"gateways": gateways}, daemon=replace(ANSWER, gateways=rows))
    assert_found(check_bus.check_gateways(made), state, text)


def test_without_a_daemon_traffic_and_gateways_are_unknown() -> None:
    silent = probe({"gateways": NNG}, daemon=DaemonAnswer("no_daemon"))
    assert [one.state for one in check_bus.check_traffic(silent)] == ["not checked"]
    assert [one.state for one in check_bus.check_gateways(silent)] == ["not checked"]


@pytest.mark.parametrize(
    ("listen", "answer", "state", "text"),
    [
        ("127.0.0.1:9540", None, "ok", "http://127.0.0.1:9540/metrics answers"),
        ("off", None, "ok", "off"),
        ("0.0.0.0:9540", None, "look", "without a password"),
        ("[::1]:9540", ConnectionRefusedError(), "wrong", "http://[::1]:9540/metrics does not"),
        ("127.0.0.1:9540", OSError("status 404"), "wrong", "status 404"),
        ("127.0.0.1:9540", BadStatusLine("x"), "wrong", "does not answer: x"),
    ],
)
def test_metrics(listen: str, answer: object, state: str, text: str) -> None:
    made = probe({"metrics": {"listen": listen}}, get_metrics=answer)
    assert_found(check_bus.check_metrics(made), state, text)
