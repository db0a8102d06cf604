"""`python -m tools.mutation`: put faults into uncompiled modules, one at a time, and list those that no test finds."""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tools.mutation import ROOT, Mutant, mutants

#: survivors that change nothing that anybody can observe, each below the comment with its reason
EXPLAINED: Final = Path(__file__).with_name("explained.txt")
#: seconds of processor time for all tests of a part, after which a mutant goes round for ever; real ones
CPU, LONGEST = 600, 1800


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU))
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))


def survives(mutant: Mutant, number: int) -> bool:
    """Whether the tests of a mutant's module, and then those of its part, pass with it."""
    _, *folders, name = mutant.path.split("/")
    own, part = "/".join(("tests", *folders, f"test_{name}")), f"tests/{folders[0]}"
    variables = {**os.environ, "MUTANT": f"{mutant.path}:{number}", "BCCND_CORE": "python", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "tools.mutation"]
    for tests in (own, part) if (ROOT / own).exists() else (part,):
        try:
            done = subprocess.run(
                [*command, "-m", "not slow", tests],
                cwd=ROOT, env=variables, capture_output=True, timeout=LONGEST, check=False, preexec_fn=limit,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        if done.returncode:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file or folder of the package")
    parser.add_argument("--sample", type=int, default=50, metavar="N", help="how many mutants; 0 is all (50)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="how many at once")
    options = parser.parse_args()
    paths = [path for name in options.modules for path in sorted((ROOT / name).rglob("*.py")) or [ROOT / name]]
    every = [one for path in paths for one in enumerate(mutants(str(path.relative_to(ROOT))))]
    chosen = random.Random(options.seed).sample(every, min(options.sample, len(every))) if options.sample else every
    known = {line for line in EXPLAINED.read_text().splitlines() if not line.startswith("#")}
    unexplained = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = pool.map(lambda one: survives(one[1], one[0]), chosen)
        for (_, mutant), alive in zip(chosen, outcomes, strict=True):
            if alive:
                explained = mutant.name in known
                unexplained += not explained
                print(f"survives{' (explained)' if explained else ''}: line {mutant.line}: {mutant.name}", flush=True)
    print(f"{len(chosen)} of {len(every)} mutants tried, {unexplained} survive without an explanation")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
