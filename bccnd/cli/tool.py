"""`bccn`: the tool for people.

Law: data goes to standard output, one record a line, and everything else to standard error; exit 0 when done, 1
when it failed, 2 for bad usage. What came from the network is never sent raw to a terminal.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bccnd.cli.direct import direct_options, messages, open_endpoint, refuse_without_direct, until
from bccnd.client.bus import Connection, Event, Gap, Refusal, connect
from bccnd.client.message import Message
from bccnd.core import frames
from bccnd.errors import BusError, EndpointError

if TYPE_CHECKING:
    from bccnd.client.endpoint import Endpoint

#: what a refusal means, and what helps
_REFUSALS = {
    "bad_channel": "is no legal channel (1 to 1024 graphic ASCII characters without : and |); only programs of this "
    "host have got it",
    "bad_target": "is no legal target (it begins with ? or /); nobody has got it",
    "too_long": "does not fit in a datagram of 1400 bytes; only programs of this host have got it",
    "send_failed": "could not be broadcast; only programs of this host have got it (see the daemon's log)",
    "not_perl_safe": "holds characters that readers of the Perl module discard (names: perl-safe); only programs of "
    "this host have got it",
    "no_signing_key": "cannot be signed, because this host has no private key (integrity.keys); only programs of this "
    "host have got it",
    "reserved_key": "is reserved for the daemon",
    "not_permitted": "is not permitted to you",
    "pattern_too_long": "is too long for a pattern",
    "too_many_subscriptions": "is one pattern too many (bus.max_subscriptions)",
    "frame_too_long": "is too long for the bus",
    "too_many_clients": "the daemon serves as many clients as it may (bus.max_clients)",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--socket",
    "path",
    metavar="PATH",
    envvar="BCCN_SOCKET",
    default=frames.DEFAULT_SOCKET,
    show_default=True,
    help="The daemon's socket; also taken from $BCCN_SOCKET.",
)
@click.version_option(package_name="bccnd", message="bccn %(version)s")
@click.pass_context
def main(context: click.Context, path: str) -> None:
    """Talk to the bccnd of this host: publish, subscribe, look at clients and sources, make keys."""
    context.obj = path
    # End quietly when the reader of a pipe goes away.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _connect(path: str) -> Connection:
    try:
        return connect(path)
    except BusError as error:
        _fail(f"{error.detail}\n  remedy: start it (systemctl start bccnd), or name its socket with --socket")


def _fail(message: str) -> NoReturn:
    click.echo(f"bccn: {message}", err=True)
    sys.exit(1)


def _explain(refusal: Refusal) -> str:
    meaning = _REFUSALS.get(refusal.reason, f"was refused: {refusal.reason}")
    return f"{_visible(refusal.key)!r} {meaning}"


def _visible(text: str) -> str:
    """Text from elsewhere with every control character shown as an escape: no terminal takes orders from it."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


@main.command()
@click.argument("channel")
@click.argument("payload", required=False)
@direct_options
@click.pass_context
def pub(context: click.Context, /, channel: str, payload: str | None, direct: bool, **options: Any) -> None:
    """Publish PAYLOAD on CHANNEL; without PAYLOAD, each line of standard input.

    CHANNEL is a name like cardsys/relay/tx; '!' reaches everyone, '!host/program/*' or '!host/program/pid' whom it
    names.

    \b
      bccn pub demo/hello 'hello, world'
      tail -F app.log | bccn pub logs/app
      bccn pub --direct --interface eth0 --key /etc/bccnd/hmac.key demo/hello 'without a daemon'
    """
    lines = (line.rstrip(b"\n") for line in sys.stdin.buffer) if payload is None else [os.fsencode(payload)]
    if direct:
        with _direct(options) as endpoint:
            for line in lines:
                try:
                    endpoint.send(channel, line)
                except EndpointError as error:
                    _fail(error.detail)
        return
    refuse_without_direct(context)
    with _connect(context.obj) as bus:
        try:
            for line in lines:
                bus.publish(channel, line)
            refusals = bus.sync()
        except BusError as error:
            _fail(error.detail)
    for refusal in refusals[:10]:
        click.echo(f"bccn: {_explain(refusal)}", err=True)
    if len(refusals) > 10:
        click.echo(f"bccn: and {len(refusals) - 10} more like these", err=True)
    sys.exit(1 if refusals else 0)


@main.command()
@click.argument("patterns", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with sender, seq, peer and time.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("-t", "--timeout", type=click.FloatRange(min=0), help="End after so many seconds; exit 1 if -n is unmet.")
@direct_options
@click.pass_context
def sub(
    context: click.Context,
    /,
    patterns: Sequence[str],
    as_json: bool,
    count: int | None,
    timeout: float | None,
    direct: bool,
    **options: Any,
) -> None:
    """Print the messages whose channel matches a PATTERN (all of them without one).

    \b
      cardsys/relay/tx        this channel
      cardsys/*/tx            one token at the place of *
      cardsys/  cardsys/>     everything below

    Prints channel and payload, a message a line. With --json a payload that is no UTF-8 text stands in
    payload_base64. With --direct, copies of one message are printed once.
    """
    if not direct:
        refuse_without_direct(context)
    deadline = None if timeout is None else time.monotonic() + timeout
    found = _heard_directly if direct else _heard_on_the_bus
    printed = 0
    try:
        for message in found(context.obj, patterns or ("",), deadline, options):
            click.echo(_as_json(message) if as_json else _as_line(message))
            printed += 1
            if printed == count:
                break
    except BusError as error:
        _fail(error.detail)
    except KeyboardInterrupt:
        pass
    sys.exit(1 if count is not None and printed < count else 0)


def _heard_on_the_bus(
    path: str, patterns: Sequence[str], deadline: float | None, _options: dict[str, Any]
) -> Iterator[Message]:
    with _connect(path) as bus:
        bus.subscribe(*patterns)
        events: Iterator[Event] = until(deadline, bus.receive)
        for event in events:
            if isinstance(event, Message):
                yield event
            elif isinstance(event, Gap):
                click.echo(f"bccn: {event.lost} messages were lost here: this reader is too slow", err=True)
            else:
                _fail(_explain(event))


def _heard_directly(
    _path: str, patterns: Sequence[str], deadline: float | None, options: dict[str, Any]
) -> Iterator[Message]:
    with _direct({**options, "dedup": True}) as endpoint:
        yield from messages(endpoint, patterns, deadline)


def _direct(options: dict[str, Any]) -> Endpoint:
    try:
        return open_endpoint(**options)
    except EndpointError as error:
        _fail(error.detail)


def _as_line(message: Message) -> str:
    return f"{_visible(message.chan)} {_visible(message.payload.decode('utf-8', 'backslashreplace'))}"


def _as_json(message: Message) -> str:
    fields: dict[str, object] = message._asdict()
    try:
        fields["payload"] = message.payload.decode("utf-8")
    except UnicodeDecodeError:
        del fields["payload"]
        fields["payload_base64"] = base64.b64encode(message.payload).decode("ascii")
    return json.dumps(fields)


@main.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--algorithm",
    type=click.Choice(["hmac", "sig"]),
    default="hmac",
    show_default=True,
    help="hmac: one key that all share. sig: a pair, the public half of which goes to the others.",
)
@click.option("--force", is_flag=True, help="Replace an existing key.")
def keygen(file: str, algorithm: str, force: bool) -> None:
    """Make a random key in FILE, readable for its owner only (for sig, the public half in FILE.pub).

    \b
    hmac: give every host of the segment the same file, and name it in the configuration:
      integrity: {algorithm: hmac, keys: [/etc/bccnd/hmac.key]}
    To change keys without losing a message, put the new one behind the old one everywhere (keys: [old, new]), reload,
    then turn their order, reload, and at last take the old one out.

    \b
    sig: FILE stays on this host, FILE.pub goes to all others; the first part of its senders' names says for whom it
    speaks:
      integrity: {algorithm: sig, keys: [/etc/bccnd/sign.key], signers: {relay01: [relay01.pub]}}
    To change keys without losing a message, add the new public key everywhere (signers: {relay01: [old.pub, new.pub]}),
    reload, then sign with the new one, reload, and at last take the old public key out.

    crc32 takes no key.
    """
    if not force:
        for name in [file, *([f"{file}.pub"] if algorithm == "sig" else [])]:
            if os.path.exists(name):
                _fail(f"{name} exists\n  remedy: choose another name, or --force to replace the key in it")
    if algorithm == "hmac":
        _write(file, secrets.token_hex(32).encode() + b"\n", 0o600)
        click.echo(f"{file}: a new key of 256 bits, mode 0600", err=True)
        return
    from bccnd.core import signatures  # a library that most have no use for

    private = signatures.generate()
    _write(file, private, 0o600)
    _write(f"{file}.pub", signatures.public_of(private), 0o644)
    click.echo(f"{file}: a new private key (Ed25519), mode 0600; {file}.pub: its public half, mode 0644", err=True)


def _write(file: str, key: bytes, mode: int) -> None:
    """Written beside and renamed, so that nobody ever reads half a key."""
    beside = f"{file}.{os.getpid()}.new"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(descriptor, mode)  # whatever the umask
            out.write(key)
        os.replace(beside, file)
    except OSError as error:
        _fail(f"cannot write {file}: {error.strerror}")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def clients(path: str, as_json: bool) -> None:
    """Show the programs connected to the daemon: identity, user, patterns, queue and losses."""
    rows = _listing(path, b"clients")
    if as_json:
        _print_json(rows)
        return
    _print_table(
        ["identity", "uid", "since", "published", "queued", "lost", "patterns"],
        (
            [
                row["identity"],
                str(row["uid"]),
                time.strftime("%H:%M:%S", time.localtime(row["since"])),
                str(row["published"]),
                str(row["queued"]),
                str(row["lost"]),
                " ".join(repr(text) for text in row["patterns"]) + (" ..." if row["subscriptions"] > 8 else ""),
            ]
            for row in rows
        ),
    )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def sources(path: str, as_json: bool) -> None:
    """Show the senders heard on the segments, the latest first (10,000 at most), then those found dead.

    State is alive, silent or dead for senders of heartbeats, empty for others.
    """
    rows = _listing(path, b"sources")
    if as_json:
        _print_json(rows)
        return
    _print_table(
        ["source", "state", "silent", "last seq", "epoch", "missing"],
        (
            [
                row["src"],
                row["state"],
                f"{row['silent_seconds']:.1f} s",
                *(str(row.get(name, "")) for name in ("last_seq", "epoch", "missing")),
            ]
            for row in rows
        ),
    )


def _listing(path: str, topic: bytes) -> Iterator[dict[str, Any]]:
    """The rows of a listing, fetched page by page."""
    with _connect(path) as bus:
        try:
            while True:
                page = json.loads(bus.ask(frames.STATS, topic))
                yield from page["items"]
                if not page["more"]:
                    return
                topic = b"more"
        except BusError as error:
            _fail(error.detail)


def _print_json(rows: Iterator[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(json.dumps(row))


def _print_table(titles: list[str], rows: Iterator[list[str]]) -> None:
    # Rich takes longer to load than most commands take to run.
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(_visible(cell) for cell in row))
    width = None if sys.stdout.isatty() else 200
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)
