"""`bccn direct`: publishes and subscribes straight on a segment, on hosts without a daemon."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from bccnd.cli.messages.pub import PublishCommand, payload_options, read_payload, say_that_it_reads
from bccnd.cli.messages.sub import message_options, print_messages
from bccnd.cli.shared.connection import matcher, receive_until
from bccnd.cli.shared.lazy_group import Entry, LazyGroup
from bccnd.cli.shared.options import compose, deadline_after, key_options, read_keys
from bccnd.cli.shared.output import fail
from bccnd.cli.shared.parameter_types import SegmentAddress, Whole
from bccnd.client.message import Message, to_bytes
from bccnd.core.wire import bccn1
from bccnd.errors import EndpointError

if TYPE_CHECKING:
    from bccnd.endpoint.endpoint import Endpoint

#: the options of an endpoint on a segment
endpoint_options: Final = compose(
    click.option("--name", metavar="SRC", help="The source to publish as; by default HOST/bccn/PID."),
    click.option("--interface", metavar="NAME", help="Use only this interface."),
    click.option("--hop-limit", type=Whole(1, 255), default=1, help="The number of routers that multicast may pass."),
    key_options,
)
_segment_option: Final = click.option(
    "--segment", type=SegmentAddress(), default="255.255.255.255:5400", help="Broadcast address or group, and UDP port."
)


def open_endpoint(
    segment: tuple[str, int],
    *,
    name: str | None,
    keys: Sequence[str],
    signers: Sequence[str],
    algorithm: str | None,
    **options: Any,
) -> Endpoint:
    """Open an endpoint on a segment. Raises click.UsageError for wrong options; a segment that cannot be reached ends
    the command."""
    from bccnd.core.wire.identity_format import identity
    from bccnd.endpoint.endpoint import Endpoint

    usual = identity(os.fsencode(socket.gethostname()), b"bccn", os.getpid()).decode("ascii")
    try:
        endpoint = Endpoint(
            usual if name is None else name,
            address=segment[0],
            port=segment[1],
            largest=bccn1.MAX_UDP,
            **options,
            **read_keys(keys, signers, algorithm),
        )
    except EndpointError as wrong:
        raise click.UsageError(wrong.detail) from wrong
    try:
        endpoint.open()
    except EndpointError as error:
        fail(error.detail)
    return endpoint


@click.group(
    cls=LazyGroup,
    entries={
        "pub": Entry("messages.direct:pub", "Publish on a segment", socket=False),
        "sub": Entry("messages.direct:sub", "Print the messages of a segment", socket=False),
    },
)
def direct() -> None:
    """Publish and subscribe directly on a segment, without a daemon."""


@click.command(cls=PublishCommand)
@payload_options
@_segment_option
@endpoint_options
def pub(
    channel: str, segment: tuple[str, int], payload: str | None, file: Any, whole: bool, repeat: int | None,
    interval: float | None, **options: Any,
) -> None:  # fmt: skip
    """Publish PAYLOAD on CHANNEL of a segment. Without PAYLOAD, publish each line of standard input.

    \b
      bccn direct pub --interface eth0 --key /etc/bccnd/keys/hmac.key demo/hello 'without a daemon'
    """
    payloads = read_payload(payload, file, whole, repeat, interval)
    if payloads is None:
        say_that_it_reads()
        payloads = (line.rstrip(b"\n") for line in sys.stdin.buffer)
    with open_endpoint(segment, **options) as endpoint:
        for one in payloads:
            try:
                endpoint.send(channel, one)
            except EndpointError as error:
                fail(error.detail)


@click.command()
@message_options
@_segment_option
@endpoint_options
def sub(
    patterns: Sequence[str], segment: tuple[str, int], timeout: float | None, as_json: bool, raw: bool,
    template: str | None, count: int | None, **options: Any,
) -> None:  # fmt: skip
    """Print the messages of a segment whose channel matches a PATTERN, or that address this program or all programs.

    \b
      bccn direct sub --interface eth0 --key /etc/bccnd/keys/hmac.key 'demo/'

    Patterns and output are like those of 'bccn sub'. A message that arrives several times is printed once.
    """
    patterns, deadline = patterns or ("",), deadline_after(timeout)

    def receive() -> Iterator[Message]:
        with open_endpoint(segment, dedup=True, **options) as endpoint:
            for message in select_messages(endpoint, patterns, deadline):
                yield message
                sys.stdout.flush()

    print_messages(receive(), patterns, as_json=as_json, raw=raw, template=template, count=count)


def select_messages(endpoint: Endpoint, patterns: Sequence[str], deadline: float | None) -> Iterator[Message]:
    """Yield messages whose channel matches a pattern, to this program or to all, until ``deadline`` (monotonic)."""
    matches = matcher(patterns)
    for message in receive_until(deadline, endpoint.recv):
        if message.form != "plain" or matches(to_bytes(message.chan)):
            yield message
