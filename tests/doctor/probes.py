"""A probe of a host that is well, with the answers that a test changes."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

from bccnd.config import Settings
from bccnd.doctor.probe import Probe, Target
from bccnd.doctor.probe_daemon import DaemonAnswer, RoundTrip
from bccnd.doctor.probe_host import BusSocket, UdpSocket, User
from bccnd.doctor.result import CheckFinding
from bccnd.snapshot import DaemonSummary
from bccnd.version import VERSION

STATUS: Final = DaemonSummary(version=VERSION, pid=77, host="relay01", received=10, segments=["lan"])
ANSWER: Final = DaemonAnswer(seconds=0.001, status=STATUS, pid=77)
LAN: Final = {
    "ifname": "lan0",
    "flags": ["BROADCAST", "UP", "LOWER_UP"],
    "mtu": 1500,
    "addr_info": [{"local": "10.0.0.1", "prefixlen": 24}],
}
SETTINGS: Final = {
    "segments": [{"name": "lan", "address": "10.0.0.255", "receive_buffer": "1MiB"}],
    "bus": {"group": "bccn"},
}
WELL: Final[dict[str, Any]] = {
    "systemd": True,
    "units": {"bccnd.service": {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}},
    "recent_warnings": [],
    "user": User("ann", frozenset({"bccn"}), frozenset({"bccn"})),
    "bus_socket": BusSocket("", 0o660, "bccn"),
    "daemon": ANSWER,
    "trip": RoundTrip(seconds=0.001, segments=("lan",), returned=1),
    "input_chains": [],
    "udp_sockets": [UdpSocket({77: "bccnd", 1: "systemd"}, 1 << 20)],
    "open_segment": 1 << 20,
    "get_metrics": None,
    "read_text": "Max open files            65536                65536                files\n",
    "run": "yes\n",
    "run_json": lambda *command: [{"dev": "lan0", "prefsrc": "10.0.0.1"}] if "route" in command else [LAN],
    "disk_usage": SimpleNamespace(free=50 << 30, total=100 << 30),
    "stat": lambda path: SimpleNamespace(
        st_mode=stat.S_IFREG | 0o600 if "." in path else stat.S_IFDIR | 0o755, st_uid=0
    ),
    "access": True,
    "key_problem": "",
    "certificate_expires": 90 * 86_400.0,
}


def probe(settings: dict[str, Any] | None = None, **changes: Any) -> Probe:
    """``changes`` are answers by the names of what `Probe` has; an exception is raised."""
    valid = Settings.model_validate({**SETTINGS, **(settings or {})})
    made = Probe(Target("/etc/bccnd/bccnd.yaml", settings=valid))
    for name, answer in {**WELL, **changes}.items():
        setattr(made, name, _function(answer) if callable(getattr(Probe, name)) else answer)
    return made


def _function(answer: Any) -> Callable[..., Any]:
    def give(*_: object, **__: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return answer if callable(answer) else give


def assert_found(found: Iterator[CheckFinding], state: str, remedy: str = "") -> None:
    """Check that a finding has this state and remedy, and that each that is not well has a remedy."""
    all_found = list(found)
    assert any(one.state == state and remedy in one.remedy for one in all_found), all_found
    assert all(one.finding for one in all_found)
    assert all(one.remedy for one in all_found if one.state in ("look", "wrong"))
