"""Checks of what the host does for the daemon: service, log, descriptors and clock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final

from bccnd.doctor.probe import UNITS, Probe
from bccnd.doctor.probe_host import ProbeError
from bccnd.doctor.result import CheckFinding, look, not_checked, ok, wrong

#: descriptors of the daemon beside its clients
OWN_DESCRIPTORS: Final = 64
#: no clock that was ever set can be before 2024
NEVER_SET: Final = 1_704_067_200.0
_LOG: Final = "journalctl -u 'bccnd*' -p warning --since -1h"


def check_service(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the units run that should; what is wrong with one, ``systemctl status`` says."""
    if not probe.systemd:
        yield not_checked("systemd does not run here")
        return
    units = {name: unit for name, unit in probe.units.items() if unit.get("LoadState") not in ("not-found", "", None)}
    if "bccnd.service" not in units:
        yield not_checked("systemd has no bccnd.service, or does not answer", "systemctl status bccnd")
        return
    required = ["bccnd.service", *(f"bccnd-{name}.service" for name in probe.gateways)]
    for name, unit in units.items():
        state, boot, restarts = unit.get("ActiveState"), unit.get("UnitFileState"), unit.get("NRestarts")
        if state == "active" and name == "bccnd.service" and boot in ("disabled", "masked"):
            yield look(f"{name} runs, but will not start at boot ({boot})", f"systemctl enable {name}")
        elif state == "active":
            yield ok(f"{name} is active")
        elif state != "failed" and name.endswith(".socket"):
            finding = f"{name} is {state}: a restart of the daemon ends connections and loses datagrams"
            yield look(finding, f"systemctl enable --now {name}")
        elif state == "failed" or name in required or boot == "enabled":
            finding = f"{name} is {state} ({unit.get('SubState')}, last result {unit.get('Result')})"
            yield wrong(finding, f"systemctl status {name}; see log; systemctl enable --now {name}")
        if restarts not in ("", "0", None):
            yield look(f"systemd had to restart {name} {restarts} times", f"see log; journalctl -u {name}")
        if unit.get("NeedDaemonReload") == "yes":
            yield look(f"the file of {name} has changed since systemd read it", "systemctl daemon-reload")


def check_log(probe: Probe) -> Iterator[CheckFinding]:
    """Warnings and errors of the last hour."""
    if not probe.systemd:
        yield not_checked("systemd does not run here: see the daemon's own log")
        return
    try:
        events = probe.recent_warnings(UNITS)
    except ProbeError as error:
        yield not_checked(f"cannot tell: {error}", f"read it as root with: {_LOG}")
        return
    for event in events:
        repeated = f" ({event.times:,} times, this is the last)" if event.times > 1 else ""
        yield look(f"in the last hour{repeated}: {event.message}", event.remedy or _LOG)
    if not events:
        yield ok("no warnings in the last hour")


def check_descriptors(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the daemon may open as many files as its clients need."""
    found = re.search(r"^Max open files +(\d+)", probe.read_text(f"/proc/{probe.pid}/limits"), re.MULTILINE)
    if found is None:
        yield not_checked("the daemon's limits cannot be read: no daemon runs here")
        return
    clients = probe.settings.bus.max_clients
    # As a service it has open, beside each connection, the log that outlives it.
    needed = clients * (2 if probe.by_service else 1) + OWN_DESCRIPTORS
    finding = f"the daemon may open {int(found[1]):,}"
    remedy = f"LimitNOFILE={needed} in the unit (ulimit -n {needed} without), or lower bus.max_clients"
    too_few = look(f"{finding}, and bus.max_clients {clients:,} needs {needed:,}", remedy)
    yield too_few if int(found[1]) < needed else ok(finding)


def check_clock(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the clock is set and synchronised; by how much it is wrong, chronyc and timedatectl say."""
    if time.time() < NEVER_SET:
        finding = (
            "it is before 2024: numbers begin at the clock, so other hosts will treat the messages of this host as old"
        )
        yield wrong(finding, "timedatectl set-ntp true, or date -s")
        return
    try:
        synchronised = probe.run("timedatectl", "show", "--property=NTPSynchronized", "--value").strip()
    except ProbeError as error:
        yield not_checked(f"cannot tell: {error}", "check with: chronyc tracking, or adjtimex --print")
        return
    remedy = "timedatectl set-ntp true (chrony or systemd-timesyncd; for a container on its host)"
    unset = look("it is not synchronised: the times of several hosts are not comparable", remedy)
    yield ok("synchronised") if synchronised == "yes" else unset
