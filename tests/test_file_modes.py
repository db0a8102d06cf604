"""Files of journals and tables are not for others, whatever the umask."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bccnd.file_modes import private_files


@pytest.mark.parametrize(("umask", "mode"), [(0, 0o640), (0o022, 0o640), (0o077, 0o600)])
def test_a_stricter_umask_stays_in_force_in_children_too(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with private_files():
            subprocess.run(["touch", str(tmp_path / "x")], check=True)
    finally:
        assert os.umask(before) == umask
    assert (tmp_path / "x").stat().st_mode & 0o777 == mode
