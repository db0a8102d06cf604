"""A finding: what was looked at, how it is, and what to do.

Law: whatever is not well comes with a remedy, and whatever could not be looked at with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

State = Literal["ok", "look", "wrong", "not checked"]

#: as it should be
OK: Final = "ok"
#: it works, and somebody should look at it
LOOK: Final = "look"
#: it does not work, or will not
WRONG: Final = "wrong"
NOT_CHECKED: Final = "not checked"
STATES: Final[tuple[State, ...]] = (WRONG, LOOK, OK, NOT_CHECKED)

#: what is done by systemd, and what does it where there is none
_BY_HAND: Final = (
    ("systemctl start bccnd", "bccnd --config FILE"),
    ("systemctl restart bccnd (clients stay connected)", "end the daemon and start it anew (bccnd --config FILE)"),
    ("systemctl restart bccnd", "end the daemon and start it anew (bccnd --config FILE)"),
    ("systemctl status bccnd", "see the daemon's log"),
)


class Finding(NamedTuple):
    """``check`` is the name of what was looked at; ``remedy`` is empty only where there is nothing to do."""

    check: str
    state: State
    finding: str
    remedy: str = ""


def ok(check: str, finding: str) -> Finding:
    return Finding(check, OK, finding)


def look(check: str, finding: str, remedy: str) -> Finding:
    return Finding(check, LOOK, finding, remedy)


def wrong(check: str, finding: str, remedy: str) -> Finding:
    return Finding(check, WRONG, finding, remedy)


def not_checked(check: str, why: str, remedy: str = "") -> Finding:
    return Finding(check, NOT_CHECKED, why, remedy)


def by_hand(one: Finding) -> Finding:
    """A finding with the remedy that helps where no systemd runs."""
    remedy = one.remedy
    for word, instead in _BY_HAND:
        remedy = remedy.replace(word, instead)
    return one._replace(remedy=remedy)


def exit_status(findings: Iterable[Finding]) -> int:
    """1 where something is wrong."""
    return int(any(one.state == WRONG for one in findings))
