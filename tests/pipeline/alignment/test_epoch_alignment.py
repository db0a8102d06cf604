"""Epochs of simulated fleets against what was sent, from rows by way of stretches and runs, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.core.formats.tap_record import seq_key
from bccnd.pipeline.alignment import epoch_alignment
from bccnd.pipeline.alignment.epoch_alignment import ALWAYS, Alignment
from bccnd.pipeline.alignment.joined_runs import Stretch, runs
from bccnd.pipeline.records import task_records
from bccnd.pipeline.records.source_runs import FIRST, JUMP, MASKED, RESTART, Carried, Run, went_back
from bccnd.pipeline.scanning.stretches import stretches
from examples.fleet_model import Fleet, Loss, Recording, Restart, Source
from examples.simulation import SECOND, Simulation
from tests.pipeline import frames
from tests.support import examples

HOSTS = ("a", "b", "c")
#: one that does not ask its host's daemon, and numbers from 1 whenever it starts
OLD = Source("a/old", "a", 10, start=1, own=False)


def runs_of(simulation: Simulation, host: str, cuts: Sequence[int]) -> list[Run]:
    """The runs of a receiver, whose rows come in files that are cut after so many rows."""
    heard = [observed for observed in simulation.heard(host) if observed.message >= 0]
    stretches_found: list[Stretch] = []
    for low, high in pairwise([0, *sorted(cut for cut in cuts if 0 < cut < len(heard)), len(heard)]):
        batch = frames.batch(
            *(
                observed.row._asdict()
                | {
                    "host": host,
                    "journal_id": observed.journal_id,
                    "rec_no": observed.rec_no,
                    "len": observed.row.length,
                }
                for observed in heard[low:high]
            )
        )
        for records in stretches(batch):
            table = task_records.fields_of(pa.Table.from_batches([records]), "stretch")
            stretches_found += [Stretch(*row.values()) for row in table.select(list(Stretch._fields)).to_pylist()]
    offset = round(simulation.fleet.offsets.get(host, 0) * SECOND)
    return [run._replace(offset=offset) for run in runs(stretches_found)]


def all_runs(fleet: Fleet, cuts: Sequence[int] = ()) -> list[Run]:
    """The runs of all receivers."""
    simulation = Simulation(fleet)
    return [run for host in fleet.hosts for run in runs_of(simulation, host, cuts)]


def aligned(fleet: Fleet, cuts: Sequence[int] = ()) -> Alignment:
    return epoch_alignment.align(all_runs(fleet, cuts))


def epoch_of(alignment: Alignment, host: str, journal: str, rec_no: int, ts: int, key: int) -> int:
    """The epoch of a row; 0 for one that no piece takes."""
    if not alignment.pieces:
        return alignment.epochs[0].number
    for piece in alignment.pieces:
        bounds = [(piece.from_rec, rec_no, piece.to_rec), (piece.from_ts, ts, piece.to_ts)]
        bounds.append((piece.lo_key, key, piece.hi_key))
        if piece[:2] == (host, journal) and all(low <= value <= high for low, value, high in bounds):
            return piece.epoch
    return 0


def causes(alignment: Alignment) -> list[str]:
    return [epoch.cause for epoch in alignment.epochs]


def check(fleet: Fleet, cuts: Sequence[int] = ()) -> list[str]:
    """Compare the epoch of every row with the truth; returns the causes."""
    simulation = Simulation(fleet)
    heard = {
        (host, observed.journal_id, observed.rec_no): observed
        for host in fleet.hosts
        for observed in simulation.heard(host)
        if observed.message >= 0
    }
    alignment = aligned(fleet, cuts)
    assert aligned(fleet) == alignment
    order = sorted({(simulation.sent[observed.message].run, observed.row.seq_key or 0) for observed in heard.values()})
    numbers: dict[tuple[int, int], int] = {}
    epoch, before = 0, 0
    for run, key in order:
        epoch += run != before
        numbers[run, key] = epoch
        before = run
    wrong = []
    for (host, journal, number), observed in heard.items():
        key = observed.row.seq_key or 0
        should = alignment.epochs[numbers[simulation.sent[observed.message].run, key] - 1].number
        number_found = epoch_of(alignment, host, journal, number, observed.row.ts, key)
        if number_found != should:
            wrong.append((host, observed.row, should, number_found))
    assert wrong == []
    assert len(alignment.epochs) == epoch
    assert alignment.epochs == sorted(alignment.epochs)
    # what Arrow and Spark have room for
    assert all(-(2**63) <= bound < 2**63 for piece in alignment.pieces for bound in piece[2:-1])
    return causes(alignment)


def test_a_source_that_never_restarts_has_one_epoch_and_needs_no_pieces() -> None:
    fleet = Fleet(HOSTS, (OLD,), 60, losses=(Loss("b", probability=0.2),), offsets={"c": 7})
    assert check(fleet) == [FIRST]
    assert aligned(fleet).pieces == []


def test_the_clock_as_first_number_makes_a_restart_a_jump() -> None:
    source = Source("a/new/1", "a", 10, restarts=(Restart(20.05),))
    assert check(Fleet(HOSTS, (source,), 60, offsets={"b": 2})) == [FIRST, JUMP]
    # Also where no other host hears it.
    source = Source("a/new/1", "a", 10, copies=2, restarts=(Restart(20.05),))
    assert check(Fleet(("a",), (source,), 40)) == [FIRST, JUMP]


def test_a_loss_of_more_than_a_jump_is_no_jump_where_it_is_what_was_sent_meanwhile() -> None:
    source = replace(OLD, rate=100)
    for receiver in ("b", None):
        fleet = Fleet(HOSTS, (source,), 60, losses=(Loss(receiver, None, 10, 40, every=1),))
        assert check(fleet) == [FIRST]
    # Where it was not recorded it is not known for a loss, nor where the source would have taken longer for it.
    every = all_runs(fleet)
    began = fleet.start * SECOND
    off = [(began, began + 10 * SECOND), (began + 40 * SECOND, began + 60 * SECOND)]
    for recorded, expected in ((ALWAYS, [FIRST]), (off, [FIRST, JUMP]), ([(began, began + 30 * SECOND)], [FIRST])):
        assert causes(epoch_alignment.align(every, recorded)) == expected
    twice = replace(OLD, restarts=(Restart(20.05, 1300), Restart(60.05, 3100)))
    assert check(Fleet(HOSTS, (twice,), 120)) == [FIRST, JUMP, JUMP]


def test_a_restart_that_no_daemon_noticed_is_masked() -> None:
    """The daemon forgets a dead source and begins anew with it; or it takes new numbers for copies until they pass the
    old ones, and only the port tells."""
    died = replace(OLD, heartbeat=2, until=90, restarts=(Restart(40.05, 1),), rate=5)
    silence = tuple(Loss(host, None, 15, 40.5, every=1) for host in HOSTS)
    assert check(Fleet(HOSTS, (died,), 90, losses=silence)) == [FIRST, MASKED]
    quick = replace(OLD, rate=50, restarts=(Restart(0.505, 1),))
    assert check(Fleet(HOSTS, (quick,), 20)) == [FIRST, MASKED]


def test_days_whose_rows_go_elsewhere_are_marked_otherwise() -> None:
    """The evening before shows when a source began that goes on in the morning."""
    fleet = Fleet(HOSTS, (OLD,), 60, recordings={host: (Recording(0, 20.05), Recording(30.05)) for host in HOSTS})
    evening = 1_788_000_025 * SECOND
    moved = [run._replace(day="2026-08-30") if run.from_ts > evening else run for run in all_runs(fleet)]
    with_all = epoch_alignment.align(moved)
    morning = epoch_alignment.align([run for run in moved if run.day == "2026-08-30"])
    assert with_all.marks["2026-08-30"] != morning.marks["2026-08-30"]


def carried(runs: Sequence[Run], number: int, following: int | None = None) -> Carried:
    """What is carried of days, from their runs."""
    last = max(runs, key=lambda run: (run.epoch > 0, run.to_ts - run.offset, run.host))
    fastest = max(runs, key=lambda run: (run.hi_key - run.lo_key) / max(run.to_ts - run.from_ts, SECOND))
    return Carried(
        number,
        last.host,
        last.journal_id,
        last.epoch,
        max(run.to_ts - run.offset for run in runs),
        max(run.hi_key for run in runs),
        fastest.hi_key - fastest.lo_key,
        max(fastest.to_ts - fastest.from_ts, SECOND),
        following,
    )


@pytest.mark.parametrize("again", [None, 10.05, 29.95, 40.05])
def test_what_is_carried_of_days_stands_for_their_runs(again: float | None) -> None:
    """A source that goes on, or begins anew before the cut, over it, and behind it, though a host was away."""
    pause = tuple(Loss(host, None, 29, 33, every=1) for host in HOSTS)
    fleet = Fleet(
        HOSTS,
        (OLD if again is None else replace(OLD, restarts=(Restart(again, 1),)),),
        60,
        losses=pause,
        recordings={"b": (Recording(0, 15.05), Recording(45.05))},
        offsets={"c": 2.0},
    )
    cut = 1_788_000_031 * SECOND
    days = [
        run._replace(day="2026-08-30" if run.from_ts - run.offset > cut else "2026-08-29") for run in all_runs(fleet)
    ]
    earlier = [run for run in days if run.day == "2026-08-29" and run.to_ts - run.offset < cut]
    later = [run for run in days if run not in earlier]
    whole = epoch_alignment.align(days)
    numbers_before = [epoch.number for epoch in whole.epochs if epoch.number * SECOND < cut]
    assert earlier
    assert later
    alone = epoch_alignment.align(later, ALWAYS, carried(earlier, numbers_before[-1]))
    assert [epoch.number for epoch in alone.epochs] == [epoch.number for epoch in whole.epochs][
        len(numbers_before) - 1 :
    ]
    assert alone.marks["2026-08-30"] == whole.marks["2026-08-30"]


def test_an_epoch_that_only_the_runs_before_show_keeps_its_number() -> None:
    fleet = Fleet(HOSTS, (OLD,), 30)
    runs = all_runs(fleet)
    before = carried(runs, 1_787_000_000, following=1_787_999_999)
    later = [run._replace(from_ts=run.from_ts + 40 * SECOND, to_ts=run.to_ts + 40 * SECOND) for run in runs]
    higher = [
        run._replace(lo_key=run.hi_key + 1, first_key=run.hi_key + 1, hi_key=run.hi_key + 9, last_key=run.hi_key + 9)
        for run in later
    ]
    assert [epoch.number for epoch in epoch_alignment.align(higher, ALWAYS, before).epochs] == [1_787_999_999]


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Restarts far enough apart to be told, everything else as it comes."""
    rate = draw(st.sampled_from((2, 7, 20)))
    moments = draw(st.lists(st.integers(1, 8), max_size=3, unique=True).map(sorted))
    restarts = tuple(Restart(12 * moment + 0.05 / rate, 1) for moment in moments)
    source = replace(OLD, rate=rate, own=draw(st.booleans()), copies=draw(st.integers(1, 2)), restarts=restarts)
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
    source = replace(OLD, rate=2, copies=2, restarts=(Restart(12.025, 1),))
    check(Fleet(HOSTS, (source,), 110, losses=(Loss("b", None, 1, 14, probability=1.0),)))


@settings(max_examples=examples(40), deadline=None)
@given(fleets(), st.lists(st.integers(1, 300), max_size=4))
def test_every_row_of_any_fleet_is_in_its_epoch(fleet: Fleet, cuts: list[int]) -> None:
    """One receiver, e, hears all, so that there is evidence of every restart."""
    first, *later_causes = check(fleet, cuts)
    assert first == FIRST
    assert set(later_causes) <= {RESTART, MASKED}


@pytest.mark.parametrize("back", [1023, 1024])
def test_numbers_across_journals_go_back_for_certain_only_by_a_jump_or_after_a_while(back: int) -> None:
    old_run = Run(
        "d", "h", "j1", 1, 0, 9, 0, 1_000_000, seq_key(5000), seq_key(6000), seq_key(5000), seq_key(6000), False, False
    )
    new = old_run._replace(journal_id="j2", from_ts=1_500_000, to_ts=2_500_000)
    low = seq_key(6000 - back)
    new = new._replace(lo_key=low, first_key=low)
    assert went_back(old_run, new) == (back == 1024)
    assert went_back(old_run, new._replace(from_ts=3_000_001))
