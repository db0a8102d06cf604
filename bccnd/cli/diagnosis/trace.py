"""`bccn trace`: explains the verdict that a datagram would get."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import click

from bccnd.cli.diagnosis.tap import KIND_OF, refuse_to_tap
from bccnd.cli.shared.connection import open_bus
from bccnd.cli.shared.options import json_option
from bccnd.cli.shared.output import fail, print_table, to_json, visible
from bccnd.core.wire import bccn1, frames
from bccnd.errors import BadDatagram, BusError


def read_hex(text: bytes) -> bytes:
    """Bytes from hexadecimal digits, with blanks and colons anywhere. Raises ValueError."""
    return bytes.fromhex(re.sub(rb"[\s:]", b"", text).decode("ascii"))


def without_newline(data: bytes) -> bytes:
    """Remove the newline that an editor or echo has appended: the length in the envelope shows whether it belongs to
    the datagram."""
    if not data.endswith(b"\n"):
        return data
    try:
        bccn1.split_envelope(data[:-1])
    except BadDatagram:
        return data
    return data[:-1]


@click.command()
@click.argument("datagram", required=False)
@click.option("--hex", "as_hex", is_flag=True, help="The datagram is hexadecimal; blanks and colons are ignored.")
@json_option("Print the answer as a JSON object.")
@click.pass_obj
def trace(path: str | None, /, datagram: str | None, as_hex: bool, as_json: bool) -> None:
    """Explain how the daemon would treat DATAGRAM if it arrived now: each stage, the verdict and the receivers.

    \b
      bccn trace 'BCCN1[32]relay02/sensor/77:1:demo/t1|21.5'
      bccn trace --hex 4243434e315b...
      bccn trace < datagram.bin

    Without DATAGRAM, the command reads it from standard input, and removes a newline at its end if the length in the
    envelope excludes it. Nothing is counted, remembered or delivered. The exit code is 0 if the daemon answers, also if
    it would drop the datagram. This requires the right to tap. 'bccn tap --explain' explains datagrams that do arrive.
    """
    given = sys.stdin.buffer.read(4 * bccn1.MAX_UDP) if datagram is None else os.fsencode(datagram)
    if as_hex:
        try:
            given = read_hex(given)
        except ValueError:
            raise click.UsageError("not hexadecimal: write two digits for each byte") from None
    elif datagram is None:
        given = without_newline(given)
    if len(given) > bccn1.MAX_UDP:
        fail(f"more than {bccn1.MAX_UDP} bytes cannot be a datagram")
    with open_bus(path) as bus:
        try:
            answer = json.loads(bus.ask(frames.TRACE, given))
        except BusError as error:
            if error.reason == "not_permitted":
                refuse_to_tap("you may not trace: a trace shows the subscriptions of programs")
            raise
    if as_json:
        click.echo(to_json(answer))
    else:
        _print(answer)


def _print(answer: dict[str, Any]) -> None:
    rows = [[stage["stage"], "yes" if stage["passed"] else "no", str(stage["finding"])] for stage in answer["stages"]]
    print_table(["stage", "passed", "found"], rows)
    verdict = str(answer["verdict"])
    delivered = KIND_OF.get(verdict) == "delivered"
    click.echo(f"\nverdict: {visible(verdict)}, it would {'' if delivered else 'not '}be delivered")
    for name in answer["receivers"]:
        click.echo(f"receiver: {visible(str(name))}")
    if answer["more_receivers"]:
        click.echo(f"and {answer['more_receivers']} more")
    if delivered and not answer["receivers"]:
        click.echo("receivers: none")
