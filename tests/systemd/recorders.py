"""What the recorder needs on a booted host beside the package."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.support import cannot_here
from tests.systemd.host import Host

#: what stands for a virtual environment: what Debian and the package have, and pyarrow of this machine
PROGRAM: Final = """#!/usr/bin/python3 -IS
import sys

sys.path += ["/opt/bccnd/lib", "/usr/lib/bccnd", "/usr/lib/python3/dist-packages"]

from bccnd.cli.main import main

main()
"""


def give_pyarrow(host: Host) -> None:
    """Install what the recorder needs, as if in a virtual environment."""
    version = host.run("python3", "-c", "import sys; print(*sys.version_info[:2])")
    if version.split() != [*map(str, sys.version_info[:2])]:
        cannot_here("the host's Python is another one than ours, and takes another pyarrow")
    spec = importlib.util.find_spec("pyarrow")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    for name in ("pyarrow", "pyarrow.libs"):
        if (folder.parent / name).exists():
            left_out = shutil.ignore_patterns("tests", "include", "*.pyx", "*flight*", "*gandiva*", "*.h")
            shutil.copytree(folder.parent / name, host.path(f"/opt/bccnd/lib/{name}"), ignore=left_out)
    host.write("/opt/bccnd/bin/bccn", PROGRAM, 0o755)
