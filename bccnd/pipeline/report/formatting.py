"""Formats numbers, times and lists for readers. Times are UTC, in microseconds since 1970.

Invariant: only zero is shown as 0, and only all of something as 100 %.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

#: keeps a number and its unit on one line
_GAP: Final = "\N{NO-BREAK SPACE}"
#: microseconds in a unit
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
#: names in a list before "and 4 more"
_NAMED: Final = 3


def count(number: int) -> str:
    """Format as 1,234,567."""
    return f"{number:,}"


def _digits(value: float) -> str:
    """Format with three significant digits, without an exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


def about(number: int) -> str:
    """Format as 1,234, or 12.3 million."""
    if number < 1_000_000:
        return count(number)
    unit, name = (1e9, "billion") if number >= 1e9 else (1e6, "million")
    return f"{_digits(number / unit)}{_GAP}{name}"


def quantity(number: int, noun: str) -> str:
    """Format as 1 host, 2 hosts."""
    return f"{about(number)}{_GAP}{noun}{'' if number == 1 else 's'}"


def share(ratio: float) -> str:
    """Format as 0 %, under 0.01 %, 0.25 %, 1.2 %, 12 %, over 99 %, 100 %."""
    percent = 100 * ratio
    if percent <= 0:
        return f"0{_GAP}%"
    if percent < 0.01:
        return f"under{_GAP}0.01{_GAP}%"
    if 99 < percent < 100:
        return f"over{_GAP}99{_GAP}%"
    digits = 2 if percent < 0.995 else 1 if percent < 9.95 else 0
    return f"{percent:.{digits}f}{_GAP}%"


def size(octets: int) -> str:
    """Format as 900 B, 1.2 kB, 3.4 MB."""
    power = max((place for place in range(5) if octets >= 1000**place), default=0)
    return f"{_digits(octets / 1000**power)}{_GAP}{('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def rate(per_second: float) -> str:
    """Format as 12 a second, 0.5 a second, 3 a minute."""
    return f"{_digits(per_second)} a second" if per_second >= 0.1 else f"{_digits(60 * per_second)} a minute"


def duration(length: int) -> str:
    """Format as 40 ms, 12 s, 5 min, 1 h 20 min, 3 days."""
    if length < SECOND:
        return f"{_digits(length / 1000)}{_GAP}ms"
    if length < 2 * MINUTE:
        return f"{_digits(length / SECOND)}{_GAP}s"
    if length < 2 * HOUR:
        return f"{round(length / MINUTE)}{_GAP}min"
    if length >= 2 * DAY:
        return f"{_digits(length / DAY)}{_GAP}days"
    hours, minutes = divmod(round(length / MINUTE), 60)
    return f"{hours}{_GAP}h" + (f" {minutes}{_GAP}min" if minutes else "")


def signed(difference: int) -> str:
    """Format as +12 ms, -1.5 s."""
    return f"{'-' if difference < 0 else '+' if difference else ''}{duration(abs(difference))}"


def moment(at: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at // SECOND, datetime.UTC)


def stamp(at: int) -> str:
    return f"{moment(at):%d %b %H:%M}"


def when(at: int, period: int = 0) -> str:
    """Format a time of day, with the date if the whole period is longer than a day."""
    if period > DAY:
        return stamp(at)
    return f"{moment(at):%H:%M:%S}" if period <= HOUR and at % MINUTE >= SECOND else f"{moment(at):%H:%M}"


def span(start: int, end: int) -> str:
    """Format as 21 Nov 2026, 10:00 to 11:00 UTC."""
    first, last = moment(start), moment(end)
    date = "" if first.date() == last.date() else f"{last:%d %b %Y}, "
    return f"{first:%d %b %Y, %H:%M} to {date}{last:%H:%M} UTC"


def listing(names: Sequence[str], more: int = 0) -> str:
    """Format as a, b and c, or a, b, c and 4 more. ``more`` counts names that are not given."""
    shown = [plain(name) for name in names[:_NAMED]]
    more += len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def plain(text: str) -> str:
    """Escape the unprintable characters in a name from the network."""
    return "".join(char if char.isprintable() or char == _GAP else f"\\x{ord(char):02x}" for char in text)


def shortened(text: str, limit: int) -> str:
    """Cut a name in its middle to at most ``limit`` characters."""
    text = plain(text)
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}\N{HORIZONTAL ELLIPSIS}{text[-(limit - 1 - head) :]}"
