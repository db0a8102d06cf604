"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import KEY, Daemon
from tests.e2e.network import Net
from tests.support import cannot_here


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that requires HMAC."""
    daemon = Daemon(tmp_path / "a", start=False)
    daemon.configure({"integrity": daemon.with_key(KEY)})
    daemon.start()
    with daemon:
        yield daemon


@pytest.fixture
def net() -> Iterator[Net]:
    net = Net()
    try:
        try:
            net.open()
        except (OSError, subprocess.CalledProcessError) as error:
            output = getattr(error, "stderr", None) or str(error).encode()
            cannot_here(f"cannot make network namespaces (it takes root and iproute2): {output.decode().strip()}")
        yield net
    finally:
        net.close()
