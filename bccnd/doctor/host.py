"""Facts about files, users, units, limits and the clock of this host.

Law: nothing is changed; what may not be looked at is told as such.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import grp
import os
import pwd
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from bccnd.client.keys import read_key, read_public_key
from bccnd.config import RecorderSettings, Settings, SocketSettings
from bccnd.core.address import read_address
from bccnd.doctor import system
from bccnd.doctor.facts import BusSocket, Clock, Descriptors, Disk, KeyFile, Member, Unit
from bccnd.errors import BadAddress, BadKey

#: seconds for a local socket to let us in
_PATIENCE: Final = 2.0
#: <linux/timex.h>
_TIME_ERROR: Final = 5
_STA_UNSYNC: Final = 0x40
_UNITS: Final = tuple(
    f"bccnd{name}"
    for name in (
        *(".service", "-udp.socket", "-bus.socket", "-metrics.socket"),
        *("-recorder.service", "-nng.service", "-broker.service"),
    )
)
_PROPERTIES: Final = (
    *("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "NRestarts", "MainPID", "StatusText"),
    *("NeedDaemonReload", "FileDescriptorStoreMax", "NFileDescriptorStore", "DynamicUser", "User"),
)
_MIB: Final = 1 << 20


# -- keys and certificates


def look_at_keys(settings: Settings, folder: str) -> Iterator[KeyFile]:
    """The files that the configuration names; a name without ``/`` at its beginning counts from ``folder``."""
    integrity = settings.integrity
    for name in integrity.keys:
        yield look_at_key("key", os.path.join(folder, name), algorithm=integrity.algorithm)
    for prefix, names in integrity.signers.items():
        for name in names:
            yield look_at_key(f"public key of {prefix or 'all others'}", os.path.join(folder, name), public=True)
    tls = settings.gateways.nng.tls if settings.gateways.nng is not None else None
    if tls is not None:
        yield look_at_certificate("tls.ca", os.path.join(folder, tls.ca))
        yield look_at_certificate("tls.certificate", os.path.join(folder, tls.certificate))
        yield _stat("tls.key", os.path.join(folder, tls.key), public=False)


def look_at_key(what: str, path: str, *, public: bool = False, algorithm: str = "hmac") -> KeyFile:
    facts = _stat(what, path, public=public)
    if facts.trouble or not facts.readable or not facts.regular:
        return facts
    try:
        if public:
            read_public_key(path)
        else:
            read_key(path, algorithm)
    except BadKey as bad:
        # Modes and owners are judged by who the daemon is, and not by who looks.
        if "has mode" not in bad.detail and "belongs to" not in bad.detail:
            return replace(facts, content=bad.detail.removeprefix(f"key {path} ").removeprefix(f"public key {path} "))
    except ImportError:
        pass
    return facts


def look_at_certificate(what: str, path: str) -> KeyFile:
    facts = _stat(what, path, public=True)
    if facts.trouble or not facts.readable or not facts.regular:
        return facts
    try:
        from bccnd.core.pem import read_certificates, validity  # with a library that most have no use for
    except ImportError:
        return facts
    try:
        with open(path, "rb") as file:
            dates = [validity(one) for one in read_certificates(file.read(_MIB))]
    except (OSError, ValueError):
        return replace(facts, content="holds no certificate in PEM")
    now = time.time()
    return replace(
        facts, expires_in=min(end for _, end in dates) - now, begins_in=max(begin for begin, _ in dates) - now
    )


def _stat(what: str, path: str, *, public: bool) -> KeyFile:
    try:
        info = os.stat(path)
    except OSError as error:
        return KeyFile(what, path, trouble=error.strerror or str(error))
    loose = False
    with contextlib.suppress(OSError):
        folder = os.stat(os.path.dirname(path) or "/")
        loose = bool(folder.st_mode & 0o022) and not folder.st_mode & stat.S_ISVTX
    return KeyFile(
        what,
        path,
        mode=stat.S_IMODE(info.st_mode),
        uid=info.st_uid,
        regular=stat.S_ISREG(info.st_mode),
        readable=os.access(path, os.R_OK, effective_ids=True),
        public=public,
        loose_folder=loose,
    )


# -- the bus


def look_at_socket(settings: SocketSettings) -> BusSocket:
    """A socket of the bus, tried out; raises nothing."""
    try:
        address = read_address(settings.path)
    except BadAddress as bad:
        return BusSocket(settings.path, error=bad.detail)
    if isinstance(address, int):
        return BusSocket(settings.path, error="it is a descriptor that the daemon has inherited")
    mode = group = None
    if isinstance(address, str):
        try:
            info = os.stat(address)
        except PermissionError:
            return BusSocket(settings.path, error="EACCES")
        except OSError:
            return BusSocket(settings.path, there=False)
        if not stat.S_ISSOCK(info.st_mode):
            return BusSocket(settings.path, is_socket=False)
        mode, group = stat.S_IMODE(info.st_mode), _group_name(info.st_gid)
    wanted = settings.group
    return BusSocket(
        settings.path,
        wanted_mode=settings.mode,
        wanted_group=_group_name(int(wanted)) if wanted is not None and wanted.isdigit() else wanted,
        mode=mode,
        group=group,
        error=_connects(address),
    )


def _connects(address: str | bytes) -> str:
    """The errno's name of an attempt to connect, empty where it went well."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sock:
        try:
            sock.connect(address)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error))
    return ""


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def look_at_member(group: str | None) -> Member:
    """Who we are, as far as the group of the bus goes."""
    uid = os.geteuid()
    try:
        user, primary = pwd.getpwuid(uid).pw_name, pwd.getpwuid(uid).pw_gid
    except KeyError:
        user, primary = str(uid), -1
    if group is None:
        return Member(user, uid)
    try:
        entry = grp.getgrgid(int(group)) if group.isdigit() else grp.getgrnam(group)
    except KeyError:
        if not group.isdigit():
            return Member(user, uid, group, exists=False)
        return Member(user, uid, group, in_session=int(group) in (*os.getgroups(), os.getegid()))
    return Member(
        user,
        uid,
        entry.gr_name,
        listed=user in entry.gr_mem or primary == entry.gr_gid,
        in_session=entry.gr_gid in (*os.getgroups(), os.getegid()),
    )


# -- services


def look_at_units() -> tuple[list[Unit], str]:
    """The units of bccnd that systemd knows of, and why there are none to ask for."""
    if not os.path.isdir("/run/systemd/system"):
        return [], "systemd does not run here"
    said = system.ask("systemctl", "show", "--no-pager", f"--property={','.join(_PROPERTIES)}", *_UNITS)
    units = read_units(said.text)
    return units, "" if units else said.trouble or "systemctl says nothing"


def read_units(text: str) -> list[Unit]:
    """What ``systemctl show`` says of several units."""
    found = []
    for block in text.split("\n\n"):
        pairs = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        if pairs.get("Id"):
            found.append(Unit(pairs["Id"], pairs))
    return found


def look_at_descriptors(pid: int, clients: int) -> Descriptors:
    """The limits of the daemon's process."""
    text = system.content(f"/proc/{pid}/limits") if pid else None
    found = re.search(r"^Max open files +(\d+|unlimited)", text or "", re.MULTILINE)
    if found is None:
        return Descriptors(clients=clients, pid=pid)
    limit = int(found[1]) if found[1].isdigit() else 1 << 30
    used = len(system.links_of(pid)) or None
    return Descriptors(limit, used, clients, pid)


class _Timex(ctypes.Structure):
    """The beginning of struct timex, and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def look_at_clock() -> Clock:
    """Whether somebody keeps the clock right, as the kernel knows."""
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return Clock("this system has no adjtimex", now=time.time())
    if state < 0:
        return Clock(f"the kernel does not tell: {os.strerror(ctypes.get_errno())}", now=time.time())
    synchronised = state != _TIME_ERROR and not timex.status & _STA_UNSYNC
    return Clock("", synchronised, timex.maxerror * 1e-6, time.time())


def look_at_disks(recorder: RecorderSettings, units: Sequence[Unit]) -> Iterator[Disk]:
    """The folders of the recorder."""
    active = any(unit.name == "bccnd-recorder.service" and unit.get("ActiveState") == "active" for unit in units)
    wanted = active or any(
        unit.name == "bccnd-recorder.service" and unit.get("UnitFileState") == "enabled" for unit in units
    )
    for what, path, needed in (
        ("journal", recorder.journal, 2 * recorder.rotate_size),
        ("spool", recorder.spool, recorder.spool_size),
    ):
        if path is None:
            continue
        if "://" in path:
            yield Disk(what, path, trouble="it is not on this host")
            continue
        try:
            info, room = os.stat(path), os.statvfs(path)
        except FileNotFoundError:
            yield Disk(what, path, there=False, wanted=wanted)
            continue
        except OSError as error:
            yield Disk(what, path, trouble=error.strerror or str(error))
            continue
        size = room.f_frsize
        yield Disk(
            what,
            path,
            free=room.f_bavail * size,
            total=room.f_blocks * size,
            needed=needed,
            wanted=wanted,
            writable=bool(info.st_mode & stat.S_IWUSR) and not room.f_flag & os.ST_RDONLY,
        )
