"""Which segments there are, which hosts on them are bridges, and which bridges are linked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

Edge = tuple[int, int]


@dataclass(frozen=True)
class Topology:
    """``homes[b]`` is the segment that bridge ``b`` stands on; ``links`` are pairs of bridges."""

    name: str
    segments: int
    homes: tuple[int, ...]
    links: tuple[Edge, ...]
    #: ways from a bridge over links, by bridge
    degrees: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        degrees = [0] * len(self.homes)
        for one, other in self.links:
            degrees[one] += 1
            degrees[other] += 1
        object.__setattr__(self, "degrees", tuple(degrees))

    def on(self, segment: int) -> tuple[int, ...]:
        """The bridges of a segment."""
        return tuple(bridge for bridge, home in enumerate(self.homes) if home == segment)


def planes(name: str, segments: int, edges: Iterable[Edge], bridges: int) -> Topology:
    """The graph once for each bridge of a segment; bridge ``i`` of segment ``s`` has the number ``s * bridges + i``."""
    homes = tuple(segment for segment in range(segments) for _ in range(bridges))
    links = tuple((a * bridges + i, b * bridges + i) for a, b in edges for i in range(bridges))
    return Topology(name, segments, homes, links)


def mesh(segments: int, bridges: int = 1) -> Topology:
    """Every segment beside every other."""
    return planes("full mesh", segments, ((a, b) for b in range(segments) for a in range(b)), bridges)


def ring(segments: int, bridges: int = 1) -> Topology:
    """Each segment beside the one before and the one behind it."""
    if segments < 3:
        return chain(segments, bridges)
    return planes("ring", segments, ((a, (a + 1) % segments) for a in range(segments)), bridges)


def chain(segments: int, bridges: int = 1) -> Topology:
    """A ring that is open."""
    return planes("chain", segments, ((a, a + 1) for a in range(segments - 1)), bridges)


#: segments below each one of a tree
BRANCHES: Final = 4


def tree(segments: int, bridges: int = 1) -> Topology:
    """Each segment with `BRANCHES` below it."""
    return planes("tree", segments, (((a - 1) // BRANCHES, a) for a in range(1, segments)), bridges)


#: links of one bridge on a hub segment
SPOKES: Final = 16


def hub(segments: int, bridges: int = 1, spokes: int = SPOKES) -> Topology:
    """Segment 0 is the hub, with so many bridges that none has more than ``spokes`` links."""
    return _hubs("hub segment", ((0, range(1, segments)),), segments, bridges, spokes)


def hubs(segments: int, bridges: int = 1, spokes: int = SPOKES) -> Topology:
    """Two levels: segment 0 is the hub of hubs, each of which has as many segments as there are hubs."""
    many = max(1, round(segments**0.5))
    levels: list[tuple[int, Iterable[int]]] = [(0, range(1, min(many + 1, segments)))]
    leaves = range(many + 1, segments)
    levels += [(1 + number, leaves[number::many]) for number in range(many)]
    return _hubs("two levels of hubs", levels, segments, bridges, spokes)


def _hubs(name: str, levels: Iterable[tuple[int, Iterable[int]]], segments: int, bridges: int, spokes: int) -> Topology:
    homes = [segment for segment in range(segments) for _ in range(bridges)]
    links: list[Edge] = []
    for centre, around in levels:
        ends = [segment * bridges + i for segment in around for i in range(bridges)]
        if not ends:
            continue
        # Bridges with links of their own to somewhere above do not serve as ends of spokes where there are others.
        count = max(bridges, -(-len(ends) // spokes))
        servers = range(len(homes), len(homes) + count) if centre else [*range(bridges)]
        if centre:
            homes += [centre] * count
        else:
            servers = [*servers, *range(len(homes), len(homes) + count - bridges)]
            homes += [centre] * (count - bridges)
        links += [(servers[number % count], end) for number, end in enumerate(ends)]
    return Topology(name, segments, tuple(homes), tuple(links))


#: neighbours of a segment in a graph made by chance
NEIGHBOURS: Final = 4


def chance(segments: int, bridges: int = 1, neighbours: int = NEIGHBOURS, seed: int = 1) -> Topology:
    """Each segment beside ``neighbours`` others, or one more or less, by chance, and none out of reach."""
    if segments <= neighbours + 1:
        return mesh(segments, bridges)
    dice = random.Random(seed)
    # A ring by chance reaches everybody; further ones add neighbours, two each.
    edges: set[Edge] = set()
    for _ in range(neighbours // 2):
        order = list(range(segments))
        dice.shuffle(order)
        for a, b in zip(order, order[1:] + order[:1], strict=True):
            edges.add((min(a, b), max(a, b)))
    return planes("by chance", segments, sorted(edges), bridges)


#: all of them, by what they are called on a command line
ALL: Final[dict[str, Callable[[int, int], Topology]]] = {
    "mesh": mesh,
    "ring": ring,
    "chain": chain,
    "tree": tree,
    "hub": hub,
    "hubs": hubs,
    "chance": chance,
}
