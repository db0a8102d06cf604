"""Opens listening sockets: a path, an abstract address or an inherited descriptor for the bus, an address for HTTP.

Invariant: a socket file is created only in a directory that other users cannot modify; it replaces the file of a dead
daemon, never that of a running one; and of two daemons that start at once only one succeeds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from bccnd import log
from bccnd.core.formats.bus_address import SUN_PATH
from bccnd.core.formats.network_address import write_host_port
from bccnd.errors import StartError
from bccnd.file_modes import stricter_umask
from bccnd.net.host_lookup import look_up
from bccnd.net.loop import EXHAUSTED, GONE, READABLE, Loop
from bccnd.net.peer import credentials

#: seconds to wait for another daemon that starts at the same path, and between two attempts
LOCK_TIME: Final = 5.0
LOCK_RETRY: Final = 0.02
#: connections waiting to be accepted; limited by net.core.somaxconn
BACKLOG: Final = 1024
#: connections accepted in one round
ACCEPTS: Final = 64
#: seconds after which a round accepts no further connection
ACCEPT_SECONDS: Final = 0.002
#: seconds without accepting after that
PAUSE: Final = 0.5


def listen_unix(path: str, mode: int, gid: int | None) -> socket.socket:
    """Open a listening SEQPACKET socket at ``path``. Raises StartError."""
    _check_directory(os.path.dirname(os.path.abspath(path)))
    with _locked(path):
        if _is_stale(path):
            os.unlink(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            _bind(sock, path, mode, gid)
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
    return sock


def listen_abstract(name: bytes | None = None) -> socket.socket:
    """Open a listening SEQPACKET socket at an abstract address; a random one without ``name``. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        sock.bind(name or b"\0" + secrets.token_bytes(SUN_PATH - 1))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def adopt(descriptor: int) -> socket.socket:
    """Take over an inherited, bound SEQPACKET socket and make it listen. Raises OSError."""
    sock = socket.socket(fileno=descriptor)
    if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        sock.detach()
        raise OSError(errno.EPROTOTYPE, "not a Unix socket of type SEQPACKET")
    sock.setblocking(False)
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        try:
            sock.listen(BACKLOG)
        except OSError:
            sock.detach()  # the parent process owns it
            raise
    return sock


def listen_bus(address: str | bytes | int, mode: int, gid: int | None) -> socket.socket:
    """Open a listening socket at an address of `core.formats.bus_address`. Raises StartError."""
    if isinstance(address, str):
        return listen_unix(address, mode, gid)
    try:
        return adopt(address) if isinstance(address, int) else listen_abstract(address)
    except OSError as error:
        if isinstance(address, int):
            where = f"the inherited descriptor {address}"
            remedy = "open it in the process that starts the daemon, or choose another bus.path"
        else:
            where = f"the abstract address @{address[1:].decode('utf-8', 'backslashreplace')}"
            remedy = "end the process that holds it ('ss -xlp' shows it), or choose another bus.path"
        raise StartError("no_socket", f"bus.path: cannot use {where}: {error.strerror}", remedy) from error


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Keep other daemons from creating a socket at ``path``."""
    # Any user who can read the directory could hold a lock on the directory itself.
    lock = f"{path}.lock"
    deadline = time.monotonic() + LOCK_TIME
    while (fd := _try_lock(lock, path)) < 0:
        if time.monotonic() > deadline:
            raise StartError(
                "start_locked",
                f"bus.path: another process has held {lock} for {LOCK_TIME:g} s",
                f"end that daemon, which hangs in its start ('fuser {lock}' shows its pid)",
            )
        time.sleep(LOCK_RETRY)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(lock)
        os.close(fd)


def _try_lock(lock: str, path: str) -> int:
    """Lock a file that no other user can open; return its descriptor, or -1 if another process holds it."""
    fd = -1
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        info = os.fstat(fd)
        if info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "other users can open it")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The process that held it has removed it, and another file may be there now.
        if os.lstat(lock).st_ino == info.st_ino:
            locked, fd = fd, -1
            return locked
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        if os.path.lexists(lock):
            raise StartError("start_locked", f"bus.path: cannot lock {lock}: {error.strerror}", "remove it") from error
        _is_stale(path)  # a socket that is in use explains more
        raise _cannot_create(path, error) from error
    finally:
        if fd >= 0:
            os.close(fd)
    return -1


def _check_directory(directory: str) -> None:
    """Check that other users cannot modify the directory. Raises StartError."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StartError(
            "no_directory",
            f"bus.path: the directory {directory} does not exist",
            f"create it (install -d -m 0755 {directory}), or choose another bus.path",
        ) from None
    except OSError as error:
        raise StartError(
            "bad_directory",
            f"bus.path: cannot open the directory {directory}: {error.strerror}",
            "choose a directory that the daemon's user owns",
        ) from error
    info = os.fstat(fd)
    os.close(fd)
    open_to_all = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not info.st_mode & stat.S_ISVTX
    if info.st_uid not in (0, os.geteuid()) or open_to_all:
        raise StartError(
            "foreign_directory",
            f"bus.path: users other than root and the daemon's can replace files in {directory}",
            f"chown {os.geteuid()} {directory}; chmod go-w {directory}; or choose another directory",
        )


def _is_stale(path: str) -> bool:
    """Whether the socket file of a dead daemon is there. Raises StartError for anything else at the path."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise StartError(
            "foreign_directory",
            f"bus.path: no permission to read the directory of {path}",
            "choose a directory that the daemon's user owns",
        ) from error
    if not stat.S_ISSOCK(info.st_mode):
        raise StartError(
            "path_taken", f"bus.path: {path} exists and is not a socket", "move it away, or choose another bus.path"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError as error:
            # A full backlog or another type of socket: it is in use.
            owner = error.strerror or "no answer"
        else:
            pid, uid, _ = credentials(probe)
            owner = f"pid {pid}, uid {uid}"
    raise StartError(
        "path_served",
        f"bus.path: {path} is in use by another process ({owner})",
        "stop that process first (systemctl stop bccnd), or choose another bus.path",
    )


def bind_unix(sock: socket.socket, path: str, mode: int) -> None:
    """Bind a socket to a path; nothing can connect before ``mode`` is set. Raises OSError."""
    with stricter_umask(0o177):
        sock.bind(path)
    os.chmod(path, mode)


def _bind(sock: socket.socket, path: str, mode: int, gid: int | None) -> None:
    try:
        bind_unix(sock, path, 0o600)
    except OSError as error:
        raise _cannot_create(path, error) from error
    try:
        if gid is not None:
            os.chown(path, -1, gid)
        os.chmod(path, mode)
    except OSError as error:
        os.unlink(path)
        raise StartError(
            "group_refused",
            f"bus.group: cannot give {path} to group {gid}: {error.strerror}",
            "run the daemon as root or as a member of that group, or remove bus.group",
        ) from error


def _cannot_create(path: str, error: OSError) -> StartError:
    return StartError(
        "bind_failed",
        f"bus.path: cannot create {path}: {error.strerror}",
        "choose a directory that the daemon's user may write to",
    )


def listen_tcp(host: str, port: int, setting: str = "metrics.listen") -> socket.socket:
    """Open a listening TCP socket for a setting. Raises StartError."""
    sock = None
    try:
        family, address = look_up(host, port, socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        if sock is not None:
            sock.close()
        remedy = f"choose another '{setting}', or 'off'"
        if error.errno == errno.EADDRINUSE:
            remedy = f"find the other program with 'ss -ltnp sport = :{port}', or {remedy}"
        raise StartError(
            "metrics_refused",
            f"{setting}: cannot listen on {write_host_port(host, port)}: {error.strerror}",
            remedy,
        ) from error
    return sock


class Acceptor:
    """Accepts connections and passes them to ``on_accept``, non-blocking.

    Pauses while the process is out of descriptors: waiting connections wait, and existing ones are served. Ends when
    another process has shut the listener down.
    """

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        what: str,
        on_accept: Callable[[socket.socket], None],
        seconds: float = ACCEPT_SECONDS,
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._what = what
        self._on_accept = on_accept
        self._seconds = seconds
        self._watch()

    def _watch(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.watch(self._listener.fileno(), READABLE, self._on_event)

    def _on_event(self, events: int) -> None:
        deadline = time.monotonic() + self._seconds
        for _ in range(ACCEPTS):
            try:
                sock, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                if events & GONE:
                    self._on_shut_down()
                return
            except OSError as error:
                if events & GONE:
                    self._on_shut_down()
                else:
                    self._on_failure(error)
                return
            sock.setblocking(False)
            self._on_accept(sock)
            if time.monotonic() > deadline:
                return

    def _on_failure(self, failure: OSError) -> None:
        """Log that accepting fails. The listener stays ready: to watch it now would call again at once, for ever."""
        text = f"cannot accept {self._what}: {failure.strerror}"
        error = errno.errorcode.get(failure.errno or 0, "unknown")
        self._loop.unwatch(self._listener.fileno())
        if failure.errno in EXHAUSTED:
            log.event("out_of_descriptors", text, about=self._what, remedy="raise LimitNOFILE=", error=error)
        else:
            remedy = "find out what refuses it (journalctl -k)"
            log.event("accept_failed", text, about=self._what, remedy=remedy, error=error)
        self._loop.later(PAUSE, self._watch)

    def _on_shut_down(self) -> None:
        self._loop.unwatch(self._listener.fileno())
        log.event(
            "accept_failed",
            f"no more {self._what} can connect at descriptor {self._listener.fileno()}: another process that has this "
            "listening socket has shut it down",
            remedy="open it again in the process that starts this one, and restart both",
            error="ESHUTDOWN",
        )

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
