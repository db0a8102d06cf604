"""`bccn sub`: prints messages, as lines, JSON, in a format of the user's, or raw."""

from __future__ import annotations

import string
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import click

from bccnd.cli.messages.pub import tag_option
from bccnd.cli.shared.connection import matcher, open_bus, receive_messages, set_tag
from bccnd.cli.shared.options import compose, count_options, deadline_after, json_option
from bccnd.cli.shared.output import payload_fields, print_items, text_fields, timestamp, to_json, visible, visible_bytes
from bccnd.client.message import Message, to_bytes

_FIELDS: Final = ("time", "src", "seq", "chan", "payload")
_FORMAT_HELP: Final = "Print TEXT with {time}, {src}, {seq}, {chan}, {payload}, \\t and \\n replaced."


def _read_format(_context: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        parts = list(string.Formatter().parse(value))
    except ValueError:
        parts = [("", "", "", None)]
    wrong = [name for _, name, spec, conversion in parts if name is not None and (name not in _FIELDS or spec)]
    if wrong or any(conversion for *_, conversion in parts):
        raise click.BadParameter(f"{value!r}: take text with {', '.join(f'{{{name}}}' for name in _FIELDS)}")
    return value.replace("\\t", "\t").replace("\\n", "\n")


#: what `bccn sub` and `bccn direct sub` have in common
message_options: Final = compose(
    click.argument("patterns", metavar="[PATTERN]...", nargs=-1),
    json_option(),
    click.option("--raw", is_flag=True, help="Write only the payloads, byte for byte, without separators."),
    click.option("--format", "template", metavar="TEXT", callback=_read_format, help=_FORMAT_HELP),
    count_options("messages that match"),
)


def print_messages(
    messages: Iterable[Message], patterns: Sequence[str], *, as_json: bool, raw: bool, template: str | None,
    count: int | None,
) -> None:  # fmt: skip
    """Print messages, and exit as `print_items`. With ``count``, only those that the patterns ask for are printed.
    Raises click.UsageError."""
    if as_json + raw + (template is not None) > 1:
        raise click.UsageError("use only one of --json, --raw and --format")
    if raw and sys.stdout.isatty():
        raise click.UsageError("--raw is not for a terminal: send it to a file or a pipe")
    if count is not None:
        messages = filter(asked_for(patterns), messages)
    if raw:
        print_items(messages, lambda message: sys.stdout.buffer.write(message.payload), count)
    render = _as_json if as_json else _as_line if template is None else _renderer(template)
    print_items(messages, lambda message: sys.stdout.write(render(message) + "\n"), count)


def asked_for(patterns: Sequence[str]) -> Callable[[Message], bool]:
    """Return a test whether the patterns ask for a message; those to every program or to this one come anyway."""
    if not all(patterns):  # everything
        return lambda _message: True
    matches = matcher([pattern for pattern in patterns if pattern.startswith("!")])
    return lambda message: message.form == "plain" or matches(to_bytes(message.chan))


def _as_line(message: Message) -> str:
    return f"{visible(message.chan)} {visible_bytes(message.payload)}"


def _as_json(message: Message) -> str:
    return to_json(message_fields(message))


def message_fields(message: Message) -> dict[str, object]:
    """Return a message for JSON."""
    return {
        **text_fields("src", message.src),
        "seq": message.seq,
        **text_fields("chan", message.chan),
        "form": message.form,
        "peer": message.peer,
        "received_ns": message.received_ns,
        "time": timestamp(message.received_ns),
        **payload_fields(message.payload),
    }


def _renderer(template: str) -> Callable[[Message], str]:
    return lambda message: template.format(
        time=timestamp(message.received_ns),
        src=visible(message.src),
        seq=message.seq,
        chan=visible(message.chan),
        payload=visible_bytes(message.payload),
    )


@click.command()
@message_options
@click.option("-q", "--quiet", is_flag=True, help="Do not report losses and restarts of the daemon.")
@tag_option
@click.pass_obj
def sub(
    path: str | None, /, patterns: Sequence[str], timeout: float | None, quiet: bool, tag: str | None, **output: Any
) -> None:
    """Print the messages whose channel matches a PATTERN (all of them without one).

    \b
      cardsys/relay/tx        this channel
      cardsys/*/tx            one token at the place of *
      cardsys/  cardsys/>     everything below

    \b
      bccn sub 'cardsys/' 'logs/*'
      bccn sub --format '{time} {src} {payload}' demo/
      bccn sub --raw -n 1 config/relay02 > relay02.json
      bccn sub --json -n 1 -t 10s demo/hello || echo 'nothing within 10 s'

    Prints the channel and the payload of each message on a line. Messages to every program (!) and to this one are
    printed, too. With -n they are neither printed nor counted, unless no PATTERN is given or a PATTERN that begins with
    '!' matches them. {time} is the time of arrival, in UTC.

    With --json, a payload or channel that is not UTF-8 text is in payload_base64 or chan_base64. received_ns, and seq
    of some senders, exceed the numbers that JavaScript represents exactly: --safe-numbers writes them as text.

    After a restart of the daemon, the command reconnects. It reports restarts and lost messages on standard error.
    """
    patterns, deadline = patterns or ("",), deadline_after(timeout)

    def receive() -> Iterator[Message]:
        with open_bus(path, reconnect=True) as bus:
            set_tag(bus, tag)
            bus.subscribe(*patterns)
            yield from receive_messages(bus, deadline, quiet=quiet)

    print_messages(receive(), patterns, **output)
