"""Epochs of simulated fleets against what was sent, without Spark: what runs.py asks of it is done here in Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.core.observe import seq_key
from bccnd.journal.layout import day_of
from bccnd.pipeline import align, runs
from bccnd.pipeline.align import FIRST, JUMP, MASKED, RESTART, Alignment, Run
from bccnd.pipeline.runs import BLOCK, MINUTE, NEW, Cell, Row
from examples.simulation import SECOND, Fleet, Heard, Loss, Recording, Restart, Simulation, Source
from tests.support import examples

HOSTS = ("a", "b", "c")
#: one that does not ask its host's daemon, and numbers from 1 whenever it starts
OLD = Source("a/old", "a", 10, start=1, own=False)


def cells_of(host: str, heard: Iterable[Heard]) -> tuple[list[Cell], list[tuple[str, str, Row]]]:
    """What Spark says of the cells of a receiver's rows of one source, and the rows: (day, journal, row)."""
    places: dict[tuple[str, str, int, int, int], list[Row]] = defaultdict(list)
    rows = []
    for journal, number, each, _ in heard:
        assert each.seq_key is not None
        row = Row(number, each.ts, each.seq_key, each.epoch, each.peer_port, each.verdict)
        day = day_of(each.ts)
        places[day, journal, each.epoch, each.ts // MINUTE, each.seq_key >> BLOCK].append(row)
        rows.append((day, journal, row))
    found = []
    for (day, journal, epoch, minute, block), some in places.items():
        new = [row for row in some if row.verdict in NEW]
        these = new or some
        keys = [row.seq_key for row in these]
        ports = [row.peer_port for row in some]
        found.append(
            Cell(
                *(day, host, journal, "s", epoch, minute, block, these[0].rec_no, these[-1].rec_no),
                *(min(row.ts for row in these), max(row.ts for row in these), min(keys), max(keys)),
                *((keys[0], keys[-1]) if new else (min(keys), max(keys))),
                *(len(new), len(some) - len(new), min(ports), max(ports)),
            )
        )
    return found, rows


def runs_of(simulation: Simulation, host: str, source: int) -> list[Run]:
    heard = [
        each for each in simulation.heard(host) if each.message >= 0 and simulation.sent[each.message].source == source
    ]
    cells, rows = cells_of(host, heard)
    found = []
    for day in sorted({cell.day for cell in cells}):
        some = [cell for cell in cells if cell.day == day]
        suspects = runs.collapse(some)[1]
        for journal in {cell.journal_id for cell in suspects}:
            demanded = [cell for cell in suspects if cell.journal_id == journal]
            places = {(cell.epoch, cell.minute, cell.block) for cell in demanded}
            looked = [
                row
                for its_day, its_journal, row in rows
                if (its_day, its_journal) == (day, journal)
                and (row.epoch, row.ts // MINUTE, row.seq_key >> BLOCK) in places
            ]
            some = [cell for cell in some if cell not in demanded] + runs.look_at(looked, demanded)
        done, left = runs.collapse(sorted(some))
        assert not left
        found += done
    offset = round(simulation.fleet.offsets.get(host, 0) * SECOND)
    return [run._replace(offset=offset) for run in found]


def aligned(simulation: Simulation, source: int = 0) -> Alignment:
    return align.align([run for host in simulation.fleet.hosts for run in runs_of(simulation, host, source)])


def check(fleet: Fleet) -> list[str]:
    """Compare the epoch of every row with the truth; returns the causes."""
    simulation = Simulation(fleet)
    heard = {
        (host, each.journal_id, each.rec_no): each
        for host in fleet.hosts
        for each in simulation.heard(host)
        if each.message >= 0 and simulation.sent[each.message].source == 0
    }
    alignment = aligned(simulation)
    order = sorted({(simulation.sent[each.message].run, each.row.seq_key or 0) for each in heard.values()})
    numbers: dict[tuple[int, int], int] = {}
    epoch, before = 0, 0
    for run, key in order:
        epoch += run != before
        numbers[run, key] = epoch
        before = run
    wrong = []
    for (host, journal, number), each in heard.items():
        key = each.row.seq_key or 0
        should = numbers[simulation.sent[each.message].run, key]
        found = align.find(alignment, host, journal, number, each.row.ts, key)
        if found != should:
            wrong.append((host, each.row, should, found))
    assert wrong == []
    assert len(alignment.causes) == epoch
    # what Arrow and Spark have room for
    assert all(-(2**63) <= bound < 2**63 for piece in alignment.pieces for bound in piece[2:-1])
    return alignment.causes


def old(**changes: object) -> Source:
    return OLD.__class__(**{**OLD.__dict__, **changes})


def test_a_source_that_never_restarts_has_one_epoch_and_needs_no_pieces() -> None:
    fleet = Fleet(HOSTS, (OLD,), 60, losses=(Loss("b", probability=0.2),), offsets={"c": 7})
    assert check(fleet) == [FIRST]
    assert aligned(Simulation(fleet)).pieces == []


def test_the_clock_as_first_number_makes_a_restart_a_jump() -> None:
    source = Source("a/new/1", "a", 10, restarts=(Restart(20.05),))
    assert check(Fleet(HOSTS, (source,), 60, offsets={"b": 2})) == [FIRST, JUMP]
    # Also where no other host hears it.
    source = Source("a/new/1", "a", 10, copies=2, restarts=(Restart(20.05),))
    assert check(Fleet(("a",), (source,), 40)) == [FIRST, JUMP]


def test_a_loss_of_more_than_a_jump_is_no_jump_where_it_is_what_was_sent_meanwhile() -> None:
    source = old(rate=100)
    for receiver in ("b", None):
        fleet = Fleet(HOSTS, (source,), 60, losses=(Loss(receiver, None, 10, 40, every=1),))
        assert check(fleet) == [FIRST]
    # Where it was not recorded it is not known for a loss, nor where the source would have taken longer for it.
    every = [run for host in HOSTS for run in runs_of(Simulation(fleet), host, 0)]
    began = fleet.start * SECOND
    off = [(began, began + 10 * SECOND), (began + 40 * SECOND, began + 60 * SECOND)]
    for recorded, causes in ((None, [FIRST]), (off, [FIRST, JUMP]), ([(began, began + 30 * SECOND)], [FIRST])):
        assert align.align(every, recorded).causes == causes
    assert check(Fleet(HOSTS, (old(restarts=(Restart(20.05, 1300), Restart(60.05, 3100))),), 120)) == [
        FIRST,
        JUMP,
        JUMP,
    ]


def test_a_restart_that_no_daemon_noticed_is_masked() -> None:
    """The daemon forgets a dead source and begins anew with it; or it takes new numbers for copies until they pass the
    old ones, and only the port tells."""
    died = old(heartbeat=2, until=90, restarts=(Restart(40.05, 1),), rate=5)
    silence = tuple(Loss(host, None, 15, 40.5, every=1) for host in HOSTS)
    assert check(Fleet(HOSTS, (died,), 90, losses=silence)) == [FIRST, MASKED]
    quick = Source("a/old", "a", 50, start=1, own=False, restarts=(Restart(0.505, 1),))
    assert check(Fleet(HOSTS, (quick,), 20)) == [FIRST, MASKED]


def test_days_whose_rows_go_elsewhere_are_marked_otherwise() -> None:
    fleet = Fleet(HOSTS, (old(restarts=(Restart(30.05, 1),)),), 60, recordings={"a": (Recording(0, 20.05),)})
    simulation = Simulation(fleet)
    late = [run for host in HOSTS for run in runs_of(simulation, host, 0)]
    moved = [run._replace(day="2026-08-30") if run.from_ts > 1_788_000_030 * SECOND else run for run in late]
    with_all = align.align(moved)
    without = align.align([run for run in moved if run.day == "2026-08-30"])
    assert with_all.marks.keys() == {"2026-08-30"}
    assert without.marks == {}


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Restarts far enough apart to be told, everything else as it comes."""
    rate = draw(st.sampled_from((2, 7, 20)))
    moments = draw(st.lists(st.integers(1, 8), max_size=3, unique=True).map(sorted))
    restarts = tuple(Restart(12 * each + 0.05 / rate, 1) for each in moments)
    source = Source(
        "a/old", "a", rate, start=1, own=draw(st.booleans()), copies=draw(st.integers(1, 2)), restarts=restarts
    )
    losses = [
        Loss(
            draw(st.sampled_from(("b", "c", "d"))),
            None,
            start,
            start + draw(st.integers(1, 40)),
            probability=draw(st.sampled_from((0.3, 1.0))),
        )
        for start in draw(st.lists(st.integers(0, 100), max_size=3))
    ]
    return Fleet(
        ("a", "b", "c", "d", "e"),
        (source,),
        110,
        seed=draw(st.integers(0, 1000)),
        losses=tuple(losses),
        offsets={host: draw(st.integers(-5, 5)) / 2 for host in ("b", "c", "d")},
        recordings={"d": (Recording(0, 31.0107), Recording(33.0107, 77.0107), Recording(80.0107, 110))},
    )


def test_a_restart_that_a_receiver_cannot_tell_leaves_nothing_to_look_at_twice() -> None:
    """From another port, with numbers above the last that it had heard."""
    source = Source("a/old", "a", 2, start=1, own=False, copies=2, restarts=(Restart(12.025, 1),))
    check(Fleet(HOSTS, (source,), 110, losses=(Loss("b", None, 1, 14, probability=1.0),)))


@settings(max_examples=examples(40))
@given(fleets())
def test_every_row_of_any_fleet_is_in_its_epoch(fleet: Fleet) -> None:
    """One receiver, e, hears all, so that there is evidence of every restart."""
    first, *others = check(fleet)
    assert first == FIRST
    assert set(others) <= {RESTART, MASKED}


@pytest.mark.parametrize("back", [1023, 1024])
def test_numbers_across_journals_go_back_for_certain_only_by_a_jump_or_after_a_while(back: int) -> None:
    old_run = Run(
        "d", "h", "j1", 1, 0, 9, 0, 1_000_000, seq_key(5000), seq_key(6000), seq_key(5000), seq_key(6000), False, False
    )
    new = old_run._replace(journal_id="j2", from_ts=1_500_000, to_ts=2_500_000)
    low = seq_key(6000 - back)
    new = new._replace(lo_key=low, first_key=low)
    assert align.went_back(old_run, new) == (back == 1024)
    assert align.went_back(old_run, new._replace(from_ts=3_000_001))
