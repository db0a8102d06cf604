"""Runs inputs through a target without atheris: `python -m tools.fuzz.replay TARGET [FILE...]`.

Without files it takes the corpus and the findings.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
FINDINGS = Path(__file__).parent / "findings"


def name_of(data: bytes) -> str:
    """The name of an input's file: a hash of its content."""
    return hashlib.sha256(data).hexdigest()[:12]


def kept(target: str) -> list[Path]:
    """The files of a target in the repository."""
    return sorted(path for folder in (CORPUS, FINDINGS) for path in (folder / target).glob("*") if path.is_file())


def main() -> None:
    logging.disable()
    from tools.fuzz.targets import TARGETS

    name, *files = sys.argv[1:]
    run = TARGETS[name].load()
    for path in [Path(one) for one in files] or kept(name):
        print(path, repr(run(path.read_bytes()))[:400], flush=True)


if __name__ == "__main__":
    main()
