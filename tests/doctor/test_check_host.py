"""Service, log, descriptors, clock: each row changes one answer of a host that is well."""

from __future__ import annotations

from typing import Any

import pytest

from bccnd.doctor import check_host
from bccnd.doctor.probe_host import ProbeError, Warned
from tests.doctor.probes import assert_found, probe

LOADED = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NRestarts": "0"}
RESTING = {"ActiveState": "inactive", "UnitFileState": "disabled"}
MAIN, SOCKET, RECORDER, NNG = "bccnd.service", "bccnd-bus.socket", "bccnd-recorder.service", "bccnd-nng.service"


@pytest.mark.parametrize(
    ("name", "changes", "state", "text", "remedy"),
    [
        (MAIN, {}, "ok", "is active", ""),
        (MAIN, {"ActiveState": "failed", "Result": "exit-code"}, "wrong", "exit-code", f"systemctl status {MAIN}"),
        (MAIN, {"ActiveState": "activating", "SubState": "auto-restart"}, "wrong", "auto-restart", "systemctl status"),
        (MAIN, {"UnitFileState": "disabled"}, "look", "will not start at boot (disabled)", f"systemctl enable {MAIN}"),
        (MAIN, {"NRestarts": "3"}, "look", "3 times", "journalctl"),
        (MAIN, {"NeedDaemonReload": "yes"}, "look", "has changed", "daemon-reload"),
        (SOCKET, {"ActiveState": "inactive"}, "look", "is inactive", f"enable --now {SOCKET}"),
        (RECORDER, {"ActiveState": "failed"}, "wrong", f"{RECORDER} is failed", "systemctl status"),
        (NNG, RESTING, "wrong", f"{NNG} is inactive", f"enable --now {NNG}"),
    ],
)
def test_service(name: str, changes: dict[str, str], state: str, text: str, remedy: str) -> None:
    made = probe({"gateways": {"nng": {"dial": ["tcp://10.0.0.2:5401"]}}}, units={MAIN: LOADED, name: LOADED | changes})
    assert_found(check_host.check_service(made), state, text, remedy)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"systemd": False}, "not checked"),
        *(({"units": units}, "not checked") for units in ({}, {MAIN: {"LoadState": "not-found"}})),
        ({"units": {MAIN: LOADED, NNG: LOADED | RESTING}}, "ok"),
    ],
)
def test_a_service_that_is_not_there_or_may_rest(changes: dict[str, Any], state: str) -> None:
    assert [one.state for one in check_host.check_service(probe(**changes))] == [state]


def test_log() -> None:
    assert_found(check_host.check_log(probe()), "ok", "no warnings")
    events = [Warned(3, "client 7 is slow", "read faster"), Warned(1, "Failed with result 'watchdog'")]
    found = list(check_host.check_log(probe(recent_warnings=events)))
    assert_found(iter(found), "look", "(3 times, this is the last): client 7 is slow", "read faster")
    assert_found(iter(found), "look", "in the last hour: Failed with result", "journalctl -u 'bccnd*'")
    denied = probe(recent_warnings=ProbeError("only root"))
    assert_found(check_host.check_log(denied), "not checked", "cannot tell: only root", "journalctl")
    assert_found(check_host.check_log(probe(systemd=False)), "not checked", "systemd does not run")


def test_descriptors() -> None:
    assert_found(check_host.check_descriptors(probe()), "ok", "may open 65,536")
    few = "Max open files            1024                 65536                files\n"
    assert_found(check_host.check_descriptors(probe(read_text=few)), "look", "needs 2,064", "LimitNOFILE=2064")
    by_hand = probe(read_text=few, units={})
    assert_found(check_host.check_descriptors(by_hand), "look", "needs 1,064", "LimitNOFILE=1064")
    assert_found(check_host.check_descriptors(probe(read_text="")), "not checked", "cannot be read")


def test_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(check_host.check_clock(probe()), "ok", "synchronised")
    assert_found(check_host.check_clock(probe(run="no\n")), "look", "not synchronised", "timedatectl set-ntp true")
    absent = probe(run=ProbeError("timedatectl is not installed"))
    assert_found(check_host.check_clock(absent), "not checked", "cannot tell", "chronyc tracking")
    monkeypatch.setattr(check_host, "NEVER_SET", 1e11)
    assert_found(check_host.check_clock(probe()), "wrong", "before 2024", "date -s")
