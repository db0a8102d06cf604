"""A finding: what was looked at, how it is, and what to do.

Law: whatever is not well comes with a remedy, and whatever could not be looked at with the reason.
"""

from __future__ import annotations

import re
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

#: whole commands, up to the end of the unit's name
_COMMAND: Final = re.compile(
    r"systemctl (start|restart|status|enable --now) (bccnd(?:-\w+)?)(?:\.\w+)?( \(clients stay connected\))?(?![\w.-])"
)
#: what does the same where there is no systemd; a gateway is started by the daemon there
_BY_HAND: Final = {
    "start": "bccnd --config FILE",
    "restart": "end the daemon and start it anew (bccnd --config FILE)",
    "status": "see the daemon's log",
    "enable --now": "kill -HUP the daemon, which starts its gateways",
}
#: what is to be done with units, after the remedy without them
_UNITS: Final = re.compile(r"; with a socket unit[,:][^;]*")


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
    remedy = _COMMAND.sub(lambda found: _BY_HAND[found[1]], _UNITS.sub("", one.remedy))
    return one._replace(remedy=remedy)


def exit_status(findings: Iterable[Finding]) -> int:
    """1 where something is wrong."""
    return int(any(one.state == WRONG for one in findings))
