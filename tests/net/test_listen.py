"""Listening sockets: a path is created safely or refused, a served socket is never replaced, one of many wins."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bccnd.core.formats.bus_address import MAX_PATH
from bccnd.errors import StartError
from bccnd.net import listen as listen_module
from bccnd.net.listen import ACCEPTS, Acceptor, listen_abstract, listen_bus, listen_tcp, listen_unix
from bccnd.net.loop import Loop
from tests.limits import descriptors
from tests.support import NOBODY, Closing, need_root, turn, turn_until, without_root


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others than root can reach, too, which pytest's own cannot be."""
    with tempfile.TemporaryDirectory(prefix="bccnd-test-") as name:
        yield Path(name)


def refused(listen: Callable[[], socket.socket]) -> StartError:
    """Why there is no listening; a refusal has a remedy and leaves no descriptor open."""
    before = descriptors()
    with pytest.raises(StartError) as caught:
        listen().close()
    assert descriptors() == before
    assert caught.value.remedy
    return caught.value


def refusal(path: Path, mode: int = 0o600, gid: int | None = None) -> str:
    """The reason why there is no listening at a path."""
    error = refused(lambda: listen_unix(str(path), mode, gid))
    assert str(path) in str(error) or str(path.parent) in str(error)
    return error.reason


#: how a shell prepares a folder, and why there is no listening in it, if there is none
PLACES: list[tuple[str, str]] = [
    *((f"chmod {mode} .", "foreign_directory") for mode in ("777", "707", "775", "722")),
    ("chmod 1777 .", ""),  # others cannot replace our file
    ("echo precious > bus.sock", "path_taken"),
    ("mkdir bus.sock", "path_taken"),
    ("ln -s /dev/null bus.sock", "path_taken"),
    ("ln -s /dev/null bus.sock.lock", "start_locked"),
    ("touch bus.sock.lock; chmod 644 bus.sock.lock", "start_locked"),
]
PLACES_OF_OTHERS: list[tuple[str, str]] = [
    (f"chown {NOBODY} .", "foreign_directory"),
    (f"touch bus.sock.lock; chmod 600 bus.sock.lock; chown {NOBODY} bus.sock.lock", "start_locked"),
]


@pytest.mark.parametrize(
    ("preparation", "reason"),
    [*PLACES, *(pytest.param(*place, marks=pytest.mark.root) for place in PLACES_OF_OTHERS)],
)
def test_what_is_not_ours_alone_is_refused_and_not_touched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, preparation: str, reason: str
) -> None:
    if "chown" in preparation:
        need_root("only root can give a file away")
    monkeypatch.setattr(listen_module, "LOCK_TIME", 0.05)
    look = ["sh", "-c", "ls -lR; cat bus.sock 2>&1"]
    subprocess.run(["sh", "-c", preparation], cwd=folder, check=True)
    before = subprocess.run(look, cwd=folder, capture_output=True, check=False).stdout
    if not reason:
        listen_unix(str(folder / "bus.sock"), 0o600, None).close()
        return
    assert refusal(folder / "bus.sock") == reason
    assert subprocess.run(look, cwd=folder, capture_output=True, check=False).stdout == before


def test_a_directory_must_be_there_and_be_open_to_us(folder: Path) -> None:
    (folder / "file").touch()
    assert refusal(folder / "nowhere/bus.sock") == "no_directory"
    assert refusal(folder / "file/bus.sock") == "bad_directory"
    with without_root(folder):
        (folder / "inner").mkdir(mode=0)
        assert refusal(folder / "inner/bus.sock") == "bad_directory"
        folder.chmod(0o500)
        assert refusal(folder / "bus.sock") == "bind_failed"
        folder.chmod(0o700)


def test_a_lock_that_is_held_stops_a_start_but_not_one_of_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen_module, "LOCK_TIME", 0.05)
    lock = folder / "bus.sock.lock"
    lock.touch(0o600)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert refusal(folder / "bus.sock") == "start_locked"
    # Any user that can read the directory can lock it; the file is one that a killed daemon has left.
    directory = os.open(folder, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    listen_unix(str(folder / "bus.sock"), 0o600, None).close()
    os.close(directory)
    assert os.listdir(folder) == ["bus.sock"]


def test_a_stale_socket_file_is_replaced(folder: Path) -> None:
    path = str(folder / ("x" * (MAX_PATH - len(str(folder)) - 1)))  # the longest that there can be
    listen_unix(path, 0o600, None).close()
    before = os.stat(path).st_ino, os.stat(path).st_ctime_ns
    with contextlib.closing(listen_unix(path, 0o600, None)) as listener:
        assert (os.stat(path).st_ino, os.stat(path).st_ctime_ns) != before
        assert greeted(listener)


def test_a_served_socket_is_refused_and_stays_served(folder: Path) -> None:
    path = folder / "bus.sock"
    with contextlib.closing(listen_unix(str(path), 0o600, None)) as living:
        inode = os.stat(path).st_ino
        assert refusal(path) == "path_served"
        assert os.stat(path).st_ino == inode
        living.accept()[0].close()  # the knock of the other one
        assert greeted(living)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_a_socket_of_another_kind_or_with_a_full_backlog_serves(folder: Path, kind: socket.SocketKind) -> None:
    path = folder / "bus.sock"
    with socket.socket(socket.AF_UNIX, kind) as living, contextlib.ExitStack() as knocks:
        living.bind(str(path))
        if kind != socket.SOCK_DGRAM:
            living.listen(0)
        with contextlib.suppress(BlockingIOError):
            while kind == socket.SOCK_SEQPACKET:
                knock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
                knocks.enter_context(knock).connect(str(path))
        assert refusal(path) == "path_served"
        assert path.exists()


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_the_mode_is_what_was_asked_for_whatever_the_umask(folder: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        listen_unix(str(folder / "bus.sock"), mode, None).close()
    finally:
        assert os.umask(before) == 0o077
    assert stat.S_IMODE((folder / "bus.sock").stat().st_mode) == mode


@pytest.mark.root
def test_the_group_is_what_was_asked_for_or_there_is_no_socket(folder: Path) -> None:
    need_root("only root can give a file to any group")
    path = folder / "bus.sock"
    with contextlib.closing(listen_unix(str(path), 0o660, 12_345)):
        assert (path.stat().st_uid, path.stat().st_gid) == (0, 12_345)
    path.unlink()
    with without_root(folder):
        assert refusal(path, 0o660, 12_345) == "group_refused"
    assert not path.exists()


def test_of_many_that_start_at_once_exactly_one_wins(folder: Path) -> None:
    path = str(folder / "bus.sock")
    together = threading.Barrier(6)

    def start(_number: int) -> socket.socket | str:
        together.wait()
        try:
            return listen_unix(path, 0o600, None)
        except StartError as error:
            return error.reason

    for _ in range(20):  # from the second on, each of them has something to remove
        with ThreadPoolExecutor(6) as pool:
            outcomes = list(pool.map(start, range(6)))
        (winner,) = (one for one in outcomes if isinstance(one, socket.socket))
        with winner:
            assert outcomes.count("path_served") == 5
            for _ in range(5):
                winner.accept()[0].close()  # the knocks of the others
            assert greeted(winner)


def greeted(listener: socket.socket) -> bool:
    """Whether a connection to a listening socket comes out at its other end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(listener.getsockname())
        served, _ = listener.accept()
        with served:
            served.send(b"welcome")
            return client.recv(10) == b"welcome"


@pytest.mark.parametrize("tail", [b"", b"/with/slash", b"\0inside\0", b"\xff\x00"])
def test_an_abstract_address_is_served_once_by_all_its_bytes(tail: bytes) -> None:
    name = b"\0bccnd-test-" + secrets.token_bytes(8) + tail
    with contextlib.closing(listen_bus(name, 0o600, None)) as listener:
        assert (listener.getsockname(), listener.type) == (name, socket.SOCK_SEQPACKET)
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert refused(lambda: listen_bus(name, 0o600, None)).reason == "no_socket"
        assert greeted(listener)
    # With the socket goes the address.
    listen_abstract(name).close()


@pytest.mark.parametrize("listening", [False, True])
def test_an_inherited_socket_is_used(folder: Path, listening: bool) -> None:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened.bind(str(folder / "bus.sock"))
    if listening:
        opened.listen(5)
    descriptor = opened.detach()
    with contextlib.closing(listen_bus(descriptor, 0o600, None)) as listener:
        assert (listener.fileno(), listener.getblocking()) == (descriptor, False)
        assert greeted(listener)


def test_a_descriptor_that_is_no_use_is_left_as_it_is() -> None:
    connected, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inet = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)  # the last one is not bound
    useless = [connected, other, inet, *(socket.socket(socket.AF_UNIX, kind) for kind in kinds)]
    with open("/dev/null") as file, contextlib.ExitStack() as stack:
        closed = os.dup(file.fileno())
        os.close(closed)
        for descriptor in (closed, file.fileno(), *(stack.enter_context(sock).fileno() for sock in useless)):
            error = refused(lambda descriptor=descriptor: listen_bus(descriptor, 0o600, None))  # type: ignore[misc]
            assert (error.reason, str(descriptor) in error.detail) == ("no_socket", True)


def test_an_address_for_http_is_listened_on_or_refused() -> None:
    with contextlib.closing(listen_tcp("::1", 0)) as listener:
        socket.create_connection(listener.getsockname()[:2]).close()
        assert listener.family == socket.AF_INET6
    with contextlib.closing(listen_tcp("127.0.0.1", 0)) as other:
        # The second one is of no host: it is set aside for documentation.
        for host, number in (("127.0.0.1", other.getsockname()[1]), ("192.0.2.1", 0)):
            error = refused(lambda host=host, number=number: listen_tcp(host, number))  # type: ignore[misc]
            assert (error.reason, f"{host}:{number}" in error.detail) == ("metrics_refused", True)


# -- accepting


class Accepting(Closing):
    """What accepts connections at a listener, without one at a port of the loopback, and a way to connect there."""

    def __init__(self, loop: Loop, listener: socket.socket | None = None, seconds: float = 3600.0) -> None:
        self.accepted: list[socket.socket] = []
        self.visitors: list[socket.socket] = []
        self.listener = listener or listen_tcp("127.0.0.1", 0)
        self.acceptor = Acceptor(loop, self.listener, "visitors", self.accepted.append, seconds)

    def connect(self, count: int = 1) -> None:
        address = self.listener.getsockname()
        self.visitors += [socket.create_connection(address) for _ in range(count)]

    def close(self) -> None:
        for sock in (*self.accepted, *self.visitors):
            sock.close()
        self.acceptor.close()
        self.acceptor.close()  # to do so twice is no fault
        assert self.listener.fileno() == -1


def test_every_connection_is_handed_on_once_and_never_blocks(loop: Loop) -> None:
    with Accepting(loop) as one:
        one.connect(ACCEPTS + 5)
        turn(loop)
        assert len(one.accepted) == ACCEPTS, "other events must be served too"
        turn_until(loop, lambda: len(one.accepted) == len(one.visitors))
        turn(loop, 3)
        assert not any(sock.getblocking() for sock in one.accepted)
        assert {sock.getpeername() for sock in one.accepted} == {visitor.getsockname() for visitor in one.visitors}
    with Accepting(loop, seconds=0.0) as one:
        one.connect(5)
        for number in range(1, 6):
            turn(loop)
            assert len(one.accepted) == number, "a round accepts no more once its time is used up"


class Broke(socket.socket):
    """A listening socket that cannot accept so many times."""

    error = errno.EMFILE
    left = 3

    def accept(self) -> tuple[socket.socket, object]:
        if self.left:
            self.left -= 1
            raise OSError(self.error, os.strerror(self.error))
        return super().accept()


@pytest.mark.parametrize(
    ("error", "event"), [(errno.EMFILE, "out_of_descriptors"), (errno.EPERM, "accept_failed")], ids=errno.errorcode.get
)
def test_accepting_pauses_after_an_error_which_is_logged_once(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int, event: str
) -> None:
    monkeypatch.setattr(listen_module, "PAUSE", 0.02)
    with Broke(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listener:
        listener.error = error
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with Accepting(loop, listener) as one:
            one.connect()
            began = time.monotonic()
            turn_until(loop, lambda: one.accepted, "the connection")
        assert time.monotonic() - began >= 3 * listen_module.PAUSE
        assert [vars(record)["event"] for record in caplog.records] == [event]


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_listener_that_was_shut_down_is_watched_no_more(
    loop: Loop, folder: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The parent of this process has it too.
    parent = listen_unix(str(folder / "bus.sock"), 0o600, None) if kind == "unix" else listen_tcp("127.0.0.1", 0)
    listener = socket.socket(fileno=os.dup(parent.fileno()))
    listener.setblocking(False)
    with parent, socket.socket(parent.family, parent.type) as client, Accepting(loop, listener) as one:
        client.connect(parent.getsockname())
        parent.shutdown(socket.SHUT_RDWR)
        turn(loop, 5)
        assert not loop.watches(listener.fileno())
    assert [vars(record)["event"] for record in caplog.records] == ["accept_failed"]
    assert len(one.accepted) == (kind == "unix"), "what had connected before"
