"""Fuzzes all targets, or some, as `make fuzz` does; each in a process of its own, what it finds kept in build/fuzz."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.support import ROOT
from tools.fuzz.replay import CORPUS, FINDINGS, name_of
from tools.fuzz.targets import TARGETS, Target

OUT: Final = ROOT / "build" / "fuzz"
#: seconds for one input, which takes milliseconds; it hangs then
PATIENCE: Final = 20
#: seconds for one target, which takes a minute
LONGEST: Final = 6 * 3600
#: megabytes of the process: what is bounded stays far below
MEMORY: Final = 2048
#: inputs that are kept for a target in the repository: the smallest of those that differ in what they reach
MOST_KEPT: Final = 150


def command(target: Target, *options: str) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("one.py")), target.name, *options]


def fuzz(target: Target, runs: int, seed: int) -> tuple[bool, str]:
    """Fuzz one target; whether all is well, and what was said."""
    found, crashes = OUT / "corpus" / target.name, OUT / "crashes"
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    kept = [str(path) for path in (CORPUS / target.name, FINDINGS / target.name) if path.is_dir()]
    options = [
        *(f"-runs={runs}", f"-seed={seed}", f"-max_len={target.size}", f"-timeout={PATIENCE}"),
        *(f"-rss_limit_mb={MEMORY}", f"-artifact_prefix={crashes / target.name}-", "-print_final_stats=1"),
    ]
    words = command(target, *options, str(found), *kept)
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=LONGEST, check=False
    )
    return done.returncode == 0, done.stdout + done.stderr


def keep(target: Target) -> int:
    """Put into the repository the smallest inputs that together reach all that the corpus and the found ones reach."""
    merged = OUT / "merged" / target.name
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    sources = [path for path in (CORPUS / target.name, OUT / "corpus" / target.name) if path.is_dir()]
    options = ["-merge=1", f"-max_len={target.size}", f"-timeout={PATIENCE}", str(merged), *map(str, sources)]
    subprocess.run(command(target, *options), cwd=ROOT, capture_output=True, timeout=LONGEST, check=False)
    inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: (len(data), data))[:MOST_KEPT]
    folder = CORPUS / target.name
    if inputs:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for data in inputs:
            (folder / name_of(data)).write_bytes(data)
    return len(inputs)


def shown(target: Target, output: str, seconds: float) -> str:
    """A line about a target that is well."""
    done = re.search(r"number_of_executed_units:\s*(\d+)", output)
    reached = re.findall(r"cov: (\d+) ft: (\d+)", output)
    edges = reached[-1][0] if reached else "?"
    return f"{target.name:14} {int(done[1]) if done else 0:9,} runs {edges:>6} edges {seconds:6.1f} s  {target.about}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--times", type=float, default=1.0, help="so many times the usual runs")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true", help="put what was reached into the corpus of the repository")
    given = parser.parse_args()
    unknown = set(given.targets) - set(TARGETS)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = []
    for name in given.targets or TARGETS:
        target = TARGETS[name]
        begun = time.monotonic()
        well, output = fuzz(target, int(target.runs * given.times), given.seed)
        if well:
            print(shown(target, output, time.monotonic() - begun), flush=True)
        else:
            failed.append(name)
            print(f"{name:14} FAILED\n{advice(target, output)}", flush=True)
        if given.keep and well:
            print(f"{'':14} {keep(target)} inputs kept in {(CORPUS / name).relative_to(ROOT)}", flush=True)
    return 1 if failed else 0


def advice(target: Target, output: str) -> str:
    """What went wrong, and what to do with the input."""
    written = re.search(r"Test unit written to (\S+)", output)
    if written is None:
        return "\n".join(output.splitlines()[-25:])
    where = Path(written[1])
    error = [line for line in output.splitlines() if line and not line.startswith(("INFO", "#", "=="))][-30:]
    findings = f"tools/fuzz/findings/{target.name}"
    return "\n".join(error) + (
        f"\nthe input is in {where}"
        f"\nrun it again:     {sys.executable} -m tools.fuzz.replay {target.name} {where}"
        f"\nkeep it:          mkdir -p {findings} && cp {where} {findings}/WHAT-IT-SHOWS"
        "\n                  from then on tests/tools/test_fuzz_findings.py replays it"
        "\nmake it a vector: docs/testing.md says how, where it is a datagram or bytes of the broker"
    )


if __name__ == "__main__":
    sys.exit(main())
