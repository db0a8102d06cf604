"""`python -m tools.mutation`: put faults into modules of the plain build, and list those that no test finds."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tools.mutation.mutants import Mutant, mutants

ROOT: Final = Path(__file__).parents[2]
#: survivors that change nothing that anybody can observe, or that are accepted; each with its reason
EXPLAINED: Final = Path(__file__).with_name("explained.txt")
#: no test of a part takes that long; a mutant that does goes round for ever
TIMEOUT: Final = 900


class Case(NamedTuple):
    """A mutant of a module, by the module's path in the repository."""

    path: str
    mutant: Mutant

    @property
    def name(self) -> str:
        return f"{self.path}: {self.mutant.name}"


def explained() -> dict[str, str]:
    """Accepted survivors by name, with the reason that stands in the comment above them."""
    found: dict[str, str] = {}
    reason = ""
    for line in EXPLAINED.read_text().splitlines() if EXPLAINED.exists() else []:
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            found[line] = reason
    return found


def mirrored(path: str) -> str:
    """The test file of a module."""
    folder, _, name = path.removeprefix("bccnd/").rpartition("/")
    return os.path.join("tests", folder, f"test_{name}")


def fails(tree: Path, tests_from: Path, tests: list[str]) -> bool:
    """Whether tests fail on the package in a tree."""
    environment = {
        **os.environ,
        "BCCND_BUILD": "pure",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": f"{tree}:{tests_from}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--import-mode=append", "-p", "no:cacheprovider"]
    command += ["-m", "not slow", *tests]
    try:
        done = subprocess.run(
            command, cwd=tests_from, env=environment, capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"these tests cannot be run:\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.returncode != 0


def survives(case: Case, stages: list[list[str]], tests_from: Path) -> bool:
    """Run the stages of tests on a copy of the package with this fault, until one finds it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        ignore = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
        shutil.copytree(tests_from / "bccnd", tree / "bccnd", ignore=ignore)
        (tree / case.path).write_text(case.mutant.text)
        return not any(fails(tree, tests_from, stage) for stage in stages)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file or folder of the package")
    parser.add_argument("--sample", type=int, default=50, metavar="N", help="how many mutants; 0 is all (50)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    more = "run these after the module's own tests (those of its part)"
    parser.add_argument("--tests", nargs="*", metavar="FILE", help=more)
    parser.add_argument("--tests-from", type=Path, default=ROOT, metavar="DIR", help="a checkout to take all from")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="how many at once")
    options = parser.parse_args()
    root = options.tests_from.resolve()

    paths: list[str] = []
    for name in options.modules:
        found = sorted((root / name).rglob("*.py")) if (root / name).is_dir() else [root / name]
        paths += [str(one.relative_to(root)) for one in found if one.name != "__init__.py"]
    cases = [Case(path, one) for path in paths for one in mutants((root / path).read_text())]
    total = len(cases)
    if options.sample:
        cases = random.Random(options.seed).sample(cases, min(options.sample, total))

    def stages(path: str) -> list[list[str]]:
        own = mirrored(path)
        more = ["/".join(own.split("/")[:2])] if options.tests is None else options.tests
        return [tests for tests in ([own] if (root / own).is_file() else [], more) if tests]

    known = explained()
    began = time.monotonic()
    unexplained = done = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for case, alive in zip(cases, pool.map(lambda one: survives(one, stages(one.path), root), cases), strict=True):
            done += 1
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
