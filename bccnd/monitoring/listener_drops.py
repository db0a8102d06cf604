"""What the metrics listener refuses and the log leaves out, with what it means and what to do: a part of `drops`."""

from __future__ import annotations

from typing import Final

#: a name, whether it is serious, what it means, what to do
Entry = tuple[str, bool, str, str]

_SERIOUS: Final = True
_USUAL: Final = False

VISITORS: Final[tuple[Entry, ...]] = (
    (
        "too_many_visitors",
        _SERIOUS,
        "A connection to the metrics listener was turned away: 32 are open.",
        "Find out who holds them; one Prometheus needs one.",
    ),
    (
        "slow_visitor",
        _USUAL,
        "A connection to the metrics listener was ended that did not ask, or did not take its answer, in ten seconds.",
        "Nothing, unless it is your Prometheus: then see the network between.",
    ),
    (
        "bad_request",
        _USUAL,
        "A connection to the metrics listener was ended that did not speak HTTP.",
        "See who connects there, and whether metrics.listen should be open to him.",
    ),
    (
        "foreign_host",
        _USUAL,
        "A request to the metrics listener was refused: it asked for a name that is not this host's.",
        "If it is your proxy or your Prometheus: have it ask by address, or add the name to metrics.hosts.",
    ),
    (
        "bug",
        _SERIOUS,
        "A connection to the metrics listener was ended by a bug in bccnd.",
        "Report it with the whole entry of the log (-o verbose).",
    ),
)

LINES: Final[tuple[Entry, ...]] = (
    (
        "lines_lost",
        _SERIOUS,
        "A line of the log that nobody took.",
        "See that whoever takes the log reads it and has room for it.",
    ),
    (
        "lines_left_out",
        _USUAL,
        "A line of the log beyond the 50 a minute about one kind of event.",
        "Nothing; the metrics count what the log does not say.",
    ),
)
