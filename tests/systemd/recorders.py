"""What the recorder needs on a booted host beside the package."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from tests.support import ROOT
from tests.systemd.host import Host

#: what stands for a virtual environment: what Debian and the package have, and pyarrow
PROGRAM: Final = """#!/usr/bin/python3 -IS
import sys

sys.path += ["/opt/bccnd/lib", "/usr/lib/bccnd", "/usr/lib/python3/dist-packages"]

from bccnd.cli.main import main

main()
"""


def _packages(version: str) -> Path:
    """Find the folder that has pyarrow for a version of Python; for other ones than this, pip fills it."""
    if version == ".".join(map(str, sys.version_info[:2])):
        spec = importlib.util.find_spec("pyarrow")
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin).parents[1]
    wanted = f"pyarrow=={metadata.version('pyarrow')}"
    folder = ROOT / ".cache/pyarrow" / f"{wanted}-{version}"
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--python-version", version, "--target", folder, wanted], check=True)
    return folder


def give_pyarrow(host: Host) -> None:
    """Install what the recorder needs, as if in a virtual environment."""
    folder = _packages(host.run("python3", "-c", "import sys; print(*sys.version_info[:2], sep='.')").strip())
    for name in ("pyarrow", "pyarrow.libs"):
        if (folder / name).exists():
            left_out = shutil.ignore_patterns("tests", "include", "*.pyx", "*flight*", "*gandiva*", "*.h")
            shutil.copytree(folder / name, host.path(f"/opt/bccnd/lib/{name}"), ignore=left_out)
    host.write("/opt/bccnd/bin/bccn", PROGRAM, 0o755)
