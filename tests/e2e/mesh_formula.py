"""What flooding costs, reckoned: the arithmetic of docs/mesh.md."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from tests.e2e.mesh_model import Costs
from tests.e2e.mesh_topology import Topology


@dataclass(frozen=True)
class Amplification:
    """For one message: datagrams on a segment that it comes to, and link messages of all bridges."""

    datagrams: float
    links: float
    #: link messages that the busiest bridge sends and receives
    busiest: int


def datagrams(bridges: int, delay: float, jitter: float) -> float:
    """Datagrams on a segment for a message from elsewhere, which so many bridges reach by links of one length."""
    return bridges if jitter <= 0 else 1 + (bridges - 1) * (1 - exp(-delay / jitter))


def bounds(topology: Topology) -> tuple[Amplification, Amplification]:
    """The least and the most that there can be, whatever the delays."""
    relayed = len(topology.homes) - len(topology.on(0))
    most = relayed / max(1, topology.segments - 1)
    busiest = 2 * max(topology.degrees, default=0)
    ends = 2 * len(topology.links)
    return (Amplification(1.0, ends - relayed, busiest), Amplification(most, ends - (topology.segments - 1), busiest))


def expected(topology: Topology, delay: float, jitter: float) -> float:
    """Datagrams on a segment to be expected for a message from segment 0, where the links are all of one kind."""
    others = range(1, topology.segments)
    return sum(datagrams(len(topology.on(segment)), delay, jitter) for segment in others) / max(1, len(others))


def work(degree: int, datagrams_heard: float, costs: Costs) -> float:
    """Seconds of a processor that a message costs a bridge with so many links."""
    return degree * (costs.brought + costs.linked) + costs.passed + costs.broadcast + datagrams_heard * costs.heard
