"""The whole examination, in the order in which somebody would look who is woken at night.

Law: each check is made whatever became of the others, but for those that need what another one did not find.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bccnd.config import Configuration, Settings, load
from bccnd.doctor import daemon, host, judge_daemon, judge_host, judge_network, network
from bccnd.doctor.facts import DaemonAnswer, Unit
from bccnd.doctor.finding import Finding, by_hand, not_checked
from bccnd.errors import ConfigError, Fault
from bccnd.paths import DEFAULT_PATH
from bccnd.version import VERSION

#: settings whose faults may be due to who looks: what they name is the daemon's to read
_NAMED = ("integrity.keys", "integrity.signers")


@dataclass(frozen=True)
class Read:
    """The configuration: as the daemon reads it, or without what it names, and what is wrong with it."""

    whole: Configuration | None
    settings: Settings | None
    faults: tuple[Fault, ...]
    where: str


def read(path: str | None) -> Read:
    """Read a configuration with the daemon's own reader; raises ConfigError for a file that cannot be read at all."""
    where = path or (DEFAULT_PATH if os.path.exists(DEFAULT_PATH) else "the defaults")
    try:
        whole = load(path)
        return Read(whole, whole.settings, (), where)
    except ConfigError as error:
        faults = tuple(error.faults)
        if all(not fault.line and not fault.path for fault in faults):
            raise
    try:
        settings = load(path, resolve=False).settings
    except ConfigError:
        return Read(None, None, faults, where)
    # Files with keys are looked at one by one: who may not read them has not found a fault in them.
    return Read(None, settings, tuple(one for one in faults if not one.path.startswith(_NAMED)), where)


def examine(found: Read, bus_path: str | None) -> Iterator[Finding]:
    """All findings; ``bus_path`` is where the daemon is, if it is not where the configuration says."""
    units, no_units = host.look_at_units()
    for one in _examine(found, bus_path, units, no_units):
        yield by_hand(one) if no_units else one


def _examine(found: Read, bus_path: str | None, units: list[Unit], no_units: str) -> Iterator[Finding]:
    yield from judge_host.judge_faults(found.faults, found.where)
    settings = found.settings or Settings()
    if found.settings is None:
        yield not_checked("keys", "the configuration has to be put right first; what follows goes by the defaults")
    answer = daemon.ask_daemon(bus_path or settings.bus.path)
    pid = int(answer.said.get("pid", 0)) or _main_pid(units)
    yield from _keys(settings, found.where, units, pid)
    yield from _bus(settings, bus_path)
    yield from judge_daemon.judge_answer(answer, VERSION)
    gateways = [name for name in ("nng", "broker") if getattr(settings.gateways, name) is not None]
    yield from judge_host.judge_units(units, no_units, gateways)
    looked = [network.look_at_segment(segment, pid) for segment in settings.segments]
    for facts in looked:
        yield from judge_network.judge_segment(facts, pid, bool(answer.said))
    if looked:
        yield from judge_network.judge_firewall(network.look_at_firewall(looked), [facts.port for facts in looked])
    yield from _trip(found, settings, answer, bus_path or settings.bus.path)
    yield from judge_daemon.judge_traffic({} if answer.error else answer.said)
    dials = len(settings.gateways.nng.dial) if settings.gateways.nng is not None else 0
    yield from judge_daemon.judge_gateways(gateways, answer, dials)
    yield from judge_daemon.judge_metrics(daemon.look_at_metrics(settings.metrics.listen))
    yield from judge_host.judge_descriptors(host.look_at_descriptors(pid, settings.bus.max_clients))
    for disk in host.look_at_disks(settings.recorder, units):
        yield from judge_host.judge_disk(disk)
    yield from judge_host.judge_clock(host.look_at_clock())


def _main_pid(units: list[Unit]) -> int:
    """The daemon's process, as systemd knows it; 0 for none."""
    found = next((unit.get("MainPID") for unit in units if unit.name == "bccnd.service"), "")
    return int(found) if found.isdigit() else 0


def _keys(settings: Settings, where: str, units: list[Unit], pid: int) -> Iterator[Finding]:
    service = any(unit.name == "bccnd.service" and unit.get("ActiveState") == "active" for unit in units)
    owners = []
    if service:
        owners = [0]
    elif pid:
        try:
            owners = [os.stat(f"/proc/{pid}").st_uid]
        except OSError:
            owners = []
    for facts in host.look_at_keys(settings, os.path.dirname(where)):
        yield from judge_host.judge_key(facts, owners, service=service)


def _bus(settings: Settings, bus_path: str | None) -> Iterator[Finding]:
    sockets = list(settings.bus.all_sockets)
    if bus_path is not None and bus_path not in [one.path for one in sockets]:
        sockets = [sockets[0].model_copy(update={"path": bus_path})]
    looked = [host.look_at_socket(one) for one in sockets]
    for facts in looked:
        yield from judge_host.judge_socket(facts, host.look_at_member(facts.group))
    member = host.look_at_member(looked[0].group or sockets[0].group)
    yield from judge_host.judge_member(replace(member, welcome=looked[0].there and not looked[0].error))


def _trip(found: Read, settings: Settings, answer: DaemonAnswer, path: str) -> Iterator[Finding]:
    if answer.said and not answer.error:
        trip = daemon.take_trip(path, [str(name) for name in answer.said.get("segments", ())])
    elif answer.error == "no_daemon":
        trip = daemon.take_own_trip(found.whole, settings.segments, settings.host)
    else:
        yield not_checked("round trip", "the daemon does not answer us: see daemon")
        return
    yield from judge_daemon.judge_trip(trip)
