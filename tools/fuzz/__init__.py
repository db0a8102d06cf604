"""Inputs that nobody would think of, and what is held to them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
FINDINGS: Final = Path(__file__).parent / "findings"


def kept(target: str) -> list[Path]:
    """Return the files of a target in the repository."""
    return sorted(path for folder in (CORPUS, FINDINGS) for path in (folder / target).glob("*") if path.is_file())
