"""Copies of the package in which some places of its sources are changed."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]


class Change(NamedTuple):
    """In a file of the repository, ``new`` takes the place of ``old``, which stands there once."""

    path: str
    old: str
    new: str


def missing(changes: Iterable[Change]) -> list[str]:
    """Return the places of changes that are gone."""
    found = []
    for path, old, _ in changes:
        count = (ROOT / path).read_text().count(old) if (ROOT / path).exists() else 0
        if count != 1:
            found.append(f"{path} has {old!r} {count} times")
    return found


def build(folder: Path, changes: Iterable[Change]) -> Path:
    """Make a folder with the changed package, and return it; what is compiled of it is compiled again."""
    (folder / "build").mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "bccnd", ignore_errors=True)
    # Times are kept: only what has changed is compiled again.
    shutil.copytree(ROOT / "bccnd", folder / "bccnd", ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / path, folder)
    if places := missing(changes):
        raise SystemExit(f"{folder.name}: {'; '.join(places)}; say how it would be changed today")
    for path, old, new in changes:
        (folder / path).write_text((folder / path).read_text().replace(old, new))
        if path == "setup.py":  # only linked again
            shutil.copystat(ROOT / path, folder / path)
    names = {path.rpartition(".")[0].replace("/", ".") for path, _, _ in changes}
    compiled = {"setup", *runpy.run_path(str(ROOT / "bccnd/compiled_modules.py"))["COMPILED"]}
    if names & compiled and list((ROOT / "bccnd").glob("_compiled*.so")):
        for made in ("c", *(one.name for one in (ROOT / "build").glob("temp.*"))):
            shutil.copytree(ROOT / "build" / made, folder / "build" / made, dirs_exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=2, timeout=1800)
    return folder
