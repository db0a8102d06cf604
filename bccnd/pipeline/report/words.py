"""Numbers, times and lists as people say them.

Law: every number comes with its unit and no more digits than it deserves; nothing that is not zero is shown as zero,
and nothing that is not all as all. Times are UTC.
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
#: from here on a count is rounded in sentences
_MANY: Final = 1_000_000
#: names that a sentence lists one by one
_NAMED: Final = 3


def count(number: int) -> str:
    """1,234,567."""
    return f"{number:,}"


def _three(value: float) -> str:
    """A value with three digits that count, without an exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def about(number: int) -> str:
    """A count in a sentence: 1,234, and 12.3 million."""
    if number < _MANY:
        return count(number)
    unit, name = (1e9, "billion") if number >= 1e9 else (1e6, "million")
    return f"{_three(number / unit)}{_GAP}{name}"


def some(number: int, one: str, many: str = "") -> str:
    """1 host, 2 hosts."""
    return f"{about(number)}{_GAP}{one if number == 1 else many or one + 's'}"


def share(ratio: float) -> str:
    """A part of a whole: 0 %, under 0.01 %, 0.25 %, 1.2 %, 12 %, over 99 %, 100 %."""
    percent = 100 * ratio
    if percent <= 0:
        return f"0{_GAP}%"
    if percent < 0.01:
        return f"under{_GAP}0.01{_GAP}%"
    if 99 < percent < 100:
        return f"over{_GAP}99{_GAP}%"
    digits = 2 if percent < 0.995 else 1 if percent < 9.95 else 0
    return f"{percent:.{digits}f}{_GAP}%"


def octets(number: int) -> str:
    """900 B, 1.2 kB, 3.4 MB."""
    power = max((place for place in range(5) if number >= 1000**place), default=0)
    return f"{_three(number / 1000**power)}{_GAP}{('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def rate(per_second: float) -> str:
    """12 a second, 0.5 a second, 3 a minute."""
    if per_second >= 0.1:
        return f"{_three(per_second)} a second"
    return f"{_three(60 * per_second)} a minute"


def duration(span: int) -> str:
    """Microseconds: 40 ms, 12 s, 5 min, 1 h 20 min, 3 days."""
    if span < SECOND:
        return f"{_three(span / 1000)}{_GAP}ms"
    if span < 2 * MINUTE:
        return f"{_three(span / SECOND)}{_GAP}s"
    if span < 2 * HOUR:
        return f"{round(span / MINUTE)}{_GAP}min"
    if span < 2 * DAY:
        hours, minutes = divmod(round(span / MINUTE), 60)
        return f"{hours}{_GAP}h" + (f" {minutes}{_GAP}min" if minutes else "")
    return f"{_three(span / DAY)}{_GAP}days"


def signed(span: int) -> str:
    """A difference of clocks: +12 ms, -1.5 s."""
    sign = "-" if span < 0 else "+" if span else ""
    return sign + duration(abs(span))


def moment(at: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at // SECOND, datetime.UTC)


def when(at: int, whole: int = 0) -> str:
    """A moment within a period of so many microseconds: the time alone, or with the day where it has more than one."""
    if whole > DAY:
        return f"{moment(at):%d %b %H:%M}"
    return f"{moment(at):%H:%M:%S}" if whole <= HOUR and at % MINUTE >= SECOND else f"{moment(at):%H:%M}"


def span(start: int, end: int) -> str:
    """A period in words: 21 Nov 2026, 10:00 to 11:00 UTC."""
    first, last = moment(start), moment(end)
    if first.date() == last.date():
        return f"{first:%d %b %Y, %H:%M} to {last:%H:%M} UTC"
    return f"{first:%d %b %Y, %H:%M} to {last:%d %b %Y, %H:%M} UTC"


def listing(names: Sequence[str], limit: int = _NAMED) -> str:
    """a, b and c; a, b, c and 4 more."""
    shown, more = list(names[:limit]), len(names) - limit
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def plain(text: str) -> str:
    """A name that somebody chose, without what cannot be printed: that is spelled out."""
    return "".join(one if one.isprintable() or one == _GAP else f"\\x{ord(one):02x}" for one in text)


def shortened(text: str, limit: int) -> str:
    """A name that fits into so many characters; its end tells most, its beginning next to it."""
    text = plain(text)
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}\N{HORIZONTAL ELLIPSIS}{text[-(limit - 1 - head) :]}"
