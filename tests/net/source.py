"""The calls in the package's source, for tests that compare them with tables of names."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.support import ROOT


@cache
def calls() -> list[tuple[Path, str, ast.Call]]:
    """Every call: its file, the name of what is called, and the call itself."""
    return [
        (path, node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""), node)
        for path in sorted((ROOT / "bccnd").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
