"""Real hosts, for `tools.bench.mesh`: what flooding costs a processor."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from tests.e2e.meshes import Meshwork
from tools.bench.mesh_topology import Topology, chain, hub, mesh

#: seconds in which gateways have told what they have sent
TOLD: Final = 2.5

#: messages of a run, how many a second, and runs of each mesh, of which medians count
MESSAGES: Final = 3000
RATE: Final = 500.0
ROUNDS: Final = 3

Use = dict[str, float]


def costs() -> dict[str, Any]:
    """Seconds of a processor for each thing that a bridge does, from what differs between four small meshes."""
    used: list[list[Use]] = [[], [], []]
    for _ in range(ROUNDS):
        for number, topology in enumerate((chain(2), hub(5), mesh(5))):
            used[number].append(_use(topology))
    pair, star, full = ({host: median(use[host] for use in runs) for host in runs[0]} for runs in used)
    heard = pair["s1p"]
    # The bridge on the segment of the origin: with one link, and with four.
    linked = (star["s0b0"] - pair["s0b0"]) / 3
    passed = pair["s0b0"] - heard - linked
    # Bridges elsewhere: in a pair one message comes in; in a full mesh four do, and three go out.
    far = sum(full[f"s{segment}b0"] for segment in range(1, 5)) / 4
    brought = (far - pair["s1b0"] - 3 * linked) / 3
    broadcast = pair["s1b0"] - brought - passed
    seconds = {"heard": heard, "brought": brought, "passed": passed, "linked": linked, "broadcast": broadcast}
    floor = 1e-7  # what is less cannot be told from nothing
    return {"seconds": {name: max(floor, value) for name, value in seconds.items()}, "runs": used}


def _use(topology: Topology) -> Use:
    """Seconds of a processor for a message, by host."""
    with tempfile.TemporaryDirectory() as folder, Meshwork(topology, Path(folder)) as work:
        click.echo(f"real: {topology.name}, {topology.segments} segments", err=True)
        work.lay()
        work.start()
        name = work.plain[0].name
        # Programs that receive would be part of what is measured.
        for host in work.hosts.values():
            if host.name != name and host.client is not None:
                host.client.close()
                host.client = None
        before = {host.name: sum(host.cpu()) for host in work.hosts.values()}
        sent = work.broadcasts()
        work.say([name], MESSAGES, RATE)
        time.sleep(TOLD)
        after = {host.name: sum(host.cpu()) for host in work.hosts.values()}
        relayed = sum(work.broadcasts()) - sum(sent) - MESSAGES
        if relayed != MESSAGES * (topology.segments - 1):
            raise click.ClickException(f"{topology.name}: {relayed} relayed broadcasts of {MESSAGES} messages")
        return {host: (after[host] - before[host]) / MESSAGES for host in after}
