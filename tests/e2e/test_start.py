"""Starting and stopping: every refusal is clear, exits 2 and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.e2e.harness import BIN, PATIENCE, Daemon, Wire, datagram, payloads, refused


def test_what_cannot_work_is_refused_and_not_touched(tmp_path: Path) -> None:
    """Each refusal has its own tests; here it ends a program."""
    other = Daemon(tmp_path / "few", start=False)
    other.prefix = ["prlimit", "--nofile=8"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        taken = Daemon(tmp_path / "metrics", {"metrics": {"listen": listen}}, start=False)
        for daemon, output in ((taken, listen), (other, os.strerror(errno.EMFILE))):
            assert output in refused(daemon)
            assert not daemon.bus.exists()
    daemon = Daemon(tmp_path / "file", start=False)
    daemon.bus.write_text("precious")
    assert str(daemon.bus) in refused(daemon)
    assert daemon.bus.read_text() == "precious"


def test_check_says_ok_or_lists_every_fault_and_starts_nothing(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    command = [str(BIN / "bccnd"), "--check", "--config", str(daemon.config)]
    subprocess.run(command, check=True, capture_output=True)
    assert not daemon.bus.exists()
    daemon.config.write_text("host: a/b\nsegments: [{port: 0}]\nbus:\n  pth: /x\n")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    for part in (f"{daemon.config}:1: host:", ":2: segments[0].port:", ":4: bus.pth:", "mean path?"):
        assert part in done.stderr


def test_a_file_that_gateways_cannot_read_again_is_refused(tmp_path: Path) -> None:
    """From a pipe, and from a descriptor that the gateways do not have."""
    daemon = Daemon(tmp_path / "a", {"gateways": {"nng": {"dial": ["tcp://127.0.0.1:1"]}}}, start=False)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with daemon.config.open("rb") as file:
        writer = subprocess.Popen(["sh", "-c", f"cat {daemon.config} > {pipe}"])
        for path, source in (("/dev/stdin", file), (f"/dev/fd/{file.fileno()}", None), (str(pipe), None)):
            done = subprocess.run(
                [str(BIN / "bccnd"), "--config", path],
                stdin=source, pass_fds=[file.fileno()], capture_output=True, text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            assert (done.returncode, f"{path}: gateways: " in done.stderr) == (2, True)
            file.seek(0)
        assert writer.wait(PATIENCE) == 0


def test_sigterm_delivers_what_is_under_way_and_exits_0(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a")
    with daemon.connect("x") as reader, Wire(daemon.port) as wire, daemon:
        # Stopped, so that all of this is waiting in sockets when the daemon is told to end.
        daemon.signal(signal.SIGSTOP)
        wire.send(*(datagram("a/b/1", seq, "x", b"%d" % seq) for seq in range(200)))
        reader.publish("x", b"mine")
        daemon.signal(signal.SIGTERM)
        daemon.signal(signal.SIGCONT)
        assert sorted(payloads(reader, 201)) == sorted([b"mine", *(b"%d" % seq for seq in range(200))])


def test_a_start_that_is_called_off_leaves_no_socket(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    for hundredths in (2, 8, 16, 32):
        process = daemon.spawn()
        time.sleep(hundredths / 100)
        process.terminate()
        # Before it has begun to listen to signals it simply dies; from then on it ends in order.
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM)
        assert not daemon.bus.exists()
