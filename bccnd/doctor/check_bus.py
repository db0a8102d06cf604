"""Checks of the bus: its sockets, its group, the daemon behind it, and what the daemon has counted."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPException
from ipaddress import ip_address
from typing import Final

from bccnd.doctor.probe import Probe
from bccnd.doctor.probe_host import group_name
from bccnd.doctor.result import CheckFinding, look, not_checked, ok, wrong
from bccnd.drop_catalog.drops import BY_NAME
from bccnd.version import VERSION

#: seconds from which on an answer is slow
SLOW: Final = 0.5
#: verdicts that point at a wrong key, a missing one or an attack
_REFUSED: Final = (
    "integrity_failed",
    "integrity_missing",
    "integrity_unknown",
    "replayed",
    "bad_envelope",
    "internal_error",
)
#: errno of an attempt to connect: what it means, and what to do with the service
_CONNECT_ERRORS: Final = {
    "ENOENT": (" does not exist: no daemon runs, or it has another bus.path", "start"),
    "ENOTSOCK": (" is not a socket: remove it", "restart"),
    "ECONNREFUSED": (": no program listens there", "restart"),
    "EAGAIN": (": its queue of connections is full", "restart"),
}


def check_socket(probe: Probe) -> Iterator[CheckFinding]:
    """Mode and group of the sockets, and an attempt to connect to each."""
    sockets = list(probe.settings.bus.all_sockets)
    if probe.bus_path not in [one.path for one in sockets]:
        sockets = [sockets[0].model_copy(update={"path": probe.bus_path})]
    for settings in sockets:
        path, found = settings.path, probe.bus_socket(settings.path)
        group = found.group if settings.group is None else group_name(settings.group)
        if found.mode is not None and (found.mode, found.group) != (settings.mode, group):
            finding = f"{path} has mode {found.mode:04o}, group {found.group}, not {settings.mode:04o}, {group}"
            unit = ", or SocketMode= and SocketGroup= in the socket unit" * probe.systemd
            yield look(finding, f"{probe.service('restart')}{unit}")
        mode = "" if found.mode is None else f", mode {found.mode:04o}, group {found.group}"
        user = probe.user.name
        if not found.error:
            yield ok(f"{path}{mode}; {user} may connect")
        elif found.error == "EACCES":
            yield look(f"{path}{mode}: {user} may not connect", "see group")
        else:
            finding, action = _CONNECT_ERRORS.get(found.error, (f": cannot connect: {found.error}", "status"))
            yield wrong(f"{path}{finding}", probe.service(action))


def check_group(probe: Probe) -> Iterator[CheckFinding]:
    """Whether this user may use the bus by its group, and whether this session knows."""
    configured, found, user = probe.settings.bus.all_sockets[0].group, probe.bus_socket(probe.bus_path), probe.user
    group = found.group or (group_name(configured) if configured is not None else "")
    if not group:
        yield ok("the bus has no group of its own")
    elif group in user.session_groups:
        yield ok(f"{user.name} is in {group}")
    elif user.name == "root" or not found.error:
        yield ok(f"{user.name} is not in {group}, but may connect")
    elif group == "root":
        remedy = "set bus.group: bccn (groupadd --system bccn), and restart the daemon"
        yield look("the bus belongs to the group root, which only root is in", remedy)
    elif group in user.groups:
        finding = f"{user.name} is in {group}, but was not when this session began"
        yield look(finding, f"log in again, or for this terminal: newgrp {group}")
    else:
        yield look(f"{user.name} is not in {group}", f"adduser {user.name} {group}, and log in again")


def check_daemon(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the daemon answers, and has the version that is installed."""
    answer = probe.daemon
    delay = f"answers after {answer.seconds * 1000:.1f} ms"
    if answer.error == "no_daemon":
        yield wrong(f"no daemon answers: {answer.detail}", f"{probe.service('start')}, or name its socket: --socket")
    elif answer.error == "no_answer":
        reason, remedy = (
            "the daemon hangs or is overloaded",
            f"{probe.service('restart')}; kill -ABRT logs a stack trace",
        )
        if answer.state in ("T", "t"):
            reason, remedy = "the daemon is stopped (SIGSTOP, or a debugger)", f"kill -CONT {answer.pid}"
        yield wrong(f"a daemon listens and did not answer within {answer.seconds:.0f} s: {reason}", remedy)
    elif answer.error == "not_permitted":
        yield not_checked(answer.detail, "adduser USER bccn, and log in again; or run this as root")
    elif answer.error:
        yield wrong(f"the daemon ended the connection: {answer.detail}", f"{probe.service('status')}; bccn clients")
    elif not answer.status:
        yield look(f"a bus without segments (bccn-sbusd) {delay}", "name the daemon's socket with --socket")
    else:
        finding = f"{delay}: version {answer.status.version}, pid {answer.pid}, {answer.status.host}"
        if answer.status.version != VERSION:
            yield look(f"{finding}; {VERSION} is installed", probe.service("restart"))
        else:
            yield ok(finding) if answer.seconds < SLOW else look(f"{finding}; that is slow", "bccn top")


def check_traffic(probe: Probe) -> Iterator[CheckFinding]:
    """What the daemon has refused, missed and dropped."""
    status = probe.daemon.status
    if not status:
        yield not_checked("no daemon reports its counters")
        return
    received, found = status.received, []
    for verdict in _REFUSED:
        if count := status.verdicts.get(verdict, 0):
            meaning = BY_NAME["datagrams", verdict].means.removesuffix(".")
            finding = f"{count:,} of {received:,} datagrams were refused ({verdict}). {meaning}"
            found.append(look(finding, f"bccn tap -v {verdict} shows their senders; docs/runbook.md has the remedies"))
    if lost := status.lost:
        remedy = "bccn sources shows their senders; see receive buffer, and 'repeat' in the configuration"
        found.append(look(f"{lost:,} messages were lost on their way to this host", remedy))
    # What was queued for a client that has gone is no loss.
    dropped = {name: count for name, count in status.dropped.items() if count and name != "client_gone"}
    if dropped:
        reasons = ", ".join(f"{name} {count:,}" for name, count in dropped.items())
        remedy = "bccn clients shows the programs; docs/runbook.md explains each reason"
        found.append(look(f"{sum(dropped.values()):,} messages to local programs were dropped ({reasons})", remedy))
    yield from found or [ok(f"{received:,} datagrams in all; none was lost or failed its check")]


def check_gateways(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the configured gateways run, and links reach their peers."""
    nng, rows = probe.settings.gateways.nng, {row.gateway: row for row in probe.daemon.gateways}
    if not probe.gateways or not probe.daemon.status:
        yield (
            ok("none are configured") if not probe.gateways else not_checked("no daemon reports the state of gateways")
        )
        return
    for name in probe.gateways:
        row, unit = rows.get(name), f"bccnd-{name}"
        peers, dialled = row.peers_connected if row else 0, len(nng.dial) if nng and name == "nng" else 0
        if row is None or not row.up:
            remedy = f"{probe.service('status', unit)}; {probe.service('enable --now', unit)}; see its log"
            yield wrong(f"{name} is configured, but does not run", remedy)
        elif peers < dialled:
            remedy = "bccn gateways; check that the other host listens and that certificates match (docs/links.md)"
            yield look(f"{name}: {peers} of {dialled} peers that are dialled are connected", remedy)
        else:
            yield ok(f"{name} runs with {peers} peer{'s' * (peers != 1)}")


def check_metrics(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the metrics page answers, and other hosts can reach it."""
    listen = probe.settings.metrics.listen
    if listen is None:
        yield ok("off (metrics.listen)")
        return
    host, port = listen
    page = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    try:
        probe.get_metrics(host, port)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        unit = f"; {probe.service('status', 'bccnd-metrics.socket')}" * probe.systemd
        yield wrong(f"{page} does not answer: {reason}", f"see daemon; ss -tlnp sport = :{port}{unit}")
        return
    remedy = "metrics.listen: 127.0.0.1:9540, or a firewall rule for the hosts that scrape it"
    public = look(f"{page} answers, and other hosts can read names and figures there without a password", remedy)
    yield ok(f"{page} answers") if ip_address(host).is_loopback else public
