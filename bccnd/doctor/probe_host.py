"""Reads commands, files, sockets, users and the log of this host, and changes nothing."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bccnd.config import SegmentSettings
from bccnd.core.formats.bus_address import read_address
from bccnd.core.formats.pem import read_certificates, validity
from bccnd.core.formats.strict_json import parse_json
from bccnd.errors import BadAddress, BadKey, StartError
from bccnd.key_files import read_key, read_public_key
from bccnd.net.segment_opening import UdpOptions, grow_receive_buffer, open_udp

#: seconds for a command
TIMEOUT: Final = 5.0
#: administrators' commands, which are not in every user's PATH
_FOLDERS: Final = "/usr/sbin:/sbin:/usr/bin:/bin"
#: columns of ``ss``: processes, size of the receive buffer, drops
_PROCESS: Final = re.compile(r'\("([^"]*)",pid=(\d+)')
_MEMORY: Final = re.compile(r"\brb(\d+)\b.*\bd(\d+)\)")
#: what separates a log message from its remedy, on one line or on several
_REMEDY: Final = re.compile(r"\. Remedy: |\n  remedy: ")


class ProbeError(Exception):
    """Something that cannot be read; the text says why."""


def run(*command: str) -> str:
    """The standard output of a command. Raises ProbeError if it is missing, fails or takes too long."""
    program = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:{_FOLDERS}")
    if program is None:
        raise ProbeError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, and no shell
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProbeError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise ProbeError(f"{command[0]}: {done.stderr.partition(chr(10))[0].strip() or 'failed'}")
    return done.stdout


def run_json(*command: str) -> Any:
    """The same of a command that prints JSON."""
    try:
        return parse_json(run(*command) or "[]")
    except ValueError as error:
        raise ProbeError(f"{command[0]} printed no JSON") from error


def read_text(path: str) -> str:
    """A small file, empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""


def key_problem(path: str, algorithm: str) -> str:
    """What is wrong with the content of a key file, a public one if there is no ``algorithm``; empty for nothing."""
    try:
        if algorithm:
            read_key(path, algorithm)
        else:
            read_public_key(path)
    except BadKey as error:
        # Mode and owner are judged by the daemon's user, not by the one of this command.
        if "has mode" not in error.detail and "belongs to" not in error.detail:
            return error.detail.removeprefix("public ").removeprefix(f"key {path} ")
    return ""


def certificate_expires(path: str) -> float:
    """Seconds until the first of a file's certificates expires. Raises ValueError if there are none."""
    certificates = read_certificates(Path(path).read_bytes())
    return min(validity(one)[1] for one in certificates) - time.time()


class BusSocket(NamedTuple):
    """``mode`` and ``group`` are None for an address that is no file; ``error`` is the name of the errno of an attempt
    to connect, or what else is wrong; empty if the attempt succeeded."""

    error: str = ""
    mode: int | None = None
    group: str | None = None


def bus_socket(path: str) -> BusSocket:
    """Connect to a socket of the bus."""
    mode = group = None
    try:
        address = read_address(path)
        if isinstance(address, int):
            return BusSocket("a descriptor that the daemon has inherited")
        if isinstance(address, str):
            info = os.stat(address)
            if not stat.S_ISSOCK(info.st_mode):
                return BusSocket("ENOTSOCK")
            mode, group = stat.S_IMODE(info.st_mode), group_name(info.st_gid)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sock:
            sock.connect(address)
    except BadAddress as bad:
        return BusSocket(bad.detail)
    except OSError as error:
        return BusSocket(errno.errorcode.get(error.errno or 0, str(error)), mode, group)
    return BusSocket("", mode, group)


def group_name(gid: int | str) -> str:
    """The name of a group that is given by name or number."""
    with contextlib.suppress(KeyError, ValueError):
        return grp.getgrgid(int(gid)).gr_name
    return str(gid)


class User(NamedTuple):
    """The user of this command; ``groups`` by the lists of users, ``session_groups`` since this session began."""

    name: str
    groups: frozenset[str] = frozenset()
    session_groups: frozenset[str] = frozenset()


def user() -> User:
    name, groups = str(os.geteuid()), [os.getegid()]
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(os.geteuid())
        name, groups = entry.pw_name, os.getgrouplist(entry.pw_name, entry.pw_gid)
    session = (*os.getgroups(), os.getegid())
    return User(name, frozenset(map(group_name, groups)), frozenset(map(group_name, session)))


class UdpSocket(NamedTuple):
    """``processes`` are names by pid, empty if they are not visible; ``buffer`` is the size that was granted."""

    processes: dict[int, str]
    buffer: int = 0
    drops: int = 0


def udp_sockets(port: int) -> list[UdpSocket]:
    """The sockets that are bound to a UDP port. Raises ProbeError."""
    sockets = []
    for line in run("ss", "-HuanmpO", f"sport = :{port}").splitlines():
        memory = _MEMORY.search(line)
        # The kernel counts its overhead too, and reports twice what it grants.
        size, drops = (int(memory[1]) // 2, int(memory[2])) if memory else (0, 0)
        sockets.append(UdpSocket({int(pid): name for name, pid in _PROCESS.findall(line)}, size, drops))
    return sockets


def open_segment(settings: SegmentSettings) -> int:
    """Open the socket of a segment as the daemon does, and close it: the receive buffer that the kernel grants.

    Nothing is sent. Raises StartError.
    """
    options = UdpOptions(
        settings.label,
        settings.address,
        settings.port,
        bind=settings.bind,
        interface=settings.interface,
        hop_limit=settings.hop_limit,
    )
    try:
        with open_udp(options) as sock:
            return grow_receive_buffer(sock, settings.receive_buffer)
    except OSError as error:
        raise StartError("no_route", f"segment {settings.label}: {error.strerror}", "see interface") from error


def input_chains() -> list[str]:
    """The chains of nftables, and of the older iptables, that see what comes in. Raises ProbeError."""
    chains = [row.get("chain", {}) for row in run_json("nft", "-j", "list", "chains").get("nftables", ())]
    hooks = ("ingress", "prerouting", "input")
    found = [
        f"{one['family']} {one['table']} {one['name']}"
        for one in chains
        if one.get("type") == "filter" and one.get("hook") in hooks
    ]
    legacy = "filter" in read_text("/proc/net/ip_tables_names").split()
    return [*found, "iptables-legacy INPUT"] if legacy else found


class Warned(NamedTuple):
    """Entries of one event: how many there are, and message and remedy of the last."""

    times: int
    message: str
    remedy: str = ""


def without_remedy(message: str) -> str:
    """Cut a log message before its remedy; of several faults in one message, only the first stays."""
    return _REMEDY.split(message, maxsplit=1)[0]


def recent_warnings(units: Sequence[str]) -> list[Warned]:
    """What these units have logged as warning or worse, and systemd about them; the latest event first.

    Raises ProbeError without python3-systemd or the right to read.
    """
    try:
        from systemd.journal import LOG_WARNING, SYSTEM, Reader
    except ImportError:
        raise ProbeError("python3-systemd is not installed") from None
    with Reader(SYSTEM) as reader:
        if not reader.get_next():  # a user without the right sees a log without entries
            raise ProbeError("only root and the groups adm and systemd-journal may read the log")
        reader.log_level(LOG_WARNING)
        reader.add_match(*(f"_SYSTEMD_UNIT={unit}" for unit in units))
        reader.add_disjunction()
        reader.log_level(LOG_WARNING)
        reader.add_match("_PID=1", *(f"UNIT={unit}" for unit in units))
        reader.seek_realtime(time.time() - 3600)
        found: dict[str, Warned] = {}
        for entry in reader:
            message = str(entry.get("MESSAGE", ""))
            event = str(entry.get("MESSAGE_ID", message))
            times = found.pop(event, Warned(0, "")).times + 1
            found[event] = Warned(times, without_remedy(message), str(entry.get("BCCND_REMEDY", "")))
    return list(found.values())[::-1]
