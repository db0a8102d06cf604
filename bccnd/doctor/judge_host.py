"""What the facts about files, users, units and the clock mean.

Law: the findings follow from the facts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bccnd.doctor.facts import BusSocket, Clock, Descriptors, Disk, KeyFile, Member, Unit
from bccnd.doctor.finding import Finding, look, not_checked, ok, wrong
from bccnd.errors import Fault
from bccnd.paths import KEY_FOLDER

#: seconds before its end within which a certificate is to be made anew
SOON: Final = 30 * 86_400.0
#: seconds by which a clock may be wrong at most: well below the horizon within which copies are told from restarts
LARGEST_ERROR: Final = 0.5
#: seconds since 1970 before which no clock that was ever set can be: 2024
NEVER_SET: Final = 1_704_067_200.0
#: descriptors of the daemon beside its clients
BESIDE: Final = 64
#: where a disk has less than this share left, somebody should look
LITTLE: Final = 0.05


def judge_faults(faults: Iterable[Fault], where: str) -> Iterator[Finding]:
    """What the daemon's own reader of the configuration has found."""
    number = 0
    for number, fault in enumerate(faults, start=1):  # noqa: B007 - how many there were
        place = f"{fault.file}:{fault.line}" if fault.line else fault.file
        what = f"{fault.path}: {fault.reason}" if fault.path else fault.reason
        yield wrong("configuration", f"{place}: {what}", fault.remedy)
    if not number:
        yield ok("configuration", f"{where}: in order")


# -- keys and certificates


def judge_key(facts: KeyFile, daemon_uids: Sequence[int], *, service: bool) -> Iterator[Finding]:
    """A file that the daemon or a gateway reads; ``daemon_uids`` are those it may belong to."""
    check = "certificates" if facts.what.startswith("tls.") else "keys"
    what = f"{facts.what} {facts.path}"
    if facts.trouble:
        if facts.trouble == "Permission denied":
            yield not_checked(check, f"{what}: you may not look there", "run this as root")
            return
        how = "see docs/links.md" if check == "certificates" else f"bccn keygen {facts.path}, or bring the one you have"
        yield wrong(check, f"{what}: {facts.trouble}", how)
        return
    if not facts.regular:
        yield wrong(check, f"{what} is no regular file", "name a file")
        return
    before = 0
    for finding in _rights(check, what, facts, daemon_uids, service=service):
        before += 1
        yield finding
    if facts.content:
        yield wrong(check, f"{what}: {facts.content}", "put the right file there")
    elif facts.expires_in is not None:
        yield from _dates(check, what, facts, facts.expires_in)
    elif not before:
        held = "" if facts.readable else "; what it holds is for others to see: run this as root"
        yield ok(check, f"{what}: mode {facts.mode:04o}, of uid {facts.uid}{held}")


def _rights(check: str, what: str, facts: KeyFile, daemon_uids: Sequence[int], *, service: bool) -> Iterator[Finding]:
    credential = facts.uid == 0 and facts.mode & ~0o440 == 0
    if not facts.public and facts.mode & 0o077 and not credential:
        yield wrong(check, f"{what} has mode {facts.mode:04o}: others can read it", f"chmod 600 {facts.path}")
    if facts.public and facts.mode & 0o022:
        yield wrong(check, f"{what} has mode {facts.mode:04o}: others can replace it", f"chmod 644 {facts.path}")
    if daemon_uids and facts.uid not in (0, *daemon_uids):
        yield wrong(
            check,
            f"{what} belongs to uid {facts.uid}, and the daemon takes only its own and root's",
            f"chown {daemon_uids[0]} {facts.path}",
        )
    if facts.loose_folder:
        folder = facts.path.rpartition("/")[0] or "/"
        yield wrong(
            check, f"{what}: others can write to its folder, and so put another in its place", f"chmod go-w {folder}"
        )
    if service and check == "keys" and not facts.path.startswith(KEY_FOLDER + "/"):
        yield look(
            check,
            f"{what}: the service gets keys from {KEY_FOLDER} only",
            f"move it to {KEY_FOLDER}, name it there, and systemctl restart bccnd",
        )


def _dates(check: str, what: str, facts: KeyFile, left: float) -> Iterator[Finding]:
    """A certificate that is good for so many seconds more."""
    days = left / 86_400
    if left <= 0:
        yield wrong(check, f"{what} is over since {-days:.0f} days", "make a new one, as docs/links.md says")
    elif facts.begins_in is not None and facts.begins_in > 0:
        yield wrong(
            check, f"{what} is not good yet, for {facts.begins_in / 86_400:.1f} days", "see clock; or make a new one"
        )
    elif left < SOON:
        yield look(check, f"{what} is good for {days:.0f} more days", "make a new one, as docs/links.md says")
    else:
        yield ok(check, f"{what}: good for {days:.0f} more days")


# -- the socket of the bus, and who may use it


def judge_socket(facts: BusSocket, member: Member) -> Iterator[Finding]:
    check, path = "bus socket", facts.path
    if not facts.there:
        yield wrong(check, f"{path} is not there: no daemon runs, or it has another bus.path", "systemctl start bccnd")
        return
    if not facts.is_socket:
        yield wrong(check, f"{path} is no socket", f"rm {path}, and systemctl restart bccnd")
        return
    if facts.mode is not None and facts.wanted_mode is not None and facts.mode != facts.wanted_mode:
        yield look(
            check,
            f"{path} has mode {facts.mode:04o}, and {facts.wanted_mode:04o} is configured",
            "systemctl restart bccnd; with a socket unit, SocketMode= there",
        )
    if facts.wanted_group is not None and facts.group is not None and facts.group != facts.wanted_group:
        yield look(
            check,
            f"{path} belongs to group {facts.group}, and {facts.wanted_group} is configured",
            "systemctl restart bccnd; with a socket unit, SocketGroup= there",
        )
    if not facts.error:
        group = "" if facts.group is None else f", group {facts.group}"
        mode = "" if facts.mode is None else f", mode {facts.mode:04o}"
        yield ok(check, f"{path}{mode}{group}; {member.user} may connect")
    elif facts.error == "EACCES":
        yield look(
            check,
            f"{path}: {member.user} may not connect (mode {facts.mode or 0:04o}, group {facts.group})",
            "see group",
        )
    elif facts.error == "ECONNREFUSED":
        yield wrong(check, f"{path}: nobody listens behind it", "systemctl restart bccnd")
    elif facts.error == "EAGAIN":
        yield wrong(
            check,
            f"{path}: too many wait to be let in: the daemon does not take them",
            "systemctl status bccnd; systemctl restart bccnd",
        )
    else:
        yield wrong(check, f"{path}: cannot connect: {facts.error}", "systemctl status bccnd")


def judge_member(facts: Member) -> Iterator[Finding]:
    """Whether who looks may use the bus by its group, and whether his session knows."""
    check = "group"
    if facts.group is None:
        yield ok(check, "the bus belongs to no group in particular")
    elif not facts.exists:
        yield wrong(check, f"there is no group {facts.group}", f"groupadd --system {facts.group}")
    elif facts.uid == 0:
        yield ok(check, f"{facts.group}; root needs none")
    elif facts.in_session:
        yield ok(check, f"{facts.user} is in {facts.group}")
    elif facts.welcome:
        yield ok(check, f"{facts.user} is not in {facts.group}, and may connect all the same")
    elif facts.group == "root":
        yield look(
            check,
            "the bus belongs to the group root, which nobody should be in",
            "set bus.group: bccn (groupadd --system bccn), and restart the daemon",
        )
    elif facts.listed:
        yield look(
            check,
            f"{facts.user} is in {facts.group}, but was not when this session began",
            f"log in anew, or for this terminal: newgrp {facts.group}",
        )
    else:
        yield look(
            check, f"{facts.user} is not in {facts.group}", f"adduser {facts.user} {facts.group}, and log in anew"
        )


# -- services

#: what stands there for a number that is not set
_UNSET: Final = {"", "infinity", "[not set]", str(2**64 - 1)}


def judge_units(units: Sequence[Unit], trouble: str, gateways: Sequence[str]) -> Iterator[Finding]:
    """The units of systemd; ``trouble`` is why there are none to ask for, ``gateways`` those that are configured."""
    check = "service"
    if trouble:
        yield not_checked(check, trouble)
        return
    by_name = {unit.name: unit for unit in units}
    main = by_name.get("bccnd.service")
    if main is None or main.get("LoadState") in ("not-found", ""):
        yield not_checked(check, "systemd knows no bccnd.service: the daemon is started by hand, or by somebody else")
        return
    yield from _main_unit(check, main)
    for name in ("bccnd-udp.socket", "bccnd-bus.socket", "bccnd-metrics.socket"):
        unit = by_name.get(name)
        if unit is not None and unit.get("LoadState") == "loaded" and unit.get("ActiveState") != "active":
            yield look(
                check,
                f"{name} is {unit.get('ActiveState')}: a restart of the daemon ends connections and loses datagrams",
                f"systemctl enable --now {name}",
            )
    for name in ("recorder", *gateways):
        unit = by_name.get(f"bccnd-{name}.service")
        if unit is None or unit.get("LoadState") != "loaded":
            continue
        state = unit.get("ActiveState")
        wanted = name in gateways or unit.get("UnitFileState") == "enabled"
        if state == "failed" or (wanted and state != "active"):
            yield wrong(
                check,
                f"{unit.name} is {state} ({unit.get('Result') or 'no result'})",
                f"journalctl -u {unit.name} -n 20; systemctl enable --now {unit.name}",
            )
        elif state == "active":
            yield ok(check, f"{unit.name} is active")


def _main_unit(check: str, unit: Unit) -> Iterator[Finding]:
    state, result = unit.get("ActiveState"), unit.get("Result")
    if state == "active":
        boot = unit.get("UnitFileState")
        if boot and boot not in ("enabled", "enabled-runtime", "static", "alias", "linked"):
            yield look(check, f"bccnd.service runs, and will not after a boot ({boot})", "systemctl enable bccnd")
        else:
            yield ok(check, "bccnd.service is active")
    elif state in ("activating", "reloading", "deactivating"):
        said = unit.get("StatusText")
        yield wrong(
            check,
            f"bccnd.service is {state} ({unit.get('SubState')}, last result {result}){f': {said}' if said else ''}",
            "systemctl status bccnd; journalctl -u bccnd -n 20",
        )
    else:
        yield wrong(
            check,
            f"bccnd.service is {state} (last result {result})",
            "journalctl -u bccnd -n 20; systemctl start bccnd",
        )
    restarts = unit.get("NRestarts")
    if restarts not in ("", "0"):
        how = ", the last time by the watchdog: it stood still" if result == "watchdog" else ""
        yield look(
            check,
            f"systemd had to start it again {restarts} times since it was started{how}",
            "journalctl -u bccnd -g 'Failed|Main process exited|watchdog'",
        )
    if unit.get("NeedDaemonReload") == "yes":
        yield look(check, "a unit file has changed since systemd read it", "systemctl daemon-reload")
    room, kept = unit.get("FileDescriptorStoreMax"), unit.get("NFileDescriptorStore")
    if room.isdigit() and kept.isdigit() and room not in _UNSET and int(room) and int(kept) >= int(room):
        yield look(
            check,
            f"systemd keeps {kept} descriptors for the daemon, and may not keep more: further clients will notice a "
            "restart",
            f"raise FileDescriptorStoreMax= of bccnd.service above {room}",
        )


def judge_descriptors(facts: Descriptors) -> Iterator[Finding]:
    check = "descriptors"
    if facts.limit is None:
        yield not_checked(check, "the daemon's limits cannot be seen: it does not run here, or is another user's")
        return
    needed = facts.clients + BESIDE
    used = "" if facts.used is None else f", {facts.used:,} are open"
    if facts.limit < needed:
        yield look(
            check,
            f"the daemon may open {facts.limit:,}{used}, and bus.max_clients {facts.clients:,} needs {needed:,}",
            f"LimitNOFILE={needed} in the unit (ulimit -n {needed} by hand), or lower bus.max_clients",
        )
    elif facts.used is not None and facts.used > 0.9 * facts.limit:
        yield look(check, f"the daemon has {facts.used:,} of {facts.limit:,} open", "bccn clients; raise LimitNOFILE=")
    else:
        yield ok(check, f"the daemon may open {facts.limit:,}{used}")


def judge_clock(facts: Clock) -> Iterator[Finding]:
    check = "clock"
    if facts.now < NEVER_SET:
        yield wrong(
            check,
            "it stands before 2024: numbers begin at the clock, and others will take ours for old ones",
            "timedatectl set-ntp true, or date -s",
        )
    elif facts.trouble:
        yield not_checked(check, facts.trouble)
    elif not facts.synchronised:
        yield look(
            check,
            "nobody keeps it right: times in logs and journals of several hosts will not fit together, and a clock "
            "that is set back makes a program look as if it began anew",
            "timedatectl set-ntp true (chrony or systemd-timesyncd; in a container on its host)",
        )
    elif facts.largest_error > LARGEST_ERROR:
        yield look(
            check,
            f"it may be wrong by {facts.largest_error:.1f} s",
            "timedatectl timesync-status, or chronyc tracking",
        )
    else:
        yield ok(check, f"synchronised, wrong by {facts.largest_error * 1000:.0f} ms at most")


def judge_disk(facts: Disk) -> Iterator[Finding]:
    """A folder of the recorder."""
    check, what = "recorder", f"{facts.what} {facts.path}"
    if facts.trouble:
        yield not_checked(check, f"{what}: {facts.trouble}")
    elif not facts.there:
        if facts.wanted:
            yield wrong(check, f"{what} is not there", f"install -d -m 0750 {facts.path}, for the recorder's user")
        else:
            yield not_checked(check, f"{what} is not there: nothing is recorded on this host")
    elif facts.writable is False:
        yield wrong(
            check, f"{what}: the recorder cannot write there", f"ls -ld {facts.path}; chown it to the recorder's user"
        )
    elif facts.free < facts.needed:
        yield (wrong if facts.wanted else look)(
            check,
            f"{what}: {facts.free >> 20:,} MiB are free, and {facts.needed >> 20:,} MiB are needed",
            "make room, set recorder.keep.age or recorder.keep.size, or move the journal",
        )
    elif facts.free < LITTLE * facts.total:
        yield look(
            check,
            f"{what}: {facts.free >> 20:,} MiB of {facts.total >> 20:,} MiB are free",
            "make room, or set recorder.keep.age or recorder.keep.size",
        )
    else:
        yield ok(check, f"{what}: {facts.free >> 20:,} MiB are free")
