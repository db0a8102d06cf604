"""`bccn replay`: publishes recorded messages again, to the programs of this host.

They are broadcast on a segment only with two options, and on a terminal only after a question.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from bccnd.cli.journals.pipeline_ingest import RECORDER_EXTRA, check_host, count_left_out, require
from bccnd.cli.messages.direct import endpoint_options, open_endpoint
from bccnd.cli.messages.publish_lines import publish_all
from bccnd.cli.shared.connection import open_bus
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.options import given_options, period_options, port_option
from bccnd.cli.shared.output import REFUSED, fail
from bccnd.cli.shared.parameter_types import SegmentAddress
from bccnd.cli.shared.progress import show_progress
from bccnd.core.formats.durations_and_sizes import parse_number
from bccnd.core.formats.quoting import quote
from bccnd.errors import BusError, EndpointError, JournalError

if TYPE_CHECKING:
    from bccnd.journal.replay import Clock, Counts, RecordedMessage


def _read_speed(_context: click.Context, _param: click.Parameter, value: str) -> float:
    """Return how many times faster than it was recorded; 0 for ``max``."""
    if value == "max":
        return 0.0
    speed = parse_number(value)
    if speed is None or not 0.001 <= speed <= 1e6:
        raise click.BadParameter(f"{quote(value)} is neither 'max' nor a number from 0.001 to 1000000")
    return speed


@click.command()
@click.argument("journal_or_capture", metavar="JOURNAL_OR_CAPTURE", shell_complete=complete_files)
@click.option("--speed", callback=_read_speed, metavar="SPEED", default="1", help="1 (original), a multiple, or max.")
@click.option("--channel", "channels", metavar="PATTERN", multiple=True, help="Only these channels.")
@click.option("--host", metavar="NAME", help="The recording host, if the journal has several.")
@period_options
@click.option("--own", is_flag=True, help="Include messages from programs of the recording host.")
@port_option
@click.option("--segment", type=SegmentAddress(), help="Broadcast there instead; also needs --onto-the-network.")
@click.option("--onto-the-network", "really", is_flag=True, help="Confirm that all hosts of that segment receive it.")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@click.option("--original-src", is_flag=True, help="With --segment: keep the recorded sources and numbers.")
@endpoint_options
@click.pass_context
def replay(
    context: click.Context, /, journal_or_capture: str, speed: float, channels: Sequence[str], host: str | None,
    since: int | None, until: int | None, own: bool, port: int, segment: tuple[str, int] | None, really: bool,
    yes: bool, **endpoint: Any,
) -> None:  # fmt: skip
    """Publish the messages of a journal or a capture again, to the programs of this host only.

    \b
      bccn replay /var/lib/bccnd/journal --since 2026-11-21T10:00 --until 2026-11-21T10:05
      bccn replay eth0.pcap --speed max --channel 'cardsys/>'

    A capture may be a stream: - is the standard input. The command publishes accepted messages whose payload was
    recorded, without the reports of daemons. Programs see this command as the sender. With --segment ADDRESS:PORT and
    --onto-the-network it broadcasts the messages there, without the daemon of this host; the options from --name to
    --algorithm are for that.
    """
    require(["pyarrow"], RECORDER_EXTRA)
    from bccnd.journal import replay as player
    from bccnd.journal.capture_import import CaptureSettings

    if (segment is None) != (not really):
        raise click.UsageError("a replay on a segment needs both --segment ADDRESS:PORT and --onto-the-network")
    if segment is None and (given := given_options(context, *endpoint)):
        raise click.UsageError(f"{given[0]} needs --segment")
    check_host(host)
    counts = player.Counts()
    choice = player.Choice(channels, since, until, own)
    try:
        with show_progress("replaying") as show:
            captures = CaptureSettings(host or "", port=port)
            messages = player.read_messages(journal_or_capture, choice, counts, captures, show)
            # An unreadable journal is reported before anything is sent.
            message = next(messages, None)
            if message is None:
                fail(f"nothing to replay in {journal_or_capture}: no message matches{_left_out(counts)}")
            if segment is not None and not yes and sys.stdin.isatty():
                where = "{}:{}".format(*segment)
                _confirm(f"All hosts on {where} will receive it. Continue?")
            paced = _pace(chain([message], messages), player.Clock(speed))
            if segment is None:
                _publish_here(context.obj, paced)
            else:
                _broadcast(segment, paced, **endpoint)
    except JournalError as error:
        fail(str(error))
    except EndpointError as error:
        fail(error.detail)
    click.echo(f"{counts.replayed} messages replayed{_left_out(counts)}")


def _confirm(question: str) -> None:
    """End the command unless the answer is yes. click.confirm reads with the C library, which does not wait if the
    terminal is non-blocking."""
    click.echo(f"{question} [y/N]: ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise click.Abort


def _left_out(counts: Counts) -> str:
    return count_left_out(
        (counts.unrecorded, "whose payload was not recorded"),
        (counts.not_accepted, "that were not accepted"),
        (counts.reports, "that are reports of daemons"),
    )


def _pace(messages: Iterable[RecordedMessage], clock: Clock) -> Iterator[RecordedMessage]:
    for message in messages:
        clock.wait(message.ts)
        yield message


def _publish_here(path: str | None, messages: Iterable[RecordedMessage]) -> None:
    """Publish to the programs of this host; ends the command if that would go further, or is refused."""
    with open_bus(path) as bus:
        try:
            bus.local(True)
        except BusError as error:
            if error.reason == "unknown_control":
                fail(f"the daemon at {bus.path} would broadcast it\n  remedy: upgrade it, and restart it")
            raise
        bus.echo(False)
        if refused := publish_all(bus, ((message.chan, message.payload) for message in messages)):
            fail(f"{refused} messages were refused", REFUSED)


def _broadcast(
    segment: tuple[str, int], messages: Iterable[RecordedMessage], *, original_src: bool, **options: Any
) -> None:
    with open_endpoint(segment, **options) as endpoint:
        for message in messages:
            if original_src:
                endpoint.seq = message.seq
                endpoint.send(message.src, message.chan, message.payload)
            else:
                endpoint.send(message.chan, message.payload)
