"""`python -m tools.mutation`: put faults into modules that run uncompiled, and list those that no test finds."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tools.mutation.child import Overlay, fails, record
from tools.mutation.mutants import Mutant, mutants
from tools.mutation.reach import Reach

ROOT: Final = Path(__file__).parents[2]
#: survivors that change nothing that anybody can observe, or that are accepted; each with its reason
EXPLAINED: Final = Path(__file__).with_name("explained.txt")


class Case(NamedTuple):
    """A mutant of a module, by the module's path in the repository."""

    path: str
    mutant: Mutant

    @property
    def name(self) -> str:
        return f"{self.path}: {self.mutant.name}"


def explained() -> dict[str, str]:
    """Return accepted survivors by name, with the reason that stands in the comment above them."""
    found: dict[str, str] = {}
    reason = ""
    for line in EXPLAINED.read_text().splitlines() if EXPLAINED.exists() else []:
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            found[line] = reason
    return found


def mirrored(path: str) -> str:
    """Return the test file of a module."""
    folder, _, name = path.removeprefix("bccnd/").rpartition("/")
    return os.path.join("tests", folder, f"test_{name}")


class Trial:
    """Tries mutants with the tests that reach them: first those of the module, then the others."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def survives(self, case: Case) -> bool:
        reaching = self._reach.tests_of(case.path, case.mutant.function)
        of_module = [test for test in self._reach.seconds if test.partition("::")[0] == mirrored(case.path)]
        stages = (
            [test for test in reaching if test in of_module],
            [test for test in reaching if test not in of_module],
            [test for test in of_module if test not in reaching],
        )
        module = case.path.removesuffix(".py").replace("/", ".")
        overlay = Overlay(module, ROOT / case.path, case.mutant.text)
        return not any(
            fails(overlay, tests, sum(map(self._reach.seconds.__getitem__, tests))) for tests in stages if tests
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file or folder of the package")
    parser.add_argument("--sample", type=int, default=50, metavar="N", help="how many mutants; 0 is all (50)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--tests", nargs="*", metavar="FILE", help="the tests to run (those of its part)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="how many at once")
    options = parser.parse_args()

    paths: list[str] = []
    for name in options.modules:
        found = sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name]
        paths += [str(one.relative_to(ROOT)) for one in found if one.name != "__init__.py"]
    cases = [Case(path, one) for path in paths for one in mutants((ROOT / path).read_text())]
    total = len(cases)
    if options.sample:
        cases = random.Random(options.seed).sample(cases, min(options.sample, total))
    tests = options.tests or sorted({"/".join(mirrored(path).split("/")[:2]) for path in paths})

    known = explained()
    unexplained = 0
    os.chdir(ROOT)
    os.environ.update(BCCND_CORE="python", PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1")
    began = time.monotonic()
    print(f"recording which functions each test of {' '.join(tests)} runs", file=sys.stderr)
    trial = Trial(record(ROOT, tests))
    print(f"recorded in {time.monotonic() - began:.0f} s; {len(cases)} mutants follow", file=sys.stderr)
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for done, (case, alive) in enumerate(zip(cases, pool.imap(trial.survives, cases), strict=True), 1):
            if alive:
                output = f" ({known[case.name]})" if case.name in known else ""
                unexplained += not output
                print(f"survives{output}: {case.path}:{case.mutant.line}: {case.mutant.name}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{done} of {len(cases)} in {time.monotonic() - began:.0f} s", end="", file=sys.stderr)
    print(f"{len(cases)} of {total} mutants tried, {unexplained} survive without an explanation")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
