"""The checks: each row changes an answer of a host that is well, and says what comes of it and what helps; and what
comes of all of them."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.client import BadStatusLine
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest

from bccnd.doctor import check_bus, check_files, check_host, check_network, runner
from bccnd.doctor.probe import Probe, Target
from bccnd.doctor.probe_daemon import DaemonAnswer, RoundTrip
from bccnd.doctor.probe_host import BusSocket, ProbeError, UdpSocket, User, Warned
from bccnd.doctor.result import CheckFinding, Result, exit_status, summary
from bccnd.errors import Fault, StartError
from bccnd.snapshot import GatewayState
from tests.doctor.probes import ANSWER, LAN, STATUS, assert_found, probe

Check = Callable[[Probe], Iterator[CheckFinding]]
Answers = dict[str, Any]


class Row(NamedTuple):
    """A state that is found, and a part of its remedy; what differs from a host that is well."""

    state: str
    remedy: str = ""
    answers: Answers | None = None
    settings: Answers | None = None


MISSING: Final = FileNotFoundError(2, "No such file or directory")
DENIED: Final = PermissionError(13, "Permission denied")

# -- sockets, group, daemon, traffic, gateways, metrics

BCCN: Final = frozenset({"bccn"})


def socket_row(state: str, remedy: str, error: str, mode: int = 0o660, group: str = "bccn") -> Row:
    return Row(state, remedy, {"bus_socket": BusSocket(error, mode, group)})


def user_row(state: str, remedy: str, user: User, error: str = "", mode: int = 0o660, group: str = "bccn") -> Row:
    return Row(state, remedy, {"user": user, "bus_socket": BusSocket(error, mode, group)})


def daemon_row(state: str, remedy: str = "", **changes: Any) -> Row:
    return Row(state, remedy, {"daemon": replace(ANSWER, **changes)})


def silent_row(found: str, remedy: str, error: str, **changes: Any) -> Row:
    return Row(found, remedy, {"daemon": DaemonAnswer(error, "why", 3.0, **changes)})


def traffic_row(state: str, **counted: Any) -> Row:
    return daemon_row(state, status=replace(STATUS, **counted))


NNG: Final = {"gateways": {"nng": {"dial": ["tcp://10.0.0.2:5401"]}}}
LINKED: Final = GatewayState("nng", up=True, peers_connected=1)


def gateway_row(state: str, *gateways: GatewayState, settings: Answers = NNG) -> Row:
    return Row(state, "", {"daemon": replace(ANSWER, gateways=list(gateways))}, settings)


def metrics_row(state: str, listen: str, answer: object = None) -> Row:
    return Row(state, "", {"get_metrics": answer}, {"metrics": {"listen": listen}})


BUS: Final[dict[Check, list[Row]]] = {
    check_bus.check_socket: [
        socket_row("ok", "", ""),
        socket_row("look", "SocketMode=", "", 0o666),
        socket_row("look", "SocketGroup=", "", group="root"),
        socket_row("look", "see group", "EACCES"),
        socket_row("wrong", "systemctl start bccnd", "ENOENT"),
        socket_row("wrong", "systemctl restart bccnd", "ENOTSOCK"),
        socket_row("wrong", "systemctl restart bccnd", "ECONNREFUSED"),
        socket_row("wrong", "systemctl restart bccnd", "EAGAIN"),
        socket_row("wrong", "systemctl status bccnd", "EPROTOTYPE"),
    ],
    check_bus.check_group: [
        user_row("ok", "", User("ann", BCCN, BCCN)),
        user_row("ok", "", User("root"), "ENOENT"),
        user_row("ok", "", User("ann"), mode=0o666),
        user_row("look", "newgrp bccn", User("ann", BCCN), "EACCES"),
        user_row("look", "adduser ann bccn", User("ann"), "EACCES"),
        user_row("look", "adduser ann bccn", User("ann"), "ENOENT"),
        user_row("look", "set bus.group: bccn", User("ann"), "EACCES", group="root"),
    ],
    check_bus.check_daemon: [
        daemon_row("ok"),
        daemon_row("look", "systemctl restart bccnd", status=replace(STATUS, version="0.0.1")),
        daemon_row("look", "bccn top", seconds=0.9),
        Row("look", "--socket", {"daemon": DaemonAnswer(seconds=0.001)}),  # a bccn-sbusd
        silent_row("wrong", "systemctl start bccnd", "no_daemon"),
        silent_row("wrong", "kill -CONT 7", "no_answer", pid=7, state="T"),
        silent_row("wrong", "systemctl restart", "no_answer", pid=7, state="R"),
        silent_row("not checked", "adduser", "not_permitted"),
        silent_row("wrong", "systemctl status", "connection_lost"),
        Row("wrong", "bccnd --config FILE", {"systemd": False, "daemon": DaemonAnswer("no_daemon")}),
    ],
    check_bus.check_traffic: [
        traffic_row("ok"),
        traffic_row("look", verdicts={"integrity_failed": 3}),
        traffic_row("ok", verdicts={"duplicate": 9, "looped": 4, "not_addressed": 1}),
        traffic_row("look", lost=4),
        traffic_row("look", dropped={"queue_messages": 5, "client_gone": 9}),
        traffic_row("ok", dropped={"client_gone": 9}),
        silent_row("not checked", "", "no_daemon"),
    ],
    check_bus.check_gateways: [
        gateway_row("ok", settings={}),
        gateway_row("ok", LINKED),
        gateway_row("look", replace(LINKED, peers_connected=0)),
        gateway_row("wrong", replace(LINKED, up=False)),
        gateway_row("wrong"),
        Row("not checked", "", {"daemon": DaemonAnswer("no_daemon")}, NNG),
    ],
    check_bus.check_metrics: [
        metrics_row("ok", "127.0.0.1:9540"),
        metrics_row("ok", "off"),
        metrics_row("look", "0.0.0.0:9540"),
        metrics_row("wrong", "[::1]:9540", ConnectionRefusedError()),
        metrics_row("wrong", "127.0.0.1:9540", OSError("status 404")),
        metrics_row("wrong", "127.0.0.1:9540", BadStatusLine("x")),
    ],
}

# -- keys, certificates, the recorder's folders

KEY: Final = "/etc/bccnd/keys/hmac.key"
SECRET: Final = {"integrity": {"algorithm": "hmac", "keys": [KEY]}}
SIGNED: Final = {"integrity": {"algorithm": "sig", "signers": {"relay02": ["relay02.pub"]}}}


def file(mode: int = 0o600, uid: int = 0, kind: int = stat.S_IFREG, folder: int = 0o755) -> Answers:
    """`os.stat` for a file and its folder."""
    return {
        "stat": lambda path: SimpleNamespace(st_mode=kind | mode if "." in path else stat.S_IFDIR | folder, st_uid=uid)
    }


def certificate_row(state: str, expires: object) -> Row:
    tls = {"ca": "tls/ca.pem", "certificate": "tls/a.pem", "key": "tls/a.key"}
    nng = {"listen": ["tls+tcp://0.0.0.0:5410"], "tls": tls}
    return Row(state, "", {"certificate_expires": expires}, {"gateways": {"nng": nng}})


def disk_row(state: str, free: int | Exception, *, enabled: bool = False) -> Row:
    units = {"bccnd-recorder.service": {"UnitFileState": "enabled"}} if enabled else {}
    usage = free if isinstance(free, Exception) else SimpleNamespace(free=free, total=100 << 30)
    return Row(state, "", {"disk_usage": usage, "units": units})


FILES: Final[dict[Check, list[Row]]] = {
    check_files.check_configuration: [Row("ok")],
    check_files.check_keys: [
        Row("ok", "", None, SECRET),
        Row("ok", "", file(0o440), SECRET),
        Row("wrong", f"chmod 600 {KEY}", file(0o644), SECRET),
        Row("wrong", "chmod 600", file(0o440, uid=7), SECRET),
        Row("wrong", "chown 0 /etc", file(uid=1000), SECRET),
        Row("wrong", "chmod go-w /etc/bccnd/keys", file(folder=0o777), SECRET),
        Row("ok", "", file(folder=0o1777), SECRET),
        Row("wrong", "bccn keygen", file(kind=stat.S_IFIFO), SECRET),
        Row("wrong", "bccn keygen", {"stat": MISSING}, SECRET),
        Row("not checked", "as root", {"stat": DENIED}, SECRET),
        Row("not checked", "as root", {"access": False}, SECRET),
        Row("wrong", "right file", {"key_problem": "has 3 bytes"}, SECRET),
        Row("ok", "", file(0o644), SIGNED),
        Row("look", "", file(0o644), SIGNED),  # a service gets keys from its folder only
        Row("ok", "", file(0o644) | {"units": {}, "owner": 0}, SIGNED),
        Row("wrong", "", file(0o664), SIGNED),
    ],
    check_files.check_certificates: [
        certificate_row("ok", 90 * 86_400.0),
        certificate_row("look", 3 * 86_400.0),
        certificate_row("wrong", -86_400.0),
        certificate_row("wrong", ValueError()),
    ],
    check_files.check_recorder: [
        disk_row("ok", 50 << 30),
        disk_row("wrong", 1 << 20, enabled=True),
        disk_row("look", 1 << 20),
        disk_row("look", 4 << 30),
        disk_row("wrong", MISSING, enabled=True),
        disk_row("not checked", MISSING),
    ],
}

# -- service, log, descriptors, clock

LOADED: Final = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NRestarts": "0"}
RESTING: Final = {"ActiveState": "inactive", "UnitFileState": "disabled"}
MAIN: Final = "bccnd.service"


def unit_row(state: str, remedy: str, name: str = MAIN, **changes: str) -> Row:
    return Row(state, remedy, {"units": {MAIN: LOADED, name: LOADED | changes}}, NNG)


HOST: Final[dict[Check, list[Row]]] = {
    check_host.check_service: [
        unit_row("ok", ""),
        unit_row("wrong", f"systemctl status {MAIN}", ActiveState="failed", Result="exit-code"),
        unit_row("wrong", "systemctl status", ActiveState="activating", SubState="auto-restart"),
        unit_row("look", f"systemctl enable {MAIN}", UnitFileState="disabled"),
        unit_row("look", "journalctl", NRestarts="3"),
        unit_row("look", "daemon-reload", NeedDaemonReload="yes"),
        unit_row("look", "enable --now bccnd-bus.socket", "bccnd-bus.socket", ActiveState="inactive"),
        unit_row("wrong", "systemctl status", "bccnd-recorder.service", ActiveState="failed"),
        unit_row("wrong", "enable --now bccnd-nng.service", "bccnd-nng.service", **RESTING),
        Row("ok", "", {"units": {MAIN: LOADED, "bccnd-nng.service": LOADED | RESTING}}),
        Row("not checked", "", {"systemd": False}),
        *(Row("not checked", "", {"units": units}) for units in ({}, {MAIN: {"LoadState": "not-found"}})),
    ],
    check_host.check_log: [
        Row("ok"),
        Row("look", "read faster", {"recent_warnings": [Warned(3, "client 7 is slow", "read faster")]}),
        Row("look", "journalctl -u 'bccnd*'", {"recent_warnings": [Warned(1, "Failed with result 'watchdog'")]}),
        Row("not checked", "journalctl", {"recent_warnings": ProbeError("only root")}),
        Row("not checked", "", {"systemd": False}),
    ],
    check_host.check_descriptors: [
        Row("ok"),
        Row("look", "LimitNOFILE=2064", {"read_text": "Max open files            1024      65536      files\n"}),
        Row("look", "LimitNOFILE=1064", {"read_text": "Max open files  1024  65536  files\n", "units": {}}),
        Row("not checked", "", {"read_text": ""}),
    ],
    check_host.check_clock: [
        Row("ok"),
        Row("look", "timedatectl set-ntp true", {"run": "no\n"}),
        Row("not checked", "chronyc tracking", {"run": ProbeError("timedatectl is not installed")}),
    ],
}

# -- interface, route, port, buffer, round trip, firewall

NO_ROUTE: Final = StartError("no_route", "segment lan: no route to 10.0.0.255", "name the interface")
IN_USE: Final = StartError("port_in_use", "port 5400 is in use", "find it")
OWN: Final = UdpSocket({77: "bccnd"}, 1 << 20)
TWO: Final = RoundTrip(seconds=0.001, segments=("lan", "wan"), returned=2)
ONE: Final = RoundTrip(seconds=0.001, segments=("lan", "wan"), returned=1, missing=("wan",))
FILTER: Final = ["inet filter input"]


def interface_row(state: str, remedy: str = "", **changes: Any) -> Row:
    route = [{"dev": "lan0", "prefsrc": "10.0.0.1"}]
    return Row(state, remedy, {"run_json": lambda *command: route if "route" in command else [{**LAN, **changes}]})


NETWORK: Final[dict[Check, list[Row]]] = {
    check_network.check_interface: [
        interface_row("ok"),
        interface_row("wrong", "segments.interface", ifname="lo"),
        interface_row("wrong", "ip link set lan0 up", flags=["BROADCAST"]),
        interface_row("wrong", "ip -s link show lan0", flags=["BROADCAST", "UP"]),
        interface_row("wrong", "segments.interface", flags=["UP", "LOWER_UP"]),
        interface_row("wrong", "ip address add", addr_info=[]),
        interface_row("look", "ip link set lan0 mtu 1500", mtu=1280),
        Row("not checked", "iproute2", {"run_json": ProbeError("ip is not installed")}),
        Row("not checked", "", {"run_json": lambda *command: [] if "route" in command else [LAN]}),
    ],
    check_network.check_route: [
        Row("ok"),
        Row("ok", "", {"run_json": ProbeError("ip is not installed")}),
        Row("ok", "", {"open_segment": IN_USE}),
        Row("wrong", "name the interface", {"open_segment": NO_ROUTE}),
    ],
    check_network.check_port: [
        Row("ok"),
        Row("look", "BCCN program", {"udp_sockets": [OWN, UdpSocket({9: "perl"})]}),
        Row("look", "kill 9", {"udp_sockets": [OWN, UdpSocket({9: "bccnd"})]}),
        Row("look", "container", {"udp_sockets": []}),
        Row("not checked", "as root", {"udp_sockets": [UdpSocket({})]}),
        Row("ok", "", {"udp_sockets": [], "daemon": DaemonAnswer("no_daemon")}),
        Row("not checked", "iproute2", {"udp_sockets": ProbeError("ss is not installed")}),
        *(Row("wrong", "find it", {"open_segment": IN_USE, "udp_sockets": [UdpSocket(x)]}) for x in ({9: "x"}, {})),
    ],
    check_network.check_receive_buffer: [
        Row("ok"),
        Row("look", "receive_buffer to 2097152", {"udp_sockets": [OWN._replace(drops=12)]}),
        Row("look", "rmem_max=1048576", {"udp_sockets": [OWN._replace(buffer=4096)]}),
        Row("look", "ReceiveBuffer=1048576", {"udp_sockets": [], "open_segment": 4096}),
        Row("ok", "", {"udp_sockets": []}),
        Row("not checked", "see port", {"udp_sockets": [], "open_segment": NO_ROUTE}),
    ],
    check_network.check_round_trip: [
        Row("ok", "", {"trip": TWO}),
        Row("wrong", "", {"trip": ONE}),
        Row("wrong", "", {"trip": replace(ONE, missing=())}),
        Row("ok", "", {"trip": RoundTrip(segments=("lan",), returned=1)}),
        Row("not checked", "as root", {"trip": RoundTrip(skipped="no keys", remedy="as root")}),
        Row("wrong", "see route", {"trip": RoundTrip(failed="cannot send", remedy="see route")}),
    ],
    check_network.check_firewall: [
        Row("ok", "", {"input_chains": [], "trip": TWO}),
        Row("ok", "", {"input_chains": FILTER, "trip": TWO}),
        Row("look", "nft list ruleset", {"input_chains": FILTER, "trip": ONE}),
        Row("not checked", "nft list ruleset", {"input_chains": FILTER, "trip": RoundTrip(skipped="no keys")}),
        Row("not checked", "", {"input_chains": ProbeError("nft is not installed"), "trip": TWO}),
    ],
}


@pytest.mark.parametrize(
    ("check", "row"),
    [
        pytest.param(check, row, id=f"{check.__name__}-{row.state}")
        for table in (BUS, FILES, HOST, NETWORK)
        for check, rows in table.items()
        for row in rows
    ],
)
def test_a_check_finds_a_state_and_a_remedy(check: Check, row: Row) -> None:
    assert_found(check(probe(row.settings, **row.answers or {})), row.state, row.remedy)


def test_faults_of_the_configuration_are_its_findings() -> None:
    made = probe()
    made.target = Target("/f", (Fault("/f", 3, "bus.mode", "is no mode", "write it so"), Fault("/f", 0, "", "x", "y")))
    found = list(check_files.check_configuration(made))
    assert [one.state for one in found] == ["wrong", "wrong", "not checked"]
    assert (found[0].remedy, "/f:3: bus.mode" in found[0].finding) == ("write it so", True)


def test_a_clock_that_was_never_set_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_host, "NEVER_SET", 1e11)
    assert_found(check_host.check_clock(probe()), "wrong", "date -s")


def test_on_a_host_that_is_well_everything_is_ok() -> None:
    results = list(runner.run_checks(probe({"integrity": {"algorithm": "hmac", "keys": ["keys/hmac.key"]}})))
    assert {one.state for one in results} == {"ok"}, results
    assert [name for name in runner.CHECKS if name != "certificates"] == list(
        dict.fromkeys(one.check for one in results)
    )


def test_a_check_that_fails_ends_alone() -> None:
    results = list(runner.run_checks(probe(run=ZeroDivisionError("a bug"))))
    assert [(one.check, one.finding) for one in results if one.state != "ok"] == [
        ("clock", "this check failed: ZeroDivisionError('a bug')")
    ]


def test_only_what_is_wrong_makes_it_fail() -> None:
    results = [Result("a", "ok", "", ""), Result("b", "look", "", "c"), Result("d", "not checked", "", "")]
    assert exit_status(results) == 0
    assert exit_status([*results, Result("a", "wrong", "", "b")]) == 1
    assert summary(results) == "1 to look at, 1 ok, 1 not checked"
