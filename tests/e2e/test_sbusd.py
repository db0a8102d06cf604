"""`bccn-sbusd` in the place of sbusd: its flags, its addresses, its ways of starting and ending."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import bccnd
from bccnd.errors import BusError
from tests.e2e.harness import BIN, PATIENCE, acting_as, bccn, seqpacket, wait
from tests.support import need_root

SBUSD: Final = str(BIN / "bccn-sbusd")
ANN: Final = 61_001
#: sun_path, which sbusd fills to its end
SUN_PATH: Final = 108


@contextmanager
def sbusd(folder: Path, *flags: str, pass_fds: Sequence[int] = ()) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """One in the foreground that serves, and what it has printed; ready once it has closed its output."""
    with subprocess.Popen(
        [SBUSD, "-f", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, pass_fds=pass_fds
    ) as process:
        try:
            assert process.stdout is not None
            printed = process.stdout.read()
            yield process, printed
        finally:
            process.kill()


def works(sock: socket.socket) -> None:
    """What a client of sbusd relies on: patterns, order, echo to itself, and silence otherwise."""
    for packet in (b"SUB test/", b"SUB discard", b"UNSUB discard", b"MSG discard\0not caught"):
        sock.send(packet)
    for number in range(100):
        sock.send(b"MSG test/%d\0%d" % (number, number))
    assert [sock.recv(65536) for _ in range(100)] == [b"MSG test/%d\0%d" % (n, n) for n in range(100)]
    sock.send(b"CMSG !/cred/whoami")
    own = b"!/cred/%d/%d/%d" % (os.getegid(), os.geteuid(), os.getpid())
    assert sock.recv(65536) == b"CMSG !/cred/whoami\0" + own


@pytest.mark.parametrize("how", ["generated", "abstract", "short", "bound", "listening", "path"])
def test_it_serves_at_every_kind_of_address_and_ends(tmp_path: Path, how: str) -> None:
    given = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name = b"\0" + os.urandom(SUN_PATH - 1)
    address, target = {
        "generated": ("/dev/unix/abstract", b""),
        "abstract": ("/dev/unix/abstract/" + name.hex(), name),
        # sbusd binds all of sun_path, whatever was written out of it
        "short": ("/dev/unix/abstract/00616263", b"\0abc".ljust(SUN_PATH, b"\0")),
        "path": (str(tmp_path / "sock"), os.fsencode(tmp_path / "sock")),
    }.get(how, (f"/dev/fd/{given.fileno()}", name))
    if address.startswith("/dev/fd/"):
        given.bind(target)
    if how == "listening":
        given.listen(1)
    auto_close = how in ("generated", "bound", "path")
    flags = ["-a", address, *(["-c"] if auto_close else [])]
    with sbusd(tmp_path, *flags, pass_fds=[given.fileno()]) as (process, printed):
        if how == "generated":
            assert re.fullmatch(rb"/dev/unix/abstract/00[0-9a-f]{%d}\n" % (2 * SUN_PATH - 2), printed)
            target = bytes.fromhex(printed.decode().strip().rpartition("/")[2])
        else:
            assert printed == b""
        given.close()
        with seqpacket(target) as client:
            works(client)
            if not auto_close:
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 0
        assert process.wait(PATIENCE) == 0
    assert not list(tmp_path.iterdir())


def test_flags_give_the_mode_and_replace_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    path.touch()
    for flags in ("-asock", "-a/dev/unix/abstract/6162", "-uno-such-user"):
        done = subprocess.run([SBUSD, "-f", flags], cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, bool(done.stderr)) == (1 if flags == "-asock" else 2, True), flags
    assert path.is_file()
    for words, mode, number in (
        (["-r"], 0o700, signal.SIGHUP),
        (["-g"], 0o770, signal.SIGTERM),
        (["-crgo"], 0o777, signal.SIGINT),
    ):
        with sbusd(tmp_path, "-asock", *words) as (process, _):
            assert stat.S_IMODE(path.stat().st_mode) == mode
            process.send_signal(number)
            assert process.wait(PATIENCE) == 0
        assert not path.exists()


def test_in_the_background_it_writes_a_pid_and_cleans_up(tmp_path: Path) -> None:
    sock, pidfile = tmp_path / "sock", tmp_path / "pid"
    command = [SBUSD, "-a", "sock", "-p", "pid"]
    assert subprocess.run(command, cwd=tmp_path, timeout=PATIENCE, check=False).returncode == 0
    pid = int(pidfile.read_text())
    try:
        assert os.getpgid(pid) != os.getpgid(0)
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert {Path(f"/proc/{pid}/fd/{fd}").readlink() for fd in (0, 1)} == {Path("/dev/null")}
        with seqpacket(str(sock)) as client:
            works(client)
        again = subprocess.run([*command[:2], "other", *command[3:]], cwd=tmp_path, timeout=PATIENCE, check=False)
        assert again.returncode == 1
        assert pidfile.read_text() == f"{pid}\n"
        assert not (tmp_path / "other").exists()
    finally:
        os.kill(pid, signal.SIGINT)
    wait(lambda: not list(tmp_path.iterdir()), "both files to be gone")


def test_only_the_named_users_and_its_own_may_connect() -> None:
    need_root("clients of several users")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with sbusd(folder, "-oa", "sock", "-u", str(ANN)) as (process, _):
            path = str(folder / "sock")
            with acting_as(ANN):
                ann = seqpacket(path)
            with ann, seqpacket(path) as root:
                ann.send(b"SUB a")
                root.send(b"SUB a")
                for sock in (ann, root):
                    sock.send(b"CMSG !/bccn/sync")
                    assert sock.recv(100) == b"CMSG !/bccn/sync\0"
                root.send(b"MSG a\0x")
                assert ann.recv(100) == root.recv(100) == b"MSG a\0x"
            with acting_as(ANN + 1):
                other = seqpacket(path)
            with other:
                assert other.recv(100) == b"CMSG !/bccn/error\0not_admitted "
                assert other.recv(100) == b""
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0


def test_programs_use_it_and_tools_say_what_it_lacks(tmp_path: Path) -> None:
    with sbusd(tmp_path, "-a/dev/unix/abstract") as (_, printed):
        address = printed.decode().strip()
        with bccnd.connect(address) as client:
            client.subscribe("a/")
            for chan in ("a/b", "a/no channel"):
                client.publish(chan, "hello")
            assert client.sync() == []
            heard = [client.receive(PATIENCE), client.receive(PATIENCE)]
            assert [one.chan for one in heard if isinstance(one, bccnd.Message)] == ["a/b", "a/no channel"]
            with pytest.raises(BusError, match="unknown_control"):
                client.ask(b"!/bccn/trace", b"x")
        for command in (["tap"], ["sources"], ["top", "--once"], ["trace", "x"]):
            done = bccn(*command, bus=address)
            assert (done.returncode, done.stdout) == (3, b""), command
            assert b"bccn-sbusd" in done.stderr
