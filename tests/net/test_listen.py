"""Listening sockets: a path is created safely or refused, a served socket is never replaced, one of many wins."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.core.formats.bus_address import MAX_PATH, SUN_PATH, read_address, write_address
from bccnd.errors import StartError
from bccnd.net import listen as listen_module
from bccnd.net.listen import ACCEPTS, Acceptor, listen_abstract, listen_bus, listen_tcp, listen_unix
from bccnd.net.loop import Loop
from bccnd.net.peer import credentials
from tests.limits import descriptors
from tests.support import NOBODY, PATIENCE, ROOT, need_root, turn, turn_until, without_root


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others than root can reach, too, which pytest's own cannot be."""
    with tempfile.TemporaryDirectory(prefix="bccnd-test-") as name:
        yield Path(name)


def refusal(path: object, mode: int = 0o600, gid: int | None = None) -> StartError:
    """Why there is no listening at ``path``; a refusal has a remedy and leaves no descriptor open."""
    before = descriptors()
    with pytest.raises(StartError) as caught:
        listen_unix(str(path), mode, gid).close()
    assert descriptors() == before
    assert caught.value.remedy
    assert str(path) in str(caught.value) or str(Path(str(path)).parent) in str(caught.value)
    return caught.value


def test_a_directory_must_be_there_and_be_ours_alone(folder: Path) -> None:
    assert refusal(folder / "nowhere/bus.sock").reason == "no_directory"
    for mode in (0o777, 0o707, 0o775, 0o722):
        folder.chmod(mode)
        assert refusal(folder / "bus.sock").reason == "foreign_directory"
        assert os.listdir(folder) == []
    # In a sticky directory others cannot replace our file.
    folder.chmod(0o1777)
    listen_unix(str(folder / "bus.sock"), 0o600, None).close()
    (folder / "file").write_text("x")
    folder.chmod(0o700)
    assert refusal(folder / "file/bus.sock").reason == "bad_directory"


@pytest.mark.root
def test_a_directory_of_another_user_is_refused(folder: Path) -> None:
    need_root("only root can give a directory away")
    os.chown(folder, NOBODY, -1)
    assert refusal(folder / "bus.sock").reason == "foreign_directory"
    assert os.listdir(folder) == []


def test_a_directory_that_we_may_not_open_or_write_to_is_refused(folder: Path) -> None:
    before = os.umask(0o027)
    try:
        with without_root(folder):
            inner = folder / "inner"
            inner.mkdir(mode=0)
            assert refusal(inner / "bus.sock").reason == "bad_directory"
            folder.chmod(0o500)
            assert refusal(folder / "bus.sock").reason == "bind_failed"
            folder.chmod(0o700)
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


@pytest.mark.root
def test_a_lock_that_another_user_holds_on_the_directory_stops_no_start(folder: Path) -> None:
    need_root("a lock of another user")
    folder.chmod(0o755)
    code = "import fcntl, os, sys\nfcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX)\nprint(flush=True)\ninput()"
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(
        command, user=NOBODY, extra_groups=[], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"\n"
        starter = [sys.executable, "-c", STARTER, str(folder / "bus.sock")]
        try:
            subprocess.run(starter, cwd=ROOT, timeout=PATIENCE, check=True)
        finally:
            stranger.kill()
    assert os.listdir(folder) == ["bus.sock"]


@pytest.mark.root
def test_only_ours_is_taken_for_the_lock_of_a_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root("a file of another user")
    monkeypatch.setattr(listen_module, "LOCK_TIME", 0.05)
    lock = folder / "bus.sock.lock"
    lock.symlink_to("/dev/null")
    assert refusal(folder / "bus.sock").reason == "start_locked"
    lock.unlink()
    for mode, uid in ((0o644, os.geteuid()), (0o600, NOBODY), (0o600, os.geteuid())):
        lock.touch()
        lock.chmod(mode)
        os.chown(lock, uid, -1)
        if uid == NOBODY or mode != 0o600:
            assert refusal(folder / "bus.sock").reason == "start_locked"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert refusal(folder / "bus.sock").reason == "start_locked"
    # One that a killed daemon has left.
    listen_unix(str(folder / "bus.sock"), 0o600, None).close()
    assert os.listdir(folder) == ["bus.sock"]


def test_a_path_may_be_as_long_in_bytes_as_the_kernel_takes(folder: Path) -> None:
    longest = folder / ("x" * (MAX_PATH - len(str(folder)) - 1))
    listen_unix(str(longest), 0o600, None).close()


def test_what_is_no_socket_is_not_touched(folder: Path) -> None:
    path = folder / "bus.sock"
    path.write_text("precious")
    assert refusal(path).reason == "path_taken"
    assert path.read_text() == "precious"
    directory = folder / "directory"
    directory.mkdir()
    assert refusal(directory).reason == "path_taken"
    # A link is judged as what it is, not as what it points to.
    link = folder / "link"
    listen_unix(str(folder / "real"), 0o600, None).close()
    link.symlink_to(folder / "real")
    assert refusal(link).reason == "path_taken"
    assert link.is_symlink()


def test_a_stale_socket_file_is_replaced(folder: Path) -> None:
    path = str(folder / "bus.sock")
    listen_unix(path, 0o600, None).close()
    before = os.stat(path).st_ino, os.stat(path).st_ctime_ns
    with contextlib.closing(listen_unix(path, 0o600, None)) as listener:
        assert (os.stat(path).st_ino, os.stat(path).st_ctime_ns) != before
        assert greeted(listener)


def test_a_served_socket_is_refused_and_stays_served(folder: Path) -> None:
    path = str(folder / "bus.sock")
    with contextlib.closing(listen_unix(path, 0o600, None)) as living:
        inode = os.stat(path).st_ino
        refused = refusal(path)
        assert refused.reason == "path_served"
        assert f"pid {os.getpid()}" in refused.detail
        assert os.stat(path).st_ino == inode
        living.accept()[0].close()  # the knock of the other one
        assert greeted(living)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_a_living_socket_of_another_kind_or_with_a_full_backlog_is_refused_too(
    folder: Path, kind: socket.SocketKind
) -> None:
    path = str(folder / "bus.sock")
    with socket.socket(socket.AF_UNIX, kind) as living, contextlib.ExitStack() as knocks:
        living.bind(path)
        if kind != socket.SOCK_DGRAM:
            living.listen(0)
        with contextlib.suppress(BlockingIOError):
            while kind == socket.SOCK_SEQPACKET:
                knock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
                knocks.enter_context(knock).connect(path)
        assert refusal(path).reason == "path_served"
        assert os.path.exists(path)


def test_the_mode_is_what_was_asked_for_whatever_the_umask(folder: Path) -> None:
    path = str(folder / "bus.sock")
    before = os.umask(0o077)
    try:
        for mode in (0o600, 0o660, 0o666):
            with contextlib.closing(listen_unix(path, mode, None)):
                assert stat.S_IMODE(os.stat(path).st_mode) == mode
            assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)


@pytest.mark.root
def test_the_group_is_what_was_asked_for(folder: Path) -> None:
    need_root("only root can give a file to any group")
    path = str(folder / "bus.sock")
    with contextlib.closing(listen_unix(path, 0o660, 12_345)):
        assert (os.stat(path).st_uid, os.stat(path).st_gid) == (0, 12_345)


def test_a_group_that_we_may_not_give_to_is_refused_and_nothing_is_left(folder: Path) -> None:
    path = folder / "bus.sock"
    with without_root(folder):
        assert refusal(path, 0o660, 12_345).reason == "group_refused"
    assert not path.exists()


STARTER = "import sys; from bccnd.net.listen import listen_unix; listen_unix(sys.argv[1], 0o600, None).close()"
RACER = """
import sys
from bccnd.errors import StartError
from bccnd.net.listen import listen_unix
print("ready", flush=True)
sys.stdin.readline()
try:
    listener = listen_unix(sys.argv[1], 0o600, None)
except StartError as error:
    print(error.reason, flush=True)
else:
    print("won", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("stale", [False, True])
def test_of_many_processes_that_start_at_once_exactly_one_wins(folder: Path, stale: bool) -> None:
    path = str(folder / "bus.sock")
    if stale:  # the harder case: each of them has something to remove
        listen_unix(path, 0o600, None).close()
    command = [sys.executable, "-c", RACER, path]
    racers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        for _ in range(6)
    ]

    def lines() -> list[str]:
        return [racer.stdout.readline().strip() for racer in racers if racer.stdout is not None]

    try:
        assert lines() == ["ready"] * 6
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
        outcomes = lines()
        assert sorted(outcomes) == ["path_served"] * 5 + ["won"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(path)
            pid, _, _ = credentials(client)
        assert pid == racers[outcomes.index("won")].pid
    finally:
        for racer in racers:
            racer.communicate("end\n")


def greeted(listener: socket.socket) -> bool:
    """Whether a connection to a listening socket comes out at its other end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(listener.getsockname())
        served, _ = listener.accept()
        with served:
            served.send(b"welcome")
            return client.recv(10) == b"welcome"


@pytest.mark.parametrize("tail", [b"", b"/with/slash", b"\0inside\0", b"\xff\x00"])
def test_an_abstract_address_is_listened_on_by_all_its_bytes(tail: bytes) -> None:
    name = b"\0bccnd-test-" + secrets.token_bytes(8) + tail
    with contextlib.closing(listen_bus(name, 0o600, None)) as listener:
        assert listener.getsockname() == name
        assert listener.type == socket.SOCK_SEQPACKET
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert greeted(listener)
    # With the socket goes the address.
    listen_abstract(name).close()


def test_without_a_name_every_abstract_address_is_another_one_and_can_be_written_down() -> None:
    with contextlib.closing(listen_abstract()) as one, contextlib.closing(listen_abstract()) as other:
        names = [listener.getsockname() for listener in (one, other)]
        assert names[0] != names[1]
        for name in names:
            assert len(name) == SUN_PATH
            assert name.startswith(b"\0")
            assert read_address(write_address(name)) == name


def test_a_served_abstract_address_is_refused_and_stays_served() -> None:
    name = b"\0bccnd-test-" + secrets.token_hex(8).encode()
    with contextlib.closing(listen_abstract(name)) as living:
        before = descriptors()
        with pytest.raises(StartError) as caught:
            listen_bus(name, 0o600, None)
        assert descriptors() == before
        assert caught.value.reason == "no_socket"
        assert f"@{name[1:].decode()}" in caught.value.detail
        assert "Address already in use" in caught.value.detail
        assert "ss -xlp" in caught.value.remedy
        assert greeted(living)


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("blocking", [False, True])
def test_an_inherited_socket_is_used(folder: Path, listening: bool, blocking: bool) -> None:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened.bind(str(folder / "bus.sock"))
    opened.setblocking(blocking)
    if listening:
        opened.listen(5)
    descriptor = opened.detach()
    with contextlib.closing(listen_bus(descriptor, 0o600, None)) as listener:
        assert listener.fileno() == descriptor
        assert listener.getblocking() is False
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert greeted(listener)


def unusable(kind: str) -> int:
    """A descriptor that is no socket to listen on."""
    if kind in ("file", "closed"):
        return os.open("/dev/null", os.O_RDONLY)
    if kind == "connected":
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other.close()
        return one.detach()
    family = socket.AF_INET if kind == "inet" else socket.AF_UNIX
    type_ = {"stream": socket.SOCK_STREAM, "dgram": socket.SOCK_DGRAM}.get(kind, socket.SOCK_SEQPACKET)
    return socket.socket(family, socket.SOCK_STREAM if kind == "inet" else type_).detach()


@pytest.mark.parametrize("kind", ["file", "inet", "stream", "dgram", "unbound", "connected", "closed"])
def test_a_descriptor_that_cannot_be_listened_on_is_refused_and_left_as_it_is(kind: str) -> None:
    descriptor = unusable(kind)
    if kind == "closed":
        os.close(descriptor)
    try:
        with pytest.raises(StartError) as caught:
            listen_bus(descriptor, 0o600, None)
        assert caught.value.reason == "no_socket"
        assert f"descriptor {descriptor}" in caught.value.detail
        assert caught.value.remedy
        del caught
        gc.collect()
        if kind != "closed":
            os.fstat(descriptor)  # it was not ours to close
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_an_ipv6_address_is_listened_on_and_one_that_cannot_be_is_refused() -> None:
    with contextlib.closing(listen_tcp("::1", 0)) as listener:
        socket.create_connection(listener.getsockname()[:2]).close()
        assert listener.family == socket.AF_INET6
    with contextlib.closing(listen_tcp("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        before = descriptors()
        # The second one is of no host: it is set aside for documentation.
        for host, number, remedy in (("127.0.0.1", port, True), ("192.0.2.1", 0, False)):
            with pytest.raises(StartError) as caught:
                listen_tcp(host, number)
            assert caught.value.reason == "metrics_refused"
            assert f"{host}:{number}" in caught.value.detail
            assert (f"sport = :{number}" in caught.value.remedy) is remedy
        assert descriptors() == before


class Broke(socket.socket):
    """A listening socket in a process that can open nothing more, as long as ``broke`` is true."""

    broke = True
    error = errno.EMFILE
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.broke:
            raise OSError(self.error, os.strerror(self.error))
        return super().accept()


@pytest.fixture
def broke() -> Iterator[Broke]:
    with Broke(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def test_every_connection_is_handed_on_once_and_never_blocks(loop: Loop) -> None:
    listener = listen_tcp("127.0.0.1", 0)
    with contextlib.ExitStack() as stack:
        accepted: list[socket.socket] = []
        acceptor = Acceptor(loop, listener, "visitors", accepted.append, seconds=3600.0)
        visitors = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(ACCEPTS + 5)]
        turn(loop)
        assert len(accepted) == ACCEPTS, "other events must be served too"
        turn_until(loop, lambda: len(accepted) == len(visitors))
        turn(loop, 3)
        for sock in accepted:
            stack.enter_context(sock)
            assert sock.getblocking() is False
        assert {sock.getpeername() for sock in accepted} == {visitor.getsockname() for visitor in visitors}
        acceptor.close()
        acceptor.close()  # to do so twice is no fault
        assert listener.fileno() == -1


def test_a_round_accepts_no_more_once_its_time_is_used_up(loop: Loop) -> None:
    listener = listen_tcp("127.0.0.1", 0)
    with contextlib.ExitStack() as stack:
        accepted: list[socket.socket] = []
        acceptor = Acceptor(loop, listener, "visitors", accepted.append, seconds=0.0)
        for _ in range(5):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        for number in range(1, 6):
            turn(loop)
            assert len(accepted) == number
        for sock in accepted:
            sock.close()
        acceptor.close()


def let_pass(loop: Loop) -> None:
    """Turn the loop as if its pause were over."""
    for timer in loop._timers:
        timer.when -= listen_module.PAUSE
    turn(loop, 3)


@pytest.mark.parametrize(
    ("error", "why", "remedy"),
    [(errno.EMFILE, "Too many open files", "LimitNOFILE="), (errno.EPERM, "Operation not permitted", "")],
    ids=["out of descriptors", "a security module"],
)
def test_accepting_pauses_after_an_error_which_is_logged_once(
    loop: Loop, broke: Broke, caplog: pytest.LogCaptureFixture, error: int, why: str, remedy: str
) -> None:
    broke.error = error
    accepted: list[socket.socket] = []
    acceptor = Acceptor(loop, broke, "visitors", accepted.append)
    with socket.create_connection(broke.getsockname()):
        turn(loop, 100)
        # Within the pause it does not try again.
        for tries in (1, 2, 3):
            assert broke.asked == tries
            assert accepted == []
            if tries == 3:
                broke.broke = False
            let_pass(loop)
        (record,) = caplog.records
        assert f"visitors: {why}" in record.getMessage()
        assert remedy in vars(record)["remedy"]
        accepted[0].close()
    acceptor.close()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_listener_that_was_shut_down_is_logged_once_and_watched_no_more(
    loop: Loop, folder: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The parent of this process has it too.
    parent = listen_unix(str(folder / "bus.sock"), 0o600, None) if kind == "unix" else listen_tcp("127.0.0.1", 0)
    listener = socket.socket(fileno=os.dup(parent.fileno()))
    listener.setblocking(False)
    accepted: list[socket.socket] = []
    acceptor = Acceptor(loop, listener, "clients", accepted.append)
    with socket.socket(parent.family, parent.type) as client:
        client.connect(parent.getsockname())
        parent.shutdown(socket.SHUT_RDWR)
        turn(loop, 5)
        let_pass(loop)
    assert [vars(record)["event"] for record in caplog.records] == ["accept_failed"]
    assert not loop.watches(listener.fileno())
    assert len(accepted) == (kind == "unix"), "what had connected before"
    for sock in (*accepted, parent):
        sock.close()
    acceptor.close()
