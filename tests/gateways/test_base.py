"""What a gateway says of all that it has dropped: once an hour and at the end, and only what is new."""

from __future__ import annotations

from bccnd.core.tally import TALLY
from bccnd.gateways.base import Hourly, Status
from tests.gateways.peers import Ear


def test_once_an_hour_and_at_the_end_it_is_said_what_fell_since() -> None:
    ear, status = Ear(), Status("broker")
    hourly = Hourly(ear, status, 100.0)
    hourly.look(100.0 + TALLY)
    assert ear.said == []  # nothing fell
    status.drop("filtered", 5210)
    status.drop("late")
    hourly.look(100.0 + 2 * TALLY - 1)
    assert ear.said == []
    hourly.look(100.0 + 2 * TALLY)
    hourly.look(100.0 + 2 * TALLY + 1)
    status.drop("late", 2)
    hourly.end()
    assert [(event, more["drops"]) for event, _, more in ear.said] == [
        ("tally", "filtered=5210 late=1"),
        ("tally", "late=2"),
    ]
    assert {more["gateway"] for *_, more in ear.said} == {"broker"}
    assert "filtered 5,210" in ear.said[0][1]


def test_one_that_ends_early_says_what_fell_since_the_start() -> None:
    ear, status = Ear(), Status("broker")
    hourly = Hourly(ear, status, 0.0)
    status.drop("no_topic")
    hourly.end()
    ((event, text, more),) = ear.said
    assert (event, "since the start" in text, more["drops"]) == ("tally", True, "no_topic=1")
