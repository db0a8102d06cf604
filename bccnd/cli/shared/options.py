"""Options and parameter types that the commands share: times, durations, segments, keys."""

from __future__ import annotations

import datetime
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from bccnd.cli.shared.completion import complete_signers
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.output import SAFE_NUMBERS
from bccnd.core.formats.network_address import parse_ip
from bccnd.core.formats.quoting import quote
from bccnd.core.formats.units import MAX_SECONDS, parse_duration, parse_number, parse_whole
from bccnd.errors import BadAddress

F = TypeVar("F", bound=Callable[..., Any])
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


def compose(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Join several options to one decorator, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _note_safe_numbers(context: click.Context, _param: click.Parameter, value: bool) -> None:
    context.meta[SAFE_NUMBERS] = value


def json_option(text: str = "Print one JSON object per line.") -> Callable[[F], F]:
    """Return the option to print JSON, with this help, and the option that keeps its numbers exact."""
    return compose(
        click.option("--json", "as_json", is_flag=True, help=text),
        click.option(
            "--safe-numbers",
            is_flag=True,
            expose_value=False,
            callback=_note_safe_numbers,
            help="With --json: write numbers beyond 2^53 as text.",
        ),
    )


color_option = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True
)
port_option = click.option("--port", type=Whole(1, 65_535), default=5400, help="UDP port.")
period_options = compose(
    click.option(
        "--since", "--from", metavar="TIME", type=Moment(), help="Start of the period: a UTC time, or 15m ago."
    ),
    click.option(
        "--until", "--to", metavar="TIME", type=Moment(end=True), help="End of the period; a day includes its end."
    ),
)


def count_options(what: str) -> Callable[[F], F]:
    """Return the options that limit a command that otherwise never ends."""
    return compose(
        click.option("-n", "--count", type=Whole(min=1), help=f"End after so many {what}."),
        click.option(
            "-t", "--timeout", metavar="TIME", type=Duration(), help="End after this time; exit 5 if -n is unmet."
        ),
    )


def deadline_after(timeout: float | None) -> float | None:
    """Return when ``timeout`` seconds are over (monotonic)."""
    return None if timeout is None else time.monotonic() + timeout


key_options = compose(
    click.option(
        "--key",
        "keys",
        metavar="FILE",
        multiple=True,
        shell_complete=complete_files,
        help="A file with a key. The first key signs, all verify.",
    ),
    click.option(
        "--signer",
        "signers",
        metavar="SRC=FILE",
        multiple=True,
        shell_complete=complete_signers,
        help="A file with the public key of sources below SRC.",
    ),
    click.option(
        "--algorithm",
        type=click.Choice(["none", "crc32", "hmac", "sig"]),
        help="The check of datagrams; by default, the keys decide.",
    ),
)


def read_keys(keys: Sequence[str], signers: Sequence[str], algorithm: str | None) -> dict[str, Any]:
    """Read ``algorithm``, ``keys`` and ``signers`` as an Endpoint takes them. Raises click.UsageError."""
    from bccnd.core.trust.integrity import usual_algorithm
    from bccnd.core.wire.bccn1 import check_src
    from bccnd.errors import BadDatagram, BadKey
    from bccnd.key_files import read_key, read_public_key

    chosen = algorithm or usual_algorithm(keys, signers)
    public: dict[str, list[bytes]] = {}
    try:
        secrets = [read_key(file, algorithm=chosen) for file in keys]
        for signer in signers:
            prefix, _, file = signer.rpartition("=")
            if prefix:
                check_src(prefix.encode("utf-8", "surrogateescape"))
            public.setdefault(prefix, []).append(read_public_key(file))
    except BadKey as bad:
        raise click.UsageError(str(bad)) from bad
    except BadDatagram:
        raise click.UsageError(f"--signer {signer}: {prefix!r} cannot be the beginning of a src") from None
    return {"algorithm": chosen, "keys": secrets, "signers": public}


def given_options(context: click.Context, *names: str) -> list[str]:
    """Return the spellings of those of the named parameters that were given."""
    return [
        param.opts[0]
        for param in context.command.params
        if param.name in names and context.get_parameter_source(param.name) is not ParameterSource.DEFAULT
    ]
