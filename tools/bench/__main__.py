"""What a message costs, beside the least that it can cost, beside other brokers, and as things grow.

The figures go to docs/figures.json, their only home; the tables are printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support import free_port
from tools.bench import figures
from tools.bench.axes import FAN_OUT, GROWTH, IDLE, Axis, Point, select
from tools.bench.clients import PROGRAMS
from tools.bench.measure import Failed, Figures, leave_processor_alone
from tools.bench.programs import ROOT, CannotBuild, build
from tools.bench.relays import Place

#: runs of a point until it is refused: it fails, or loses messages
TRIES: Final = 3
#: messages of a run at most, and of a quick one
MOST, FEW = 1_000_000_000, 4096
#: sets of axes that have a name
SETS: Final = {"relays": list(FAN_OUT), "growth": list(GROWTH)}
AXES: Final[dict[str, Axis]] = FAN_OUT | GROWTH | {"programs": PROGRAMS, "idle": IDLE}


def run_once(point: Point, daemon: Path, programs: Path, most: int) -> tuple[Figures, str]:
    """Run a point until a run counts; return its figures, or why there are none."""
    why = ""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="bccnd-bench-", ignore_cleanup_errors=True) as name:
            place = Place(Path(name), programs, daemon, free_port(), free_port(), free_port(), most)
            try:
                found = point.measure(place)
            except (Failed, OSError) as error:
                why = f"failed: {error}"
                continue
        if not (found.get("lost") or found.get("bad")):
            return found, ""
        why = f"{found['lost']:.0f} deliveries lost, {found['bad']:.0f} out of place"
    return {}, why


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--axes", default="relays", help=f"which of {', '.join((*SETS, *AXES))}")
    parser.add_argument("--only", default="", help="only these relays, lines or libraries, with commas between")
    parser.add_argument("--x", default="", help="only with so many clients, or whatever the axis counts")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each point, by turns (5)")
    parser.add_argument("--daemon", type=Path, default=Path(sys.executable).parent / "bccnd", help="what is measured")
    parser.add_argument("--quick", action="store_true", help="a small run to see whether all works")
    parser.add_argument("--figures", type=Path, help="write what was measured into this file, which documents quote")
    given = parser.parse_args()
    names = [name for word in given.axes.split(",") for name in SETS.get(word, [word])]
    if unknown := set(names) - set(AXES):
        parser.error(f"no such axis: {', '.join(unknown)}; there are {', '.join(AXES)}")
    try:
        programs = build(ROOT / "build/bench")
    except CannotBuild as error:
        parser.error(str(error))
    rounds, most = (1, FEW) if given.quick else (given.rounds, MOST)
    daemon = given.daemon.absolute()
    xs, words = ([word for word in text.split(",") if word] for text in (given.x, given.only))
    axes = [AXES[name] for name in names]
    points = [point for axis in axes for point in select(axis, words, [int(x) for x in xs], quick=given.quick)]
    leave_processor_alone()
    runs: dict[Point, list[Figures]] = {point: [] for point in points}
    refused: dict[Point, str] = {}
    for number in range(1, rounds + 1):
        for point in points:
            if point not in refused:
                found, why = run_once(point, daemon, programs, most)
                shown = why or {name: round(value) for name, value in found.items()}
                print(f"{number}/{rounds} {point.axis}: {point.line}, {point.x:,}: {shown}", file=sys.stderr)
                runs[point].append(found)
                refused |= {point: why} if why else {}
    about = figures.about_run(daemon, rounds)
    sections = {}
    for axis in axes:
        counted = {point: runs[point] for point in points if point.axis == axis.name and point not in refused}
        if counted:
            sections[axis.name] = figures.section_of(axis, counted, about)
            print(*figures.tables(axis, sections[axis.name]), sep="\n")
    print("", figures.described(["python", "-m", "tools.bench", *sys.argv[1:]], about), sep="\n")
    for point, why in refused.items():
        print(f"- refused: {point.axis}, {point.line} to {point.x}: {why}")
    if given.figures is not None:
        for missing in figures.store(given.figures, sections):
            print(f"not a section that this run has not measured as a whole: {missing}")
    return int(bool(refused) or not sections)


if __name__ == "__main__":
    sys.exit(main())
