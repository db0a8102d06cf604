"""What checks may read: the configuration that is examined, this host, and the daemon's answers."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from bccnd.config import Configuration, Settings, load
from bccnd.doctor import probe_daemon, probe_host
from bccnd.doctor.probe_host import ProbeError
from bccnd.errors import ConfigError, Fault
from bccnd.paths import DEFAULT_PATH

UNITS: Final = (
    *("bccnd.service", "bccnd-udp.socket", "bccnd-bus.socket", "bccnd-metrics.socket"),
    *("bccnd-recorder.service", "bccnd-nng.service", "bccnd-broker.service"),
)
_PROPERTIES: Final = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,MainPID,StatusText,NeedDaemonReload"
)
#: what replaces systemctl where no systemd runs; the daemon starts its gateways there
_WITHOUT_SYSTEMD: Final = {
    "start": "bccnd --config FILE",
    "restart": "stop the daemon and start it again (bccnd --config FILE)",
    "status": "see the daemon's log",
    "enable --now": "kill -HUP the daemon, which starts its gateways",
}


@dataclass(frozen=True)
class Target:
    """The configuration that is examined, as far as it can be read."""

    file: str = "the defaults"
    faults: tuple[Fault, ...] = ()
    #: None if the file has faults in other places than keys
    settings: Settings | None = None
    #: with its keys, None if they cannot be read
    configuration: Configuration | None = None


def read_target(path: str | None) -> Target:
    """Raises ConfigError for a file that cannot be read at all."""
    file = path or (DEFAULT_PATH if os.path.exists(DEFAULT_PATH) else "the defaults")
    try:
        found = load(path)
        return Target(file, (), found.settings, found)
    except ConfigError as error:
        if not any(fault.line or fault.path for fault in error.faults):
            raise
        faults = tuple(error.faults)
    try:
        settings = load(path, resolve=False).settings
    except ConfigError:
        return Target(file, faults)
    # Key files have a check of their own: the daemon may be able to read what this user is not.
    named = ("integrity.keys", "integrity.signers")
    return Target(file, tuple(one for one in faults if not one.path.startswith(named)), settings)


class Probe:
    """Reads what checks ask for; tests of checks replace single answers."""

    run = staticmethod(probe_host.run)
    run_json = staticmethod(probe_host.run_json)
    read_text = staticmethod(probe_host.read_text)
    stat = staticmethod(os.stat)
    access = staticmethod(os.access)
    disk_usage = staticmethod(shutil.disk_usage)
    key_problem = staticmethod(probe_host.key_problem)
    certificate_expires = staticmethod(probe_host.certificate_expires)
    bus_socket = staticmethod(probe_host.bus_socket)
    udp_sockets = staticmethod(probe_host.udp_sockets)
    open_segment = staticmethod(probe_host.open_segment)
    input_chains = staticmethod(probe_host.input_chains)
    recent_warnings = staticmethod(probe_host.recent_warnings)
    get_metrics = staticmethod(probe_daemon.get_metrics)

    def __init__(self, target: Target, bus_path: str | None = None) -> None:
        """``bus_path`` is where the daemon listens, if not where the configuration says."""
        self.target = target
        self.settings = target.settings or Settings()
        self.bus_path = bus_path or self.settings.bus.path

    @cached_property
    def user(self) -> probe_host.User:
        return probe_host.user()

    @property
    def gateways(self) -> Sequence[str]:
        """The gateways that are configured."""
        return [name for name in ("nng", "broker") if getattr(self.settings.gateways, name) is not None]

    @cached_property
    def systemd(self) -> bool:
        return os.path.isdir("/run/systemd/system")

    @cached_property
    def units(self) -> dict[str, dict[str, str]]:
        """The properties of the units of bccnd, by unit; empty if systemd does not answer."""
        units: dict[str, dict[str, str]] = {}
        with contextlib.suppress(ProbeError):
            for block in self.run("systemctl", "show", f"--property={_PROPERTIES}", *UNITS).split("\n\n"):
                properties = dict(line.partition("=")[::2] for line in block.splitlines())
                units[properties.get("Id", "")] = properties
        return {name: properties for name, properties in units.items() if name}

    def service(self, action: str, unit: str = "bccnd") -> str:
        """The command that does something to a unit, or what does the same without systemd."""
        if not self.systemd:
            return _WITHOUT_SYSTEMD[action]
        return f"systemctl {action} {unit}{' (clients stay connected)' * (action == 'restart')}"

    @cached_property
    def daemon(self) -> probe_daemon.DaemonAnswer:
        return probe_daemon.ask_daemon(self.bus_path)

    @cached_property
    def pid(self) -> int:
        """The daemon's process, 0 for none."""
        return self.daemon.pid or int(self.units.get("bccnd.service", {}).get("MainPID", 0))

    @property
    def by_service(self) -> bool:
        """Whether the daemon runs as a service, for which systemd reads the keys."""
        return self.units.get("bccnd.service", {}).get("ActiveState") == "active"

    @cached_property
    def owner(self) -> int | None:
        """The user to whom key files may belong beside root, None if that is not known."""
        with contextlib.suppress(OSError):
            return 0 if self.by_service else os.stat(f"/proc/{self.pid or 'none'}").st_uid
        return None

    @cached_property
    def trip(self) -> probe_daemon.RoundTrip:
        """A message from this host to this host."""
        answer = self.daemon
        if answer.status:
            return probe_daemon.trip_through_daemon(self.bus_path, tuple(answer.status.segments))
        if answer.error != "no_daemon":
            return probe_daemon.RoundTrip(skipped="the daemon does not answer: see daemon")
        if self.target.configuration is None:
            # Other hosts would count an unsigned message as an attack.
            skipped = "no daemon runs, and the keys cannot be read: the test needs a signature"
            remedy = "start the daemon, or run this as a user that may read the keys"
            return probe_daemon.RoundTrip(skipped=skipped, remedy=remedy)
        return probe_daemon.trip_without_daemon(self.target.configuration)
