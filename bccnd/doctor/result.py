"""The results of checks: a state, what was found, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, Literal, NamedTuple

State = Literal["ok", "look", "wrong", "not checked"]

#: the worst first; ``look`` works, and needs attention
STATES: Final[tuple[State, ...]] = ("wrong", "look", "ok", "not checked")


class CheckFinding(NamedTuple):
    """What a check yields; ``remedy`` is empty only where there is nothing to do."""

    state: State
    finding: str
    remedy: str = ""


class Result(NamedTuple):
    """A finding with the name of its check, as ``bccn doctor --json`` prints it."""

    check: str
    state: State
    finding: str
    remedy: str


ok: Final = partial(CheckFinding, "ok")
look: Final = partial(CheckFinding, "look")
wrong: Final = partial(CheckFinding, "wrong")
not_checked: Final = partial(CheckFinding, "not checked")


def exit_status(results: Iterable[Result]) -> int:
    """1 if something is wrong."""
    return int(any(one.state == "wrong" for one in results))


def summary(results: Iterable[Result]) -> str:
    """How many results there are in each state."""
    states = [one.state for one in results]
    counts = {"to look at" if state == "look" else state: states.count(state) for state in STATES}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)
