"""Files of journals and tables are not for others, whatever the umask."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from bccnd.cli.journals.pipeline_ingest import ingest
from bccnd.file_modes import private_files
from tests.core.captures import pcap
from tests.e2e.harness import datagram
from tests.pipeline.journals import frame
from tests.support import open_to_others


def test_a_journal_made_of_captures_is_not_for_others(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(pcap([frame(1, datagram("relay01/a/1", 1, "a/b", "secret"))]))
    before = os.umask(0)
    try:
        done = CliRunner().invoke(ingest, [f"{tmp_path}/x.pcap", "--host", "relay02", "--out", f"{tmp_path}/journal"])
    finally:
        umask = os.umask(before)
    assert (done.exit_code, umask) == (0, 0)
    assert not open_to_others(tmp_path / "journal")


@pytest.mark.parametrize(("umask", "mode"), [(0, 0o640), (0o022, 0o640), (0o077, 0o600)])
def test_a_stricter_umask_stays_in_force_in_children_too(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with private_files():
            subprocess.run(["touch", str(tmp_path / "x")], check=True)
    finally:
        assert os.umask(before) == umask
    assert (tmp_path / "x").stat().st_mode & 0o777 == mode
