"""Names that are not UTF-8, of the host and on command lines: a clear error, or they are kept as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Daemon, bccn, refused
from tests.support import cannot_here

ODD = b"odd\xff"
#: runs a command on a host of this name
RENAMED = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x04000000) or libc.sethostname({ODD!r}, {len(ODD)}):
    sys.exit(99)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_host_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    prefix = [sys.executable, "-c", RENAMED]
    if subprocess.run([*prefix, "true"], check=False).returncode:
        cannot_here("cannot rename the host: it takes root")
    daemon = Daemon(tmp_path / "a", start=False)
    daemon.prefix = prefix
    del daemon.settings["host"]
    daemon.configure({})
    assert "host: the name of this host" in refused(daemon)


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
    done = bccn(*words.replace("ODD", os.fsdecode(ODD)).split())
    assert done.returncode in (1, 2, 4)
    assert done.stderr
