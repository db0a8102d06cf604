"""What the commands print: text from elsewhere made safe for a terminal, tables, JSON, lines.

Invariant: what came from the network reaches a terminal only through `visible`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NoReturn, TypeVar

import click

T = TypeVar("T")

#: exit codes: something has failed; the daemon has refused something; it cannot be reached, or has gone; it has not
#: answered, or too few have come, in time
FAILED: Final = 1
REFUSED: Final = 3
NO_DAEMON: Final = 4
TIMED_OUT: Final = 5

#: the largest number that every reader of JSON keeps exactly
_EXACT: Final = 2**53
#: where the context of a command notes that larger ones are written as text
SAFE_NUMBERS: Final = "bccnd.safe_numbers"


def print_notice(message: str) -> None:
    """Write a message to standard error, after the data that was printed before."""
    sys.stdout.flush()
    click.echo(f"bccn: {message}", err=True)


def fail(message: str, status: int = FAILED) -> NoReturn:
    """Report why the command failed, and exit."""
    print_notice(message)
    sys.exit(status)


def visible(text: str) -> str:
    """Escape all control characters of a text."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def visible_bytes(data: bytes) -> str:
    return visible(data.decode("utf-8", "backslashreplace"))


def cell_width(text: str) -> int:
    """Return the columns that visible text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def cut(text: str, width: int) -> str:
    """Cut visible text to ``width`` columns."""
    if text.isascii():
        return text[: max(0, width)]
    taken = 0
    for number, char in enumerate(text):
        taken += _char_width(char)
        if taken > width:
            return text[:number]
    return text


def _char_width(char: str) -> int:
    return 0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")


def clock(nanoseconds: int) -> str:
    """Format the local time of day, to the millisecond."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1_000_000:03d}"


def timestamp(nanoseconds: int) -> str:
    """Format a time in UTC, as ``--since`` takes it."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"


def payload_fields(payload: bytes) -> dict[str, str]:
    """Return a payload for JSON: ``payload`` if it is UTF-8 text, else ``payload_base64``."""
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode("ascii")}


def text_fields(name: str, text: str) -> dict[str, str]:
    """Return a text for JSON under a name: as it is, or where its bytes were no UTF-8 those, as ``<name>_base64``."""
    if text.isascii():
        return {name: text}
    data = text.encode("utf-8", "surrogateescape")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
    return {name: text}


def to_json(value: object) -> str:
    """Format a value for ``--json``; with ``--safe-numbers`` large numbers as text."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(SAFE_NUMBERS):
        value = _with_safe_numbers(value)
    return json.dumps(value)


def _with_safe_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_safe_numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_safe_numbers(one) for one in value]
    return str(value) if isinstance(value, int) and not -_EXACT <= value <= _EXACT else value


def wants_colour(choice: str) -> bool:
    """Return whether to use colours for ``--color``: with ``auto`` on a terminal, unless $NO_COLOR is set."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_json(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(to_json(row))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: on a terminal folded to its width, elsewhere one row a line, however long."""
    if not sys.stdout.isatty():
        _print_plain_table([titles, *rows])
        return
    # Rich takes longer to load than most commands take to run.
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(visible(cell) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False)
    with console.capture() as text:
        console.print(table)
    click.echo(text.get(), nl=False)


def _print_plain_table(rows: Sequence[Sequence[str]]) -> None:
    lines = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(cell_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell + " " * (width - cell_width(cell)) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def print_items(items: Iterable[T], write: Callable[[T], object], count: int | None) -> NoReturn:
    """Write items, at most ``count``, until they end or Ctrl-C; exit with 5 if there were fewer than ``count`` in time,
    with 1 if Ctrl-C has ended it before."""
    number, too_few = 0, FAILED
    with suppress(KeyboardInterrupt):
        for item in islice(items, count):
            write(item)
            number += 1
        too_few = TIMED_OUT
    sys.exit(too_few if count is not None and number < count else 0)
