"""Runs inputs through a target without atheris: `python -m tools.fuzz.replay [--plain] TARGET [FILE...]`.

Without files it takes the corpus and the findings. With ``--outcomes`` it answers each input, a line with the target's
name, a length and so many bytes, with the length and text of its outcome: so the two builds are compared.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tools.fuzz import plain

LENGTH = struct.Struct("<I")
CORPUS = Path(__file__).parent / "corpus"
FINDINGS = Path(__file__).parent / "findings"


def name_of(data: bytes) -> str:
    """The name of an input's file: a hash of its content."""
    return hashlib.sha256(data).hexdigest()[:12]


def kept(target: str) -> list[Path]:
    """The files of a target in the repository."""
    return sorted(path for folder in (CORPUS, FINDINGS) for path in (folder / target).glob("*") if path.is_file())


def answer() -> None:
    """Answer inputs with outcomes until there are no more."""
    from tools.fuzz.targets import TARGETS

    load = cache(lambda name: TARGETS[name].load())
    # What else is printed must not come between the answers.
    source, sink, sys.stdout = sys.stdin.buffer, sys.stdout.buffer, sys.stderr
    while name := source.readline().decode().strip():
        data = source.read(LENGTH.unpack(source.read(LENGTH.size))[0])
        text = outcome(load(name), data)
        sink.write(LENGTH.pack(len(text)) + text)
        sink.flush()


def outcome(run: Callable[[bytes], object], data: bytes) -> bytes:
    """The text of an outcome, or of what was raised."""
    try:
        return repr(run(data)).encode("utf-8", "backslashreplace")
    except Exception as error:  # noqa: BLE001 - it is an outcome too: that of a target that has found something
        return f"raised {error!r}".encode("utf-8", "backslashreplace")


def main() -> None:
    arguments = sys.argv[1:]
    if "--plain" in arguments:
        arguments.remove("--plain")
        plain.use()
    logging.disable()
    if "--outcomes" in arguments:
        answer()
        return
    from tools.fuzz.targets import TARGETS

    name, *files = arguments
    run = TARGETS[name].load()
    for path in [Path(one) for one in files] or kept(name):
        print(path, repr(run(path.read_bytes()))[:400], flush=True)


if __name__ == "__main__":
    main()
