"""Meshes of bridges as a model around the daemon's own core: copies, order and cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.e2e.mesh_model import Edge, Mesh, Outcome, World
from tests.rules import dedup_rules
from tests.support import examples

Topology = tuple[int, list[Edge], int]


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """A few segments with one or two bridges each, joined by a tree and some links more."""
    segments = draw(st.integers(2, 5))
    edges = {(draw(st.integers(0, b - 1)), b) for b in range(1, segments)}
    more = st.tuples(st.integers(0, segments - 1), st.integers(0, segments - 1))
    edges |= {(min(pair), max(pair)) for pair in draw(st.lists(more, max_size=4)) if pair[0] != pair[1]}
    return segments, sorted(edges), draw(st.integers(1, 2))


def delays(most: float = 0.01) -> st.SearchStrategy[float]:
    return st.floats(0.0, most)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Where nothing is lost."""
    return World(
        segment_delay=draw(delays()),
        segment_jitter=draw(st.sampled_from([0.0, 0.001, 0.02])),
        link_delay=draw(delays()),
        link_jitter=draw(st.sampled_from([0.0, 0.001, 0.02])),
    )


def talk(mesh: Mesh, messages: int, spacing: float) -> Outcome:
    """Every host says something, again and again."""
    for number in range(messages):
        for host in mesh.hosts:
            mesh.say(host, b"%d/%d" % (host.number, number), number * spacing)
    return mesh.run()


@settings(max_examples=examples(60), deadline=None)
@given(topologies(), worlds(), st.integers(0, 1000), st.sampled_from([0.0, 0.0005, 0.01]))
def test_without_losses_each_message_arrives_once_in_order(
    topology: Topology, world: World, seed: int, spacing: float
) -> None:
    mesh = Mesh(*topology, world, seed)
    found = talk(mesh, 4, spacing)
    total = found.published.total()
    segments, edges, bridges = topology
    assert found.twice == []
    assert len(found.got) == len(mesh.hosts) * total
    for who, seqs in found.order.items():
        assert all(before < after for before, after in pairwise(seqs)), who
    # Each end of each link is used once: by a link message, or by the broadcast of what arrived there first.
    relayed = found.datagrams.total() - total
    assert found.links + relayed == 2 * len(edges) * bridges * total
    # A message from elsewhere is broadcast by one bridge of a segment at least, and any message by each at most once:
    # links that are faster than a segment bring back to it what some of its bridges have not heard.
    for segment in range(segments):
        published = found.published[segment]
        assert total - published <= found.datagrams[segment] - published <= total * bridges
    assert set(found.by_segment) | set(found.by_link) <= {"accepted", "duplicate", "looped"}


@settings(max_examples=examples(60), deadline=None)
@given(
    topologies(), worlds(), st.integers(0, 1000), st.sampled_from([0.05, 0.3]), st.booleans(),
    st.lists(st.tuples(st.floats(0.0, 0.1), st.floats(0.0, 1.5)), max_size=3),
)  # fmt: skip
def test_with_losses_and_stops_no_message_arrives_twice(
    topology: Topology, world: World, seed: int, loss: float, deliver_late: bool, faults: list[tuple[float, float]]
) -> None:
    """The stops together stay below the horizon of a segment."""
    world = replace(
        world, segment_loss=loss, one_order=False, rules=dedup_rules(linked=True, deliver_late=deliver_late)
    )
    mesh = Mesh(*topology, world, seed)
    for number, (start, length) in enumerate(faults):
        host = mesh.bridges[number % len(mesh.bridges)]
        if host.links and number % 2:
            host.links[0][2].stalls.append((start, start + length / 3))
        else:
            host.stops.append((start, start + length / 3))
    found = talk(mesh, 6, 0.01)
    assert found.twice == []


@pytest.mark.parametrize("monotonic", [False, True])
def test_what_a_link_brings_after_the_horizon_is_not_repeated(monotonic: bool) -> None:
    """A link stands still for 5 s, the segments lose some, and the sources have fallen silent meanwhile."""
    twice = missed = 0
    for seed in range(10):
        world = World(segment_loss=0.05, rules=dedup_rules(linked=True, deliver_late=True, monotonic=monotonic))
        mesh = Mesh(2, [(0, 1)], 2, world, seed)
        mesh.bridges[0].links[0][2].stalls.append((0.0, 5.0))
        for number in range(20):
            mesh.say(mesh.plain[0], b"%d" % number, 0.5 + number * 0.001)
        found = mesh.run()
        twice += len(found.twice)
        missed += found.by_link["reordered"]
    assert missed > 0  # there was something to bring
    assert twice == 0
