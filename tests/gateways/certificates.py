"""Certificates for tests, made by the very commands that the page about links gives."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.support import ROOT, cannot_here

#: the blocks of commands of the page that make certificates
_BLOCK = re.compile(r"```sh\n(# certificates: .*?)```", re.DOTALL)


def commands() -> list[str]:
    return _BLOCK.findall((ROOT / "docs/links.md").read_text())


def make(folder: Path) -> Path:
    """``ca.pem``, and ``HOST.pem`` with ``HOST.key`` for relay01 and relay02; beside them a stranger's own, for the
    name relay02. ``HOST.both`` has certificate and key in one file, as nngcat wants it."""
    authority, host = commands()
    # The page's own hosts have names; a test has none but its loopback.
    host = host.replace("IP:192.0.2.2", "IP:127.0.0.1, DNS:localhost")
    run(folder, authority + "\n" + host.replace("relay02", "relay01") + "\n" + host)
    other = folder / "other"
    other.mkdir()
    run(other, authority + "\n" + host)
    for end in ("pem", "key"):
        (other / f"relay02.{end}").rename(folder / f"stranger.{end}")
    for name in ("relay01", "relay02", "stranger"):
        both = folder / f"{name}.both"
        both.touch(0o600)
        both.write_bytes((folder / f"{name}.pem").read_bytes() + (folder / f"{name}.key").read_bytes())
    return folder


def run(folder: Path, script: str) -> None:
    try:
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=folder,
            capture_output=True,
            env={**os.environ, "HOME": str(folder)},
            check=False,
        )
    except FileNotFoundError:
        cannot_here("there is no sh")
    assert done.returncode == 0, done.stderr.decode()
