"""What a mesh of segments costs, and where it stops being sensible: `python -m tools.bench.mesh`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from tests.rules import dedup_rules
from tools.bench import document, mesh_formula, mesh_live, mesh_report
from tools.bench.mesh_model import Costs, Mesh, World, run_through
from tools.bench.mesh_topology import ALL, Topology, chain, chance, mesh, ring
from tools.bench.runner import DOCS, names, out

PARTS: Final = ("costs", "model", "losses")
#: segments of the model, and bridges on each
SEGMENTS: Final = (2, 5, 10, 30, 100, 300, 1000)
BRIDGES: Final = (1, 2)
#: a model of more links takes more memory than it says anything new
MAX_LINKS: Final = 500_000
#: messages of a model without losses: at least, and in those of few segments
ORIGINS: Final = 2
SPEECHES: Final = 600
#: datagrams that a host misses
LOSSES: Final = (0.01, 0.05)
#: messages of a model with losses
MESSAGES: Final = 2000


def model_row(name: str, topology: Topology, bridges: int, world: World) -> dict[str, Any]:
    """What the model shows of messages from two segments, and what the formula says."""
    # Where there are few segments each of them speaks often, so that chance evens out.
    origins = [number * 7 % topology.segments for number in range(max(ORIGINS, SPEECHES // topology.segments))]
    found = run_through(topology, world, origins=origins)
    if found.twice or found.never:
        raise click.ClickException(
            f"{topology.name}, {topology.segments}: {len(found.twice)} twice, {found.never} never"
        )
    messages = found.messages
    relayed = sum(found.datagrams) - messages
    if found.links + relayed != 2 * len(topology.links) * messages:
        raise click.ClickException(f"{topology.name}, {topology.segments}: not as many link messages as there must be")
    others = max(1, topology.segments - 1)
    delay = world.costs.brought + world.costs.broadcast + world.segment_delay
    heard = relayed / messages / others
    return {
        "topology": name,
        "segments": topology.segments,
        "bridges": bridges,
        "datagrams": heard,
        "datagrams_expected": mesh_formula.expected(topology, delay, world.link_jitter),
        "link_messages": found.links / messages,
        "busiest": max(map(sum, zip(found.received, found.sent, strict=True))) / messages,
        "copies": found.by_link["duplicate"] / messages / len(topology.homes),
        "hops": max(found.hops.values()),
        "seconds": max(found.seconds.values()),
        "capacity": 1 / mesh_formula.work(max(topology.degrees), heard, world.costs),
    }


def model(world: World) -> list[dict[str, Any]]:
    rows = []
    for name, make in ALL.items():
        for bridges in BRIDGES:
            for segments in SEGMENTS:
                topology = make(segments, bridges)
                if len(topology.links) > MAX_LINKS:
                    continue
                click.echo(f"model: {topology.name}, {segments} segments, {bridges} bridges", err=True)
                rows.append(model_row(name, topology, bridges, world))
    return rows


def losses() -> list[dict[str, Any]]:
    """How much does not arrive, by what the segments lose."""
    rows = []
    for name, topology, bridges in (
        *(("chain of 2", chain(2, bridges), bridges) for bridges in (1, 2, 3)),
        *(("ring of 5", ring(5, bridges), bridges) for bridges in (1, 2)),
        *(("full mesh of 5", mesh(5, bridges), bridges) for bridges in (1, 2)),
        *(("by chance, 30", chance(30, bridges), bridges) for bridges in (1, 2)),
    ):
        for lost in LOSSES:
            row: dict[str, Any] = {"topology": name, "bridges": bridges, "lost": lost}
            for late in (False, True):
                world = World(segment_loss=lost, rules=dedup_rules(deliver_late=late))
                running = Mesh(topology, world)
                for number in range(MESSAGES):
                    running.say(running.plain[0], b"%d" % number, number * 0.001)
                found = running.run()
                far = [host.number for host in running.plain if host.segment]
                got = sum(1 for host, _ in found.got if host in set(far))
                row["deliver" if late else "drop"] = 1 - got / len(far) / MESSAGES
            rows.append(row)
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--parts", "wanted", default="all", callback=names(PARTS), help=f"Which of {', '.join(PARTS)}; '': none anew."
)
@out("mesh")
@DOCS
def main(wanted: list[str], out: Path, docs: Path | None) -> None:
    """Measure what flooding costs, reckon it, and model meshes of up to a thousand segments."""
    kept = out / "mesh.json"
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    found |= {"machine": document.about_machine(), "date": document.now()[:10]}
    if "costs" in wanted:
        found["costs"] = mesh_live.costs()
    if "model" in wanted:
        found["model"] = model(World(costs=Costs(**found["costs"]["seconds"]) if "costs" in found else Costs()))
    if "losses" in wanted:
        found["losses"] = losses()

    def draw(folder: Path) -> bool:
        return "model" not in found or mesh_report.draw(found["model"], folder)

    document.write("mesh", out, found, mesh_report.markdown(found), draw, docs)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.mesh")
