"""What facts about files, users, units and the clock mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from bccnd.doctor.facts import BusSocket, Clock, Descriptors, Disk, KeyFile, Member, Unit
from bccnd.doctor.finding import Finding, by_hand, exit_status, look, not_checked, ok, wrong
from bccnd.doctor.host import read_units
from bccnd.doctor.judge_host import (
    judge_clock,
    judge_descriptors,
    judge_disk,
    judge_faults,
    judge_key,
    judge_member,
    judge_socket,
    judge_units,
)
from bccnd.errors import Fault

KEY = KeyFile("key", "/etc/bccnd/keys/hmac.key", mode=0o600)
PUBLIC = KeyFile("public key of relay01", "/etc/bccnd/keys/a.pub", mode=0o644, public=True)
CERTIFICATE = KeyFile("tls.certificate", "/etc/bccnd/tls/a.pem", mode=0o644, public=True, expires_in=86_400.0 * 90)


WELL_KEPT = [KEY, PUBLIC, CERTIFICATE, replace(KEY, mode=0o440), replace(KEY, readable=False)]


@pytest.mark.parametrize(
    ("facts", "owner", "service"),
    [*((facts, 0, True) for facts in WELL_KEPT), (replace(KEY, path="/home/ann/k", uid=1000), 1000, False)],
)
def test_keys_as_they_should_be(facts: KeyFile, owner: int, service: bool) -> None:
    (found,) = judge_key(facts, [owner], service=service)
    assert found.state == "ok"


@pytest.mark.parametrize(
    ("facts", "state", "says", "remedy"),
    [
        (replace(KEY, mode=0o644), "wrong", "mode 0644: others can read it", "chmod 600 /etc/bccnd/keys/hmac.key"),
        (replace(KEY, mode=0o440, uid=7), "wrong", "others can read it", "chmod 600"),
        (replace(PUBLIC, mode=0o664), "wrong", "others can replace it", "chmod 644"),
        (replace(KEY, uid=1000), "wrong", "belongs to uid 1000", "chown 0 /etc"),
        (replace(KEY, loose_folder=True), "wrong", "others can write to its folder", "chmod go-w /etc/bccnd/keys"),
        (replace(KEY, trouble="No such file or directory"), "wrong", "No such file", "bccn keygen"),
        (replace(KEY, trouble="Permission denied"), "not checked", "may not look", "as root"),
        (replace(KEY, regular=False), "wrong", "no regular file", "name a file"),
        (replace(KEY, content="holds 3 bytes, at least 16 are needed"), "wrong", "holds 3 bytes", "right file"),
        (replace(KEY, path="/srv/hmac.key"), "look", "gets keys from /etc/bccnd/keys only", "move it"),
        (replace(CERTIFICATE, expires_in=-86_400.0), "wrong", "over since 1 days", "docs/links.md"),
        (replace(CERTIFICATE, expires_in=86_400.0 * 3), "look", "good for 3 more days", "docs/links.md"),
        (replace(CERTIFICATE, begins_in=86_400.0), "wrong", "not good yet", "see clock"),
        (replace(CERTIFICATE, trouble="No such file or directory"), "wrong", "No such file", "docs/links.md"),
    ],
)
def test_what_is_wrong_with_a_key(facts: KeyFile, state: str, says: str, remedy: str) -> None:
    found = list(judge_key(facts, [0], service=True))
    assert any((one.state, says in one.finding, remedy in one.remedy) == (state, True, True) for one in found), found


SOCKET = BusSocket("/run/bccnd/bus.sock", 0o660, "bccn", mode=0o660, group="bccn")
ANN = Member("ann", 1000, "bccn", listed=True, in_session=True)


@pytest.mark.parametrize(
    ("facts", "state", "says", "remedy"),
    [
        (SOCKET, "ok", "ann may connect", ""),
        (replace(SOCKET, there=False), "wrong", "is not there", "systemctl start bccnd"),
        (replace(SOCKET, is_socket=False), "wrong", "is no socket", "rm /run/bccnd/bus.sock"),
        (replace(SOCKET, mode=0o666), "look", "has mode 0666, and 0660 is configured", "SocketMode="),
        (replace(SOCKET, group="root"), "look", "belongs to group root, and bccn is configured", "SocketGroup="),
        (replace(SOCKET, error="EACCES"), "look", "ann may not connect", "see group"),
        (replace(SOCKET, error="ECONNREFUSED"), "wrong", "nobody listens", "systemctl restart bccnd"),
        (replace(SOCKET, error="EAGAIN"), "wrong", "too many wait", "systemctl restart bccnd"),
        (replace(SOCKET, error="ENOTSOCK"), "wrong", "ENOTSOCK", "systemctl status bccnd"),
    ],
)
def test_a_socket_of_the_bus(facts: BusSocket, state: str, says: str, remedy: str) -> None:
    found = list(judge_socket(facts, ANN))
    assert any((one.state, says in one.finding, remedy in one.remedy) == (state, True, True) for one in found), found


@pytest.mark.parametrize(
    ("facts", "state", "remedy"),
    [
        (ANN, "ok", ""),
        (replace(ANN, uid=0, in_session=False, listed=False), "ok", ""),
        (replace(ANN, group=None), "ok", ""),
        (replace(ANN, exists=False), "wrong", "groupadd --system bccn"),
        (replace(ANN, in_session=False), "look", "log in anew, or for this terminal: newgrp bccn"),
        (replace(ANN, in_session=False, listed=False), "look", "adduser ann bccn, and log in anew"),
        (replace(ANN, in_session=False, listed=False, welcome=True), "ok", ""),
        (
            replace(ANN, in_session=False, listed=False, group="root"),
            *("look", "set bus.group: bccn (groupadd --system bccn), and restart the daemon"),
        ),
    ],
)
def test_who_is_in_the_group_and_whose_session_knows_it(facts: Member, state: str, remedy: str) -> None:
    (found,) = judge_member(facts)
    assert (found.state, found.remedy) == (state, remedy)


def unit(name: str = "bccnd.service", **properties: str) -> Unit:
    usual = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NRestarts": "0"}
    return Unit(name, {**usual, "Result": "success", **properties})


def units(*changed: Unit, gateways: tuple[str, ...] = ()) -> list[Finding]:
    return list(judge_units(changed, "", gateways))


def test_a_service_as_it_should_be() -> None:
    assert [one.state for one in units(unit())] == ["ok"]
    assert [one.state for one in judge_units([], "systemd does not run here", ())] == ["not checked"]
    assert [one.state for one in units(unit(LoadState="not-found"))] == ["not checked"]
    # A gateway that is not configured may rest.
    resting = unit("bccnd-nng.service", ActiveState="inactive", UnitFileState="disabled")
    assert [one.state for one in units(unit(), resting)] == ["ok"]


def beside(name: str, **properties: str) -> list[Finding]:
    """A service that is well with another unit."""
    return units(unit(), unit(name, **properties), gateways=("nng",) if "nng" in name else ())


RESTARTING = unit(ActiveState="activating", SubState="auto-restart", StatusText="cannot start: x")
FULL = unit(FileDescriptorStoreMax="4096", NFileDescriptorStore="4096")
RESTING = {"ActiveState": "inactive", "UnitFileState": "disabled"}
DOOR, RECORDER, NNG = "bccnd-bus.socket", "bccnd-recorder.service", "bccnd-nng.service"


@pytest.mark.parametrize(
    ("found", "state", "says", "remedy"),
    [
        (units(unit(ActiveState="failed", Result="exit-code")), "wrong", "failed (last result exit-code)", "journalct"),
        (units(RESTARTING), "wrong", "cannot start: x", "systemctl status"),
        (units(unit(UnitFileState="disabled")), "look", "will not after a boot (disabled)", "systemctl enable bccnd"),
        (units(unit(NRestarts="3", Result="watchdog")), "look", "3 times", "watchdog"),
        (units(unit(NeedDaemonReload="yes")), "look", "a unit file has changed", "daemon-reload"),
        (units(FULL), "look", "keeps 4096 descriptors", "FileDescriptorStoreMax="),
        (beside(DOOR, ActiveState="inactive"), "look", f"{DOOR} is inactive", f"enable --now {DOOR}"),
        (beside(RECORDER, ActiveState="failed"), "wrong", f"{RECORDER} is failed", f"journalctl -u {RECORDER}"),
        (beside(NNG, **RESTING), "wrong", f"{NNG} is inactive", f"enable --now {NNG}"),
    ],
)
def test_what_is_wrong_with_a_service(found: list[Finding], state: str, says: str, remedy: str) -> None:
    assert any((one.state, says in one.finding, remedy in one.remedy) == (state, True, True) for one in found), found


def test_units_are_read_as_systemctl_shows_them() -> None:
    text = "Id=bccnd.service\nStatusText=a=b\nMainPID=7\n\nId=bccnd-bus.socket\nActiveState=active\n"
    first, second = read_units(text)
    assert (first.name, first.get("StatusText"), first.get("MainPID")) == ("bccnd.service", "a=b", "7")
    assert (second.get("ActiveState"), second.get("Nothing")) == ("active", "")


JOURNAL = Disk("journal", "/j", free=50 << 30, total=100 << 30, needed=1 << 30, wanted=True, writable=True)


Cases = list[tuple[Any, str]]
DESCRIPTORS: Cases = [
    *((Descriptors(65_536, 20, 1000), "ok"), (Descriptors(65_536, None, 1000), "ok"), (Descriptors(), "not checked")),
    *((Descriptors(1024, 20, 1000), "look"), (Descriptors(2048, 2000, 1000), "look")),
]
CLOCKS: Cases = [
    *((Clock(synchronised=True, largest_error=0.01), "ok"), (Clock(synchronised=True, largest_error=2.0), "look")),
    *((Clock(trouble="the kernel does not tell"), "not checked"), (Clock(now=1000.0), "wrong")),
    (Clock(synchronised=False), "look"),
]
DISKS: list[tuple[dict[str, Any], str]] = [
    *(({}, "ok"), ({"free": 1 << 20}, "wrong"), ({"free": 1 << 20, "wanted": False}, "look")),
    *(({"free": 2 << 30}, "look"), ({"there": False}, "wrong"), ({"there": False, "wanted": False}, "not checked")),
    *(({"writable": False}, "wrong"), ({"trouble": "it is not on this host"}, "not checked")),
]
JUDGED: list[tuple[Callable[[Any], Iterable[Finding]], Cases]] = [
    *((judge_descriptors, DESCRIPTORS), (judge_clock, CLOCKS)),
    (judge_disk, [(replace(JOURNAL, **changes), state) for changes, state in DISKS]),
]


@pytest.mark.parametrize(("judge", "cases"), JUDGED)
def test_descriptors_the_clock_and_the_disk_of_the_recorder(
    judge: Callable[[Any], Iterable[Finding]], cases: Cases
) -> None:
    for facts, state in cases:
        (found,) = judge(facts)
        assert found.state == state, facts


def test_every_fault_of_the_configuration_is_a_finding_with_its_place() -> None:
    found = list(
        judge_faults([Fault("/f", 3, "bus.mode", "is no mode", "write it so"), Fault("/f", 0, "", "x", "y")], "")
    )
    assert [one.state for one in found] == ["wrong", "wrong"]
    assert (found[0].finding, found[0].remedy) == ("/f:3: bus.mode: is no mode", "write it so")
    (well,) = judge_faults([], "/f")
    assert well == ok("configuration", "/f: in order")


def test_only_what_is_wrong_makes_it_fail() -> None:
    assert exit_status([ok("a", ""), look("b", "", "c"), not_checked("d", "")]) == 0
    assert exit_status([ok("a", ""), wrong("b", "", "c")]) == 1


@pytest.mark.parametrize(
    ("remedy", "instead"),
    [
        ("systemctl start bccnd, or name its socket", "bccnd --config FILE, or name its socket"),
        ("systemctl restart bccnd (clients stay connected)", "end the daemon and start it anew (bccnd --config FILE)"),
        ("systemctl status bccnd; bccn clients", "see the daemon's log; bccn clients"),
        ("systemctl status bccnd-nng; x", "see the daemon's log; x"),
        ("systemctl enable --now bccnd-nng; x", "kill -HUP the daemon, which starts its gateways; x"),
        ("see daemon; with a socket unit: systemctl status bccnd-metrics.socket", "see daemon"),
        ("systemctl restart bccnd; with a socket unit, SocketMode= there", "end the daemon and start it anew (bccnd "),
        # Of another program it is not known what does the same.
        ("systemctl status bccndx", "systemctl status bccndx"),
    ],
)
def test_where_no_systemd_runs_no_remedy_asks_for_it(remedy: str, instead: str) -> None:
    changed = by_hand(wrong("x", "", remedy)).remedy
    assert changed.startswith(instead)
    assert len(changed) == len(instead) or instead.endswith("(bccnd ")
