"""Fuzzes one target, guided by coverage of Python code: `python tools/fuzz/one.py TARGET [options of libFuzzer]`.

This process is the fuzzer and nothing else; atheris ends it when it has found something or is done.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ["BCCND_CORE"] = "python"


def main() -> None:
    import atheris

    name, *options = sys.argv[1:]
    logging.disable()
    with atheris.instrument_imports(include=["bccnd"]):
        from tools.fuzz.targets import TARGETS

        run, repair = TARGETS[name].load()

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        assert repair is not None
        mutated: bytes = atheris.Mutate(data, most)
        repaired = repair(mutated, seed)
        return repaired if len(repaired) <= most else mutated

    # Without a mutator of its own a target gets more out of libFuzzer's: it knows what it has compared.
    more = {} if repair is None else {"custom_mutator": mutate}
    # For a merge libFuzzer starts itself again, by a shell: this is how.
    itself = shlex.join([sys.executable, *sys.argv[:2]])
    atheris.Setup([itself, *options], lambda data: run(data) and None, **more)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
