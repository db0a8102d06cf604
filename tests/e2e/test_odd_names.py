"""Names that are not UTF-8, of the host and on command lines: a clear error, or they are kept as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bccnd.cli.main import main
from tests.e2e.harness import BIN, PATIENCE, Daemon, refused, wait
from tests.support import cannot_here, free_port

ODD = b"odd\xff"
#: runs a command on a host of this name
RENAMED = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x04000000) or libc.sethostname({ODD!r}, {len(ODD)}):
    sys.exit(99)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def on_odd_host() -> list[str]:
    prefix = [sys.executable, "-c", RENAMED]
    if subprocess.run([*prefix, "true"], check=False).returncode:
        cannot_here("cannot rename the host: it takes root")
    return prefix


def run(*command: str | bytes) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    assert b"Traceback" not in done.stderr, done.stderr
    return done


def test_a_host_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    daemon.prefix = on_odd_host()
    host = daemon.settings.pop("host")
    daemon.configure({})
    output = refused(daemon)
    assert "host: the name of this host" in output
    assert "set host:" in output
    config = ("--config", str(daemon.config))
    for command in ("bccnd --check", "bccn record", "bccn doctor"):
        program, *words = command.split()
        done = run(*daemon.prefix, str(BIN / program), *words, *config)
        assert b"host: the name of this host" in done.stdout + done.stderr, command
    daemon.configure({"host": host})
    daemon.start()
    with daemon, daemon.connect("x") as client:
        assert client.identity().startswith("relay01/")


def test_programs_without_a_configuration_derive_a_legal_name(tmp_path: Path) -> None:
    prefix, segment = on_odd_host(), f"127.255.255.255:{free_port()}"
    done = run(*prefix, str(BIN / "bccn"), "direct", "pub", "--segment", segment, "a", "x")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "bus.sock"
    with subprocess.Popen([*prefix, str(BIN / "bccn-sbusd"), "-f", "-a", str(path)]) as process:
        try:
            wait(path.exists, "the bus")
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.parametrize(
    "words",
    [
        "direct pub --interface ODD a x",
        "replay ODD",
        "record --journal ODD",
        "pipeline ingest ODD --host a --out journal",
    ],
)
def test_a_command_line_that_is_not_utf8_gives_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / os.fsdecode(ODD)).write_bytes(b"")
    line = ["--socket", str(tmp_path / "none.sock"), *words.replace("ODD", os.fsdecode(ODD)).split()]
    done = CliRunner().invoke(main, line)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (1, 2, 4)
    assert done.stderr
