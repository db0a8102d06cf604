"""Fuzzes all targets, or some, as `make fuzz` does; each in a process of its own, what it finds kept in build/fuzz."""

from __future__ import annotations

import argparse
import hashlib
import logging
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.support import ROOT
from tools.fuzz import CORPUS, FINDINGS, kept
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


def fuzz(target: Target, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer on a target."""
    options = (f"-max_len={target.size}", f"-timeout={PATIENCE}", *options)
    command = [sys.executable, str(Path(__file__).with_name("one.py")), target.name, *options]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=LONGEST, check=False
    )


def keep(target: Target) -> int:
    """Put into the repository the smallest inputs that together reach all that the corpus and the found ones reach."""
    merged, folder = OUT / "merged" / target.name, CORPUS / target.name
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    fuzz(
        target,
        "-merge=1",
        str(merged),
        *(str(path) for path in (folder, OUT / "corpus" / target.name) if path.is_dir()),
    )
    inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: (len(data), data))[:MOST_KEPT]
    if inputs:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for data in inputs:
            (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
    return len(inputs)


def replay(target: Target, paths: list[Path]) -> None:
    """Show what becomes of inputs."""
    logging.disable()
    run, _ = target.load()
    for path in paths:
        print(path, repr(run(path.read_bytes()))[:400], flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--times", type=float, default=1.0, help="so many times the usual runs")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true", help="put what was reached into the corpus of the repository")
    parser.add_argument("--replay", nargs="*", type=Path, metavar="FILE", help="only show what becomes of these inputs")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = False
    for target in (TARGETS[name] for name in given.targets or TARGETS):
        if given.replay is not None:
            replay(target, given.replay or kept(target.name))
            continue
        found, crashes = OUT / "corpus" / target.name, OUT / "crashes"
        for folder in (found, crashes):
            folder.mkdir(parents=True, exist_ok=True)
        folders = [str(path) for path in (CORPUS / target.name, FINDINGS / target.name) if path.is_dir()]
        options = [f"-runs={int(target.runs * given.times)}", f"-seed={given.seed}", f"-rss_limit_mb={MEMORY}"]
        begun = time.monotonic()
        done = fuzz(target, *options, f"-artifact_prefix={crashes / target.name}-", str(found), *folders)
        output = done.stdout + done.stderr
        if done.returncode:
            failed = True
            lines = [line for line in output.splitlines() if line and not line.startswith(("INFO", "#", "=="))]
            print(f"{target.name:14} FAILED", *lines[-30:], sep="\n")
            print(f"run it again: python -m tools.fuzz {target.name} --replay FILE")
            print(f"keep it:      cp FILE tools/fuzz/findings/{target.name}/WHAT-IT-SHOWS", flush=True)
            continue
        reached = re.findall(r"cov: (\d+) ft: (\d+)", output)
        edges = reached[-1][0] if reached else "?"
        print(f"{target.name:14} {edges:>6} edges {time.monotonic() - begun:6.1f} s  {target.about}", flush=True)
        if given.keep:
            print(f"{'':14} {keep(target)} inputs kept in {(CORPUS / target.name).relative_to(ROOT)}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
