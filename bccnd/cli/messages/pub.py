"""`bccn pub`: publishes a message, a file, or lines of standard input."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final, TypeVar

import click

from bccnd.cli.shared.connection import open_bus, set_tag
from bccnd.cli.shared.options import compose
from bccnd.cli.shared.output import REFUSED, print_notice
from bccnd.cli.shared.parameter_types import Duration, Whole
from bccnd.core.wire.frames import MAX_PACKET

F = TypeVar("F", bound=Callable[..., Any])

_NEGATIVE: Final = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)

#: seconds between two repeats: a year
_LONGEST: Final = 366 * 86_400
#: what `bccn pub` and `bccn direct pub` have in common
payload_options: Final = compose(
    click.argument("channel"),
    click.argument("payload", required=False),
    click.option("-f", "--file", type=click.File("rb"), help="Publish the content of this file as one message."),
    click.option("-s", "--stdin", "whole", is_flag=True, help="Publish all of standard input as one message."),
    click.option("--repeat", metavar="N", type=Whole(min=1), help="Publish the message N times."),
    click.option(
        "--interval", metavar="TIME", type=Duration(most=_LONGEST), help="Time between two repeats, like 500ms."
    ),
)
tag_option: Final = click.option("--tag", metavar="TEXT", help="Use the identity <host>/bccn/<pid>/TEXT.")


def read_payload(
    payload: str | None, file: BinaryIO | None, whole: bool, repeat: int | None, interval: float | None
) -> Iterable[bytes] | None:
    """Return the payloads to publish; None for the lines of standard input. Raises click.UsageError."""
    if (payload is not None) + (file is not None) + whole > 1:
        raise click.UsageError("give the message only once: PAYLOAD, -f FILE or -s")
    if payload is None and file is None and not whole:
        if repeat is not None or interval is not None:
            raise click.UsageError("--repeat and --interval need a message: PAYLOAD, -f FILE or -s")
        return None
    if interval is not None and repeat is None:
        raise click.UsageError("--interval needs --repeat")
    content = os.fsencode(payload) if payload is not None else (file or sys.stdin.buffer).read(MAX_PACKET + 1)

    def repeated() -> Iterator[bytes]:
        for number in range(repeat or 1):
            if number:
                time.sleep(interval or 0.0)
            yield content

    return repeated()


class PublishCommand(click.Command):
    """A command whose payload may be a negative number, though it looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(_NEGATIVE.fullmatch(one) for one in args):
            ctx.ignore_unknown_options = True  # one of these then becomes an argument
        return super().parse_args(ctx, args)


def say_that_it_reads() -> None:
    """Where nothing was given on the command line, and standard input is a terminal, nothing would seem to happen."""
    if sys.stdin.isatty():
        print_notice("reading from the terminal: each line is a message; Ctrl-D ends")


@click.command(cls=PublishCommand)
@payload_options
@tag_option
@click.pass_obj
def pub(path: str | None, /, channel: str, tag: str | None, **message: Any) -> None:
    """Publish PAYLOAD on CHANNEL. Without PAYLOAD, publish each line of standard input as soon as it arrives.

    CHANNEL is a name like cardsys/relay/tx; '!' addresses all programs; '!host/program/*' and '!host/program/pid'
    address some of them.

    \b
      bccn pub demo/hello 'hello, world'
      bccn pub demo/temperature -21.5
      bccn pub config/relay02 -f relay02.json
      date | bccn pub -s clock/now
      bccn pub demo/tick x --repeat 10 --interval 500ms
      tail -F app.log | bccn pub logs/app

    Write '--' before a PAYLOAD that begins with '-', unless it is a negative number. While the daemon restarts, bccn
    waits for it, up to 5 s. The exit code is 3 if anything was refused, and 4 if it is unknown whether the daemon
    received everything.
    """
    payloads = read_payload(**message)
    from bccnd.cli.messages.publish_lines import publish_all, publish_lines

    with open_bus(path, reconnect=True) as bus:
        set_tag(bus, tag)
        if payloads is None:
            say_that_it_reads()
            refused = publish_lines(bus, channel, sys.stdin.fileno())
        else:
            refused = publish_all(bus, ((channel, one) for one in payloads))
    sys.exit(REFUSED if refused else 0)
