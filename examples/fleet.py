"""A fleet with known faults, and the report that finds them: `make demo-fleet`.

Simulates an hour of 20 hosts that send to each other, with a dozen faults at known places, writes what each host's
recorder would have written, makes the tables and the page, and holds the page's findings against the faults.
Exit code 1 when one of them is not found. Everything stays in the folder that it names at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from bccnd.errors import JournalError
from bccnd.pipeline.report.findings import ReportFinding
from examples.fleet_model import Burst, Down, Fleet, Forged, Loss, Recording, Restart, Source
from examples.simulation import write

#: seconds that are simulated; a test takes fewer
HOUR = 3600.0
#: as many as the fleet has of them
HOSTS = tuple(f"relay{number:02d}" for number in range(1, 21))

console = Console(highlight=False, soft_wrap=True)


class Fault(NamedTuple):
    """What is wrong with the fleet, in words, and the finding by which the report shows it."""

    what: str
    kind: str
    about: tuple[str, ...]


def sources(length: float) -> tuple[Source, ...]:
    """Two programs on each host, and a camera on one. Times are parts of ``length``."""
    found = []
    for host in HOSTS:
        found.append(
            Source(
                f"{host}/cardsys/1201",
                host,
                rate=0.2,
                channels=(f"cardsys/{host}/events", "cardsys/all"),
                heartbeat=10.0,
                copies=2 if host == "relay02" else 1,
                until=0.7 * length if host == "relay08" else float("inf"),
                port=40_001,
            )
        )
        found.append(
            Source(
                f"{host}/meter",
                host,
                rate=0.1,
                start=1,
                channels=(f"meter/{host}",),
                heartbeat=10.0,
                restarts=tuple(Restart(length * (part + 0.5) / 8, 1) for part in range(8)) if host == "relay12" else (),
                port=40_002,
            )
        )
    # in a minute more than all others in an hour
    flood = Burst(0.58 * length, 60.0, 3000, "camera/relay04")
    found.append(
        Source("relay04/camera/77", "relay04", 0.1, channels=("camera/relay04",), bursts=(flood,), port=40_003)
    )
    return tuple(found)


def fleet(length: float = HOUR) -> tuple[Fleet, list[Fault]]:
    """The fleet, and what is wrong with it."""
    losses = (
        Loss("relay07", probability=0.06),
        Loss("relay15", start=0.33 * length, end=0.33 * length + 300, probability=1.0),
        *(Loss("relay11", src, probability=0.3) for src in ("relay05/cardsys/1201", "relay05/meter")),
        *(Loss(None, src, probability=0.05) for src in ("relay03/cardsys/1201", "relay03/meter")),
    )
    made = Fleet(
        hosts=HOSTS,
        sources=sources(length),
        duration=length,
        seed=7,
        losses=losses,
        forged=(Forged(0.4 * length, 120, 240, "relay01/cardsys/1201"),),
        downs=(Down("relay19", 0.5 * length, 0.6 * length),),
        offsets={"relay13": 2.5},
        recordings={"relay17": (Recording(start=0.3 * length),)},
    )
    faults = [
        Fault("relay07 loses 6 % of whatever is sent to it", "receiver", ("relay07",)),
        Fault("relay15 is cut off for 5 minutes", "receiver", ("relay15",)),
        Fault("5 % of what relay03 sends never leaves it", "sender", ("relay03",)),
        Fault("relay11 loses 30 % of what relay05 sends", "link", ("relay11", "relay05")),
        Fault("relay08/cardsys dies", "died", ("relay08/cardsys",)),
        Fault("relay12/meter restarts every few minutes", "restarts", ("relay12/meter",)),
        Fault("192.0.2.66 forges messages of relay01", "forged", ("192.0.2.66",)),
        Fault("the camera of relay04 floods its channel", "flood", ("camera/relay04",)),
        Fault("the clock of relay13 is 2.5 s ahead", "clock", ("relay13",)),
        Fault("relay19 is off for a while", "host_down", ("relay19",)),
        Fault("the recorder of relay17 starts late: no loss", "not_recording", ("relay17",)),
        Fault("relay02/cardsys sends everything twice", "twice", ("relay02/cardsys",)),
    ]
    return made, faults


def compare(
    faults: list[Fault], found: list[ReportFinding]
) -> tuple[list[tuple[Fault, ReportFinding | None]], list[ReportFinding]]:
    """Each fault with the finding that names it; and findings that belong to none."""
    pairs = [
        (fault, next((one for one in found if one.kind == fault.kind and one.about == fault.about), None))
        for fault in faults
    ]
    named = [one for _, one in pairs]
    return pairs, [one for one in found if one not in named]


def run(folder: Path, length: float) -> int:
    began = time.monotonic()

    def log(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.0f} s[/]  {text}")

    made, faults = fleet(length)
    log(f"simulating {length / 60:.0f} minutes of {len(HOSTS)} hosts, with {len(faults)} faults")
    journal, tables, page = folder / "journal", folder / "tables", folder / "page"
    simulation = write(made, str(journal))
    log(f"{len(simulation.sent):,} messages were sent; what each host recorded of them is in its journal")
    build(str(journal), str(tables), log)
    log("making the page")
    from bccnd.pipeline.report.html_page import report

    path, found = report(str(tables), str(page), title="Demo: a fleet with known faults")
    pairs, others = compare(faults, found)
    console.print("\n[bold]What is wrong with the fleet, and what the report shows:[/]")
    for fault, finding in pairs:
        outcome = f"[green]found[/]    {escape(finding.title)}" if finding else "[bold red]NOT FOUND[/]"
        console.print(f"  {escape(fault.what):<52}{outcome}")
    for one in others:
        console.print(f"  {'':<52}[dim]and also[/] {escape(one.title)}")
    missed = sum(finding is None for _, finding in pairs)
    console.print(f"\n{len(pairs) - missed} of {len(pairs)} faults found. The page: [bold]{path}[/]")
    return int(missed > 0)


def build(journal: str, tables: str, log: Callable[[str], None]) -> None:
    """The tables, made in this process. Raises PipelineError."""
    log("making the tables (this takes longest)")
    from bccnd.pipeline.driver.build import build as make
    from bccnd.pipeline.driver.embedded import EmbeddedRunner

    outcome = make(EmbeddedRunner(), journal, tables)
    log(f"{outcome.rows['messages']:,} messages, {outcome.rows['link_loss']:,} rows of loss")


def main() -> int:
    folder = Path(os.environ.get("DEMO_FOLDER") or f"{tempfile.gettempdir()}/bccnd-fleet-{os.getuid()}")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        return run(folder, 60 * float(os.environ.get("DEMO_MINUTES") or HOUR / 60))
    except (JournalError, OSError) as error:
        console.print(f"[bold red]{escape(str(error))}[/]")
        return 1


if __name__ == "__main__":
    sys.exit(main())
