"""The files of the repository, and what modules of the package import."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support import ROOT, cannot_here

#: modules that depend on the world outside the process: decisions are made without them
IMPURE = {
    *("asyncio", "socket", "time", "logging", "random", "os", "select", "threading"),
    *("datetime", "multiprocessing", "pathlib", "secrets", "selectors", "signal", "subprocess", "tempfile", "uuid"),
}


def repository() -> list[str]:
    """List the files that are tracked by git, or could be added; without a repository, those of the sdist."""
    manifest = ROOT / "bccnd.egg-info/SOURCES.txt"
    if not (ROOT / ".git").exists() and manifest.is_file():
        return [name for name in manifest.read_text().splitlines() if not name.startswith("bccnd.egg-info/")]
    if shutil.which("git") is None:
        cannot_here("there is no git")
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        cannot_here(f"not a repository: {done.stderr.strip()}")
    # A file whose deletion is not committed yet is still listed.
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def imports(source: str, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield every module that a source imports; of `from a import b` this is a.b, as b may be a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            whole = base + tuple((node.module or "").split(".") if node.module else ())
            for alias in node.names:
                yield (*whole, alias.name)


@cache
def imported(path: Path) -> frozenset[tuple[str, ...]]:
    """Read the imports of a module of the package."""
    inside = path.relative_to(ROOT).with_suffix("").parts[:-1]
    return frozenset(imports(path.read_text(), inside))
