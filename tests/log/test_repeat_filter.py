"""The filter of repeated log records."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.log import repeat_filter
from bccnd.log.repeat_filter import MAX_RECORDS, QUIET, RepeatFilter


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repeats(clock: Clock) -> RepeatFilter:
    return RepeatFilter(now=clock)


@pytest.fixture
def logger(repeats: RepeatFilter, caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    logger = logging.getLogger("bccnd.test")
    logger.addFilter(repeats)
    yield logger
    logger.removeFilter(repeats)


def log(logger: logging.Logger, about: Hashable, text: str = "a is slow", event: str = "slow", **fields: int) -> None:
    logger.warning("%s", text, extra={"event": event, "about": about, "fields": fields})


def test_a_thing_is_logged_once_then_counted(
    clock: Clock, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    for pid, seconds in enumerate((0, 0, 0, 0, 0, QUIET - 1, 1, QUIET)):
        clock.now += seconds
        log(logger, "a", pid=pid)
    assert caplog.messages == ["a is slow", "a is slow (5 more times since the last line)", "a is slow"]
    assert [vars(record)["fields"] for record in caplog.records] == [
        {"count": 1, "pid": 0},
        {"count": 6, "pid": 6},
        {"count": 1, "pid": 7},
    ]
    log(logger, ("a", "b"))
    log(logger, "a", event="fast")
    logger.warning("a is slow")
    assert len(caplog.messages) == 6


def test_one_event_does_not_fill_the_log(
    clock: Clock, logger: logging.Logger, repeats: RepeatFilter, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        log(logger, number)
    assert (repeats.left_out, len(caplog.messages)) == (1000 - MAX_RECORDS, MAX_RECORDS)
    log(logger, "another", "another event", event="fast")
    assert caplog.messages[-1] == "another event"
    clock.now += QUIET
    log(logger, "late")
    log(logger, "later", "100%s %d")
    assert caplog.messages[-2:] == [
        f"a is slow ({1000 - MAX_RECORDS} lines about other things suppressed)",
        "100%s %d",
    ]


def test_suppressed_repeats_count_as_well(
    clock: Clock, logger: logging.Logger, repeats: RepeatFilter, caplog: pytest.LogCaptureFixture
) -> None:
    assert not repeats.suppress("slow", "a")
    log(logger, "a")
    assert [repeats.suppress("slow", "a") for _ in range(3)] == [True] * 3
    clock.now += QUIET
    assert not repeats.suppress("slow", "a")
    log(logger, "a")
    assert caplog.messages[1:] == ["a is slow (3 more times since the last line)"]


def test_too_many_things_are_forgotten(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeat_filter, "MAX_THINGS", 2)
    for about in ("a", "b", "a", "c", "a"):
        log(logger, about, about)
    assert caplog.messages == ["a", "b", "c", "a"]


def test_a_counter_is_reported_at_once_and_then_with_its_growth(clock: Clock, repeats: RepeatFilter) -> None:
    assert [repeats.growth("a", count) for count in (0, 7)] == [0, 7]
    clock.now += 1
    assert [repeats.growth("a", 8), repeats.growth("a", 9), repeats.growth("b", 5)] == [0, 0, 5]
    for count, growth in ((9, 2), (9, 0), (10, 1), (3, 3)):  # also where it has not grown any more, or began anew
        clock.now += QUIET
        assert repeats.growth("a", count) == growth
    for count, growth in ((5, 0), (7, 2), (2, 2)):  # from a value that was reported before
        repeats.resume("a", 5)
        assert repeats.growth("a", count) == growth


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 100)), max_size=50))
def test_growth_of_a_counter_is_reported_once(steps: list[tuple[int, float]]) -> None:
    clock = Clock()
    repeats = RepeatFilter(now=clock)
    count = reported = 0
    for more, seconds in steps:
        count += more
        clock.now += seconds
        reported += repeats.growth("x", count)
        assert reported <= count
    clock.now += 2 * QUIET
    assert reported + repeats.growth("x", count) == count
