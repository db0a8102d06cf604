"""A host that sleeps and a clock that is set are told apart, and from a clock that is only corrected."""

from __future__ import annotations

import pytest

from bccnd.recorder.clock_steps import SETTLED, Cause, Clocks, ClockTrust, cause_of_step, is_synchronised

SECOND = 1_000_000
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("wall", "awake", "boot", "cause"),
    [
        (SECOND, SECOND, SECOND, None),
        # a busy host: the look came late
        (HOUR, HOUR, HOUR, None),
        # what a time service corrects in a second
        (SECOND + 500, SECOND, SECOND, None),
        (8 * HOUR, SECOND, 8 * HOUR, "suspend"),
        # it woke up, and its clock was set then
        (9 * HOUR, SECOND, 8 * HOUR, "suspend"),
        (50 * 365 * 24 * HOUR, SECOND, SECOND, "clock"),
        (-HOUR, SECOND, SECOND, "clock"),
        (2 * SECOND, SECOND, SECOND, "clock"),
    ],
)
def test_the_cause_of_a_step(wall: int, awake: int, boot: int, cause: Cause | None) -> None:
    before = Clocks(1_700_000_000 * SECOND, 5 * HOUR, 6 * HOUR)
    assert cause_of_step(before, Clocks(before.wall + wall, before.awake + awake, before.boot + boot)) == cause


def test_a_clock_is_trusted_if_synchronised_and_not_set_lately() -> None:
    clocks, synchronised = Clocks(50 * HOUR, HOUR, HOUR), True
    trust = ClockTrust(lambda: clocks, lambda: synchronised)
    assert not trust.doubt()
    clocks = Clocks(51 * HOUR, HOUR, 2 * HOUR)  # it slept
    assert not trust.doubt()
    synchronised = False
    assert trust.doubt()
    synchronised = True
    assert not trust.doubt()
    clocks = Clocks(90 * HOUR, HOUR, 2 * HOUR)
    assert trust.doubt()
    clocks = Clocks(90 * HOUR + SETTLED // 2, HOUR, 2 * HOUR + SETTLED // 2)
    assert trust.doubt()
    clocks = Clocks(90 * HOUR + SETTLED, HOUR, 2 * HOUR + SETTLED)
    assert not trust.doubt()


def test_a_clock_of_which_nothing_can_be_learned_is_not_trusted() -> None:
    def refuse() -> bool:
        raise PermissionError(1, "Operation not permitted")

    assert "Operation not permitted" in ClockTrust(synchronised=refuse).doubt()
    assert is_synchronised() in (True, False)
