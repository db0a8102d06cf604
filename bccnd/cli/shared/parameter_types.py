"""Types of command-line parameters: whole numbers, durations, times and addresses of segments."""

from __future__ import annotations

import datetime
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from bccnd.core.formats.durations_and_sizes import MAX_SECONDS, parse_duration, parse_number, parse_whole
from bccnd.core.formats.network_address import parse_ip
from bccnd.core.formats.quoting import quote
from bccnd.errors import BadAddress

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # not generic before click 8.3
    ParamType = click.ParamType


class Whole(click.IntRange):
    """A whole number in ASCII digits, of at most 63 bits unless there is a limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = parse_whole(value) if isinstance(value, str) else value
        if number is None or (self.max is None and number > sys.maxsize):
            self.fail(f"{quote(value)} is not a whole number{f' from {self.min}' if self.min else ''}", param, ctx)
        return super().convert(number, param, ctx)


class Duration(ParamType):
    """Seconds: a number of them, or one with a unit, as in the configuration."""

    name = "time"

    def __init__(self, least: float = 0.0, most: float = MAX_SECONDS) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        seconds = parse_number(text)
        if seconds is None:
            seconds = parse_duration(text)
        if seconds is None or not self._least <= seconds <= self._most:
            bounds = f" from {self._least:g} to {self._most:g} s" if self._most < MAX_SECONDS else ""
            self.fail(
                f"{quote(value)} is not a duration{bounds}: write 500ms, 30s, 5m or a number of seconds", param, ctx
            )
        return seconds


class Moment(ParamType):
    """Microseconds since 1970, from a day or time in ISO 8601 (UTC unless it has a zone), or from how long ago it was.

    With ``end`` a day stands for its end.
    """

    name = "time"

    def __init__(self, *, end: bool = False) -> None:
        self._end = end

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if (found := self._parse(value)) is None:
            known = "2026-11-21, 2026-11-21T10:30 (UTC), ...+01:00, or 15m for how long ago"
            self.fail(f"{quote(value)} is not a time: write {known}", param, ctx)
        if found < 0:
            self.fail(f"{quote(value)} is before 1970", param, ctx)
        return found

    def _parse(self, value: str) -> int | None:
        if (ago := parse_duration(value)) is not None:
            return round((time.time() - ago) * 1_000_000)
        try:
            at = datetime.datetime.fromisoformat(value)
            at = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
            if self._end and len(value) <= len("2026-11-21"):
                at += datetime.timedelta(days=1)
            return round(at.timestamp() * 1_000_000)
        except (ValueError, OverflowError):
            return None


class SegmentAddress(ParamType):
    """Address and UDP port of a segment, from ``ADDRESS:PORT``, or ``ADDRESS`` with the usual port."""

    name = "address:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\[[^\]]+\]|[^:#]+)(?:[:#]([0-9]{1,5}))?", value)
        try:
            address = str(parse_ip(found[1].strip("[]"))) if found else ""
        except BadAddress:
            address = ""
        if not found or not address or not 0 < int(found[2] or 5400) < 65_536:
            self.fail(f"{quote(value)} is not a segment: write ADDRESS:PORT, like 255.255.255.255:5400", param, ctx)
        return address, int(found[2] or 5400)
