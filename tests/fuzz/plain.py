"""Loads the plain build of bccnd where the compiled one lies beside it: for coverage, and to compare the two.

`use` comes before anything of bccnd is imported, and from then on only ``.py`` files of it are found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]

PACKAGE: Final = str(ROOT / "bccnd")


def _finder(path: str) -> FileFinder:
    """A hook of sys.path_hooks."""
    if not path.startswith(PACKAGE):
        raise ImportError(path)
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


def use() -> None:
    """Find only plain modules of bccnd."""
    assert "bccnd.core.ingress" not in sys.modules, "bccnd was imported before"
    hooks: list[Callable[[str], Any]] = sys.path_hooks
    hooks.insert(0, _finder)
    for path in [path for path in sys.path_importer_cache if path.startswith(PACKAGE)]:
        del sys.path_importer_cache[path]
