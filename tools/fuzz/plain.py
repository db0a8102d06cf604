"""Loads the plain build of bccnd where the compiled one lies beside it: for coverage, and to compare the two."""

from __future__ import annotations

import sys

from bccnd import compiled_modules


def use() -> None:
    """Import no compiled module from now on; none was imported before."""
    assert "bccnd.core.receiving.ingress" not in sys.modules, "bccnd was imported before"
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, compiled_modules.LibraryFinder)]
