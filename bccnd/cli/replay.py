"""`bccn replay`: what was recorded is said again, to the programs of this host.

Law: onto a segment only for who asks twice, and on a terminal is asked once more. What cannot be said again is counted.
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from bccnd.cli.ingest import RECORDER_EXTRA, need
from bccnd.cli.progress import progress
from bccnd.cli.show import explain, fail, tell, the_bus
from bccnd.client.bus import Connection
from bccnd.errors import BusError, EndpointError, JournalError

if TYPE_CHECKING:
    from bccnd.journal.replay import Counts, RecordedMessage

#: messages between two looks at what the daemon has to say; far fewer than it keeps for us
_TURN: Final = 256
#: seconds to wait for the daemon to have dealt with what was sent, which it may do slowly (bus.user.rate)
_PATIENCE: Final = 60.0


def _speed(_context: click.Context, _param: click.Parameter, value: str) -> float:
    """How many times faster than it was; 0 stands for ``max``."""
    if value == "max":
        return 0.0
    try:
        speed = float(value)
    except ValueError:
        speed = math.nan
    if not 0.001 <= speed <= 1e6:
        raise click.BadParameter(f"{value!r} is neither 'max' nor a number from 0.001 to 1000000")
    return speed


def _time(_context: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """A time, in microseconds since 1970."""
    if value is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time like 2026-11-21T10:00:00 (UTC) or ...+01:00") from None
    known = found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    return round(known.timestamp() * 1_000_000)


@click.command()
@click.argument("journal_or_capture", metavar="JOURNAL_OR_CAPTURE")
@click.option(
    "--speed",
    callback=_speed,
    metavar="SPEED",
    default="1",
    show_default=True,
    help="As it was (1), 10 times faster, or max.",
)
@click.option("--channel", "channels", metavar="PATTERN", multiple=True, help="Only these channels.")
@click.option("--host", metavar="NAME", help="Whose record, where a journal is of several hosts.")
@click.option("--from", "since", callback=_time, metavar="TIME", help="From then on; UTC, where no zone is named.")
@click.option("--to", "until", callback=_time, metavar="TIME", help="Up to then.")
@click.option("--own", is_flag=True, help="Also what programs of the recording host had sent themselves.")
@click.option("--port", type=click.IntRange(1, 65_535), default=5400, show_default=True, help="UDP port in a capture.")
@click.option("--segment", metavar="ADDRESS:PORT", help="Broadcast it there instead; takes --onto-the-network too.")
@click.option("--onto-the-network", "really", is_flag=True, help="Yes, everybody on that segment is to hear it.")
@click.option("--yes", is_flag=True, help="Do not ask once more.")
@click.option("--original-src", is_flag=True, help="--segment: under the names and numbers of who said it.")
@click.option("--name", metavar="SRC", help="--segment: our name; HOST/bccn/PID without it.")
@click.option("--interface", metavar="NAME", help="--segment: on this interface only.")
@click.option("--hop-limit", type=click.IntRange(1, 255), default=1, help="--segment: routers multicast may pass.")
@click.option("--key", "keys", metavar="FILE", multiple=True, help="--segment: a key; the first signs.")
@click.option(
    "--algorithm",
    type=click.Choice(["none", "crc32", "hmac", "sig"]),
    help="--segment: the check of datagrams; hmac where there is a --key, else none.",
)
@click.pass_context
def replay(
    context: click.Context,
    /,
    journal_or_capture: str,
    speed: float,
    channels: Sequence[str],
    host: str | None,
    since: int | None,
    until: int | None,
    own: bool,
    port: int,
    segment: str | None,
    really: bool,
    yes: bool,
    **onto: Any,
) -> None:
    """Say again what a journal or a capture has recorded, to the programs of this host and to nobody else.

    \b
      bccn replay /var/lib/bccnd/journal --from 2026-11-21T10:00 --to 2026-11-21T10:05
      bccn replay eth0.pcap --speed max --channel 'cardsys/>'

    Only what was accepted, and of which the payload was recorded. Programs see the name of this command as the sender.
    With --segment ADDRESS:PORT and --onto-the-network everybody there hears it, and this host's daemon is not needed.
    """
    need(["pyarrow"], RECORDER_EXTRA)
    from bccnd.journal import layout
    from bccnd.journal import replay as play
    from bccnd.journal.captures import CaptureSettings

    _see_whether_meant(context, segment, really)
    if host is not None and not layout.is_host(host):
        raise click.UsageError(f"--host {host}: take letters, digits, '_', '.' and '-', at most 64")
    counts = play.Counts()
    choice = play.Choice(channels, since, until, own)
    captures = CaptureSettings(host or "", port=port)
    say: Callable[[RecordedMessage], None]
    try:
        with progress("replaying") as show:
            messages = play.read_messages(journal_or_capture, choice, counts, captures, show)
            # What is wrong with the journal is said before anything goes out.
            first = next(messages, None)
            if first is None:
                fail(f"nothing to replay in {journal_or_capture}: {_left_out(counts) or 'no message fits'}")
            if segment is not None:
                _ask_once_more(segment, yes)
                with _endpoint(segment, onto) as say:
                    _play(first, messages, say, play.Clock(speed))
            else:
                with the_bus(context.obj) as bus, _locally(bus) as say:
                    _play(first, messages, say, play.Clock(speed))
    except JournalError as error:
        fail(str(error))
    except EndpointError as error:
        fail(error.detail)
    left_out = _left_out(counts)
    click.echo(f"{counts.replayed} messages replayed" + (f"; left out: {left_out}" if left_out else ""))


def _left_out(counts: Counts) -> str:
    found = [
        f"{count} {what}"
        for count, what in (
            (counts.unrecorded, "of which the payload was not recorded"),
            (counts.not_accepted, "that were not accepted"),
        )
        if count
    ]
    return ", ".join(found)


def _see_whether_meant(context: click.Context, segment: str | None, really: bool) -> None:
    """Raises click.UsageError."""
    if (segment is None) != (not really):
        raise click.UsageError("onto a segment only with both, --segment ADDRESS:PORT and --onto-the-network")
    if segment is not None:
        address, _, port = segment.rpartition(":")
        if not address or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise click.UsageError(f"--segment {segment}: write ADDRESS:PORT, like 255.255.255.255:5400")
        return
    default = click.core.ParameterSource.DEFAULT
    for name in ("original_src", "name", "interface", "hop_limit", "keys", "algorithm"):
        if context.get_parameter_source(name) is not default:
            option = next(param.opts[0] for param in context.command.params if param.name == name)
            raise click.UsageError(f"{option} needs --segment")


def _ask_once_more(segment: str, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        click.confirm(f"Everybody on {segment} will hear it. Go on?", abort=True, err=True)


def _play(
    first: RecordedMessage, messages: Iterator[RecordedMessage], say: Callable[[RecordedMessage], None], clock: Any
) -> None:
    message: RecordedMessage | None = first
    while message is not None:
        clock.wait(message.ts)
        say(message)
        message = next(messages, None)


@contextmanager
def _locally(bus: Connection) -> Iterator[Callable[[RecordedMessage], None]]:
    """Publish to the programs of this host; ends the command where that would go further, or is refused."""
    try:
        bus.local(True)
    except BusError as error:
        if error.reason == "unknown_control":
            fail(f"the daemon at {bus.path} would broadcast it\n  remedy: upgrade it, and restart it")
        raise
    bus.echo(False)
    refused = 0
    sent = 0

    def settle() -> None:
        nonlocal refused
        for refusal in bus.sync(_PATIENCE):
            if not refused:
                tell(explain(refusal))
            refused += 1
        # What is for everybody comes to us too.
        while bus.receive(0) is not None:
            pass

    def say(message: RecordedMessage) -> None:
        nonlocal sent
        bus.publish(message.chan, message.payload)
        sent += 1
        if sent % _TURN == 0:
            settle()

    yield say
    settle()
    if refused:
        fail(f"{refused} of {sent} messages were refused")


@contextmanager
def _endpoint(segment: str, onto: dict[str, Any]) -> Iterator[Callable[[RecordedMessage], None]]:
    """Broadcast on a segment."""
    from bccnd.cli.direct import open_endpoint

    address, _, port = segment.rpartition(":")
    original = onto.pop("original_src")
    where = address.removeprefix("[").removesuffix("]")
    with open_endpoint(address=where, port=int(port), signers=(), **onto) as endpoint:

        def say(message: RecordedMessage) -> None:
            if original:
                endpoint.seq = message.seq
                endpoint.send(message.src, message.chan, message.payload)
            else:
                endpoint.send(message.chan, message.payload)

        yield say
