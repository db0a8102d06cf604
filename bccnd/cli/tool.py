"""`bccn`: the tool for people.

Law: data goes to standard output, one record a line, and everything else to standard error; exit 0 when done, 1
when it failed, 2 for bad usage. What came from the network is never sent raw to a terminal.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from bccnd.cli.broker_sub import broker_sub
from bccnd.cli.direct import direct_options, messages, open_endpoint, refuse_without_direct
from bccnd.cli.doctor import doctor
from bccnd.cli.lines import Complaints, publish_lines
from bccnd.cli.pipeline import pipeline
from bccnd.cli.pipes import end_with_reader
from bccnd.cli.record import record
from bccnd.cli.replay import replay
from bccnd.cli.report import report
from bccnd.cli.show import (
    asked_for,
    explain,
    fail,
    follow,
    listing,
    payload_fields,
    print_json,
    print_table,
    printed,
    the_bus,
    visible,
    visible_bytes,
)
from bccnd.cli.watch import tap, trace
from bccnd.client.bus import Connection, Refusal
from bccnd.client.message import Message
from bccnd.core import frames
from bccnd.errors import BusError, EndpointError
from bccnd.version import VERSION

if TYPE_CHECKING:
    from bccnd.client.endpoint import Endpoint


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
@click.version_option(VERSION, message="bccn %(version)s")
@click.pass_context
def main(context: click.Context, path: str) -> None:
    """Talk to the bccnd of this host: publish, subscribe, watch what it does and why, make keys.

    \b
      bccn sub 'demo/' &                   print what comes
      bccn pub demo/hello 'hello, world'   say something
      bccn top                             who speaks, who listens, what is lost
      bccn tap --refused                   what is not delivered, and why
    """
    context.obj = path
    end_with_reader()


for _command in (tap, trace):
    main.add_command(_command)
main.add_command(record)
main.add_command(pipeline)
main.add_command(replay)
main.add_command(report)
main.add_command(broker_sub)
main.add_command(doctor)


@main.command()
@click.argument("channel")
@click.argument("payload", required=False)
@click.option("--tag", metavar="TEXT", help="Be called <host>/bccn/<pid>/TEXT on the segment.")
@direct_options
@click.pass_context
def pub(
    context: click.Context, /, channel: str, payload: str | None, tag: str | None, direct: bool, **options: Any
) -> None:
    """Publish PAYLOAD on CHANNEL; without PAYLOAD, each line of standard input, as soon as it is there.

    CHANNEL is a name like cardsys/relay/tx; '!' reaches everyone, '!host/program/*' or '!host/program/pid' whom it
    names.

    \b
      bccn pub demo/hello 'hello, world'
      tail -F app.log | bccn pub logs/app
      bccn pub --direct --interface eth0 --key /etc/bccnd/keys/hmac.key demo/hello 'without a daemon'

    A daemon that is restarted is waited for, up to 5 s. The exit code is 1 when anything was refused, or when it is
    unknown whether the daemon had taken all of it.
    """
    if direct:
        _refuse_tag(tag)
        _publish_directly(channel, payload, options)
        return
    refuse_without_direct(context)
    with the_bus(context.obj, reconnect=True) as bus:
        _take_tag(bus, tag)
        if payload is None:
            refused = publish_lines(bus, channel, sys.stdin.fileno())
        else:
            complaints = Complaints()
            bus.publish(channel, os.fsencode(payload))
            for refusal in bus.sync():
                complaints.add(refusal)
            refused = complaints.total
    sys.exit(1 if refused else 0)


def _publish_directly(channel: str, payload: str | None, options: dict[str, Any]) -> None:
    lines = (line.rstrip(b"\n") for line in sys.stdin.buffer) if payload is None else [os.fsencode(payload)]
    with _direct(options) as endpoint:
        for line in lines:
            try:
                endpoint.send(channel, line)
            except EndpointError as error:
                fail(error.detail)


def _refuse_tag(tag: str | None) -> None:
    if tag is not None:
        raise click.UsageError("--tag is for programs of the daemon; with --direct choose a --name")


def _take_tag(bus: Connection, tag: str | None) -> None:
    if tag:
        try:
            bus.tag(tag)
        except BusError as error:
            if error.reason in ("bad_tag", "not_permitted"):
                fail(explain(Refusal(error.reason, tag)))
            raise


@main.command()
@click.argument("patterns", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with sender, seq, peer and time.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many messages that match.")
@click.option("-t", "--timeout", type=click.FloatRange(min=0), help="End after so many seconds; exit 1 if -n is unmet.")
@click.option("--tag", metavar="TEXT", help="Be called <host>/bccn/<pid>/TEXT on the segment.")
@direct_options
@click.pass_context
def sub(
    context: click.Context,
    /,
    patterns: Sequence[str],
    as_json: bool,
    count: int | None,
    timeout: float | None,
    tag: str | None,
    direct: bool,
    **options: Any,
) -> None:
    """Print the messages whose channel matches a PATTERN (all of them without one).

    \b
      cardsys/relay/tx        this channel
      cardsys/*/tx            one token at the place of *
      cardsys/  cardsys/>     everything below

    \b
      bccn sub 'cardsys/' 'logs/*'
      bccn sub --json -n 1 -t 10 demo/hello || echo 'nothing within 10 s'

    Prints channel and payload, a message a line, and besides those that match also messages to everyone (!) and to this
    program; with -n these are neither counted nor printed, unless there is no PATTERN or one that begins with '!' and
    matches them. With --json a payload that is no UTF-8 text stands in payload_base64. With --direct, copies of one
    message are printed once. When the daemon is restarted it goes on with
    the next one, and says so on standard error, as it does where messages were lost.
    """
    if direct:
        _refuse_tag(tag)
    else:
        refuse_without_direct(context)
    deadline = None if timeout is None else time.monotonic() + timeout
    if direct:
        found = _heard_directly(patterns or ("",), deadline, options)
    else:
        found = _heard_on_the_bus(context.obj, patterns or ("",), deadline, tag)
    if count is not None:
        found = filter(asked_for(patterns or ("",)), found)
    number = printed(map(_as_json if as_json else _as_line, found), count)
    sys.exit(1 if count is not None and number < count else 0)


def _heard_on_the_bus(path: str, patterns: Sequence[str], deadline: float | None, tag: str | None) -> Iterator[Message]:
    with the_bus(path, reconnect=True) as bus:
        _take_tag(bus, tag)
        bus.subscribe(*patterns)
        yield from follow(bus, deadline)


def _heard_directly(patterns: Sequence[str], deadline: float | None, options: dict[str, Any]) -> Iterator[Message]:
    with _direct({**options, "dedup": True}) as endpoint:
        for message in messages(endpoint, patterns, deadline):
            yield message
            sys.stdout.flush()


def _direct(options: dict[str, Any]) -> Endpoint:
    try:
        return open_endpoint(**options)
    except EndpointError as error:
        fail(error.detail)


def _as_line(message: Message) -> str:
    return f"{visible(message.chan)} {visible_bytes(message.payload)}"


def _as_json(message: Message) -> str:
    fields: dict[str, object] = message._asdict()
    del fields["payload"]
    return json.dumps(fields | payload_fields(message.payload))


@main.command()
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print the figures of one interval, and end.")
@click.option("--json", "as_object", is_flag=True, help="With --once: as a JSON object.")
@click.pass_obj
def top(path: str, /, interval: float, once: bool, as_object: bool) -> None:
    """Watch the daemon: rates, losses, queues, the busiest channels and senders, clients and sources in trouble.

    \b
      bccn top
      bccn top --interval 5
      bccn top --once --json | jq .rates

    Ends with q or Ctrl-C; when the daemon is restarted, it goes on with the next one. Rates are per second, losses
    since the start of the daemon, with what is new behind a +. Channels and senders are counted by listening to
    everything, as 'bccn sub' does: that costs the daemon as much as any other program that subscribes to everything,
    leaves out what is meant for one program only, and is marked where this tool was too slow to count all of it.
    Clients are those that lose or wait first, sources those that are silent, dead or have messages missing.
    """
    if as_object and not once:
        raise click.UsageError("--json needs --once")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("this is no terminal: take --once")
    from bccnd.cli import screen  # most commands show no figures

    if once:
        screen.print_once(path, interval, as_object)
    else:
        screen.watch(path, interval)


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
      integrity: {algorithm: hmac, keys: [/etc/bccnd/keys/hmac.key]}
    To change keys without losing a message, put the new one behind the old one everywhere (keys: [old, new]), reload,
    then turn their order, reload, and at last take the old one out.

    \b
    sig: FILE stays on this host, FILE.pub goes to all others; the first part of its senders' names says for whom it
    speaks:
      integrity: {algorithm: sig, keys: [/etc/bccnd/keys/sign.key], signers: {relay01: [relay01.pub]}}
    To change keys without losing a message, add the new public key everywhere (signers: {relay01: [old.pub, new.pub]}),
    reload, then sign with the new one, reload, and at last take the old public key out.

    crc32 takes no key.
    """
    if not force:
        for name in [file, *([f"{file}.pub"] if algorithm == "sig" else [])]:
            if os.path.exists(name):
                fail(f"{name} exists\n  remedy: choose another name, or --force to replace the key in it")
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
        fail(f"cannot write {file}: {error.strerror}")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def clients(path: str, as_json: bool) -> None:
    """Show the programs connected to the daemon: identity, user, dialect and patterns, queue and losses.

    A program that 'waits' publishes more than it may (bus.user.rate), or to one that has asked to be waited for.

    \b
      bccn clients
      bccn clients --json | jq 'select(.lost > 0).identity'
    """
    rows = _rows(path, "clients")
    if as_json:
        print_json(rows)
    else:
        print_table(_CLIENT, map(_client, rows))


_CLIENT = ["identity", "uid", "since", "dialect", "published", "queued", "lost", "patterns"]


def _client(row: dict[str, Any]) -> list[str]:
    return [
        str(row["identity"]),
        str(row["uid"]),
        time.strftime("%H:%M:%S", time.localtime(row["since"])),
        str(row["dialect"]),
        f"{row['published']}{' waits' if row['waits'] else ''}",
        str(row["queued"]),
        str(row["lost"]),
        " ".join(repr(text) for text in row["patterns"]) + (" ..." if row["subscriptions"] > 8 else ""),
    ]


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def sources(path: str, as_json: bool) -> None:
    """Show the senders heard on the segments, the latest first (10,000 at most), then those found dead.

    State is alive, silent or dead for senders of heartbeats, empty for others; missing counts what of their latest
    numbers has not come.

    \b
      bccn sources
      bccn sources --json | jq 'select(.state == "dead").src'
    """
    rows = _rows(path, "sources")
    if as_json:
        print_json(rows)
    else:
        print_table(_SOURCE, map(_source, rows))


_SOURCE = ["source", "state", "silent", "last seq", "epoch", "missing"]


def _source(row: dict[str, Any]) -> list[str]:
    numbers = (str(row.get(name, "")) for name in ("last_seq", "epoch", "missing"))
    return [str(row["src"]), str(row["state"]), f"{row['silent_seconds']:.1f} s", *numbers]


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with the peers of each gateway.")
@click.pass_obj
def gateways(path: str, as_json: bool) -> None:
    """Show the gateways of this host, then who is at their other ends: messages and what was dropped, and why.

    \b
      bccn gateways
      bccn gateways --json | jq '.dropped | with_entries(select(.value > 0))'
    """
    rows = list(_rows(path, "gateways"))
    if as_json:
        print_json(rows)
        return
    print_table(_GATEWAY, map(_gateway, rows))
    peers = [_peer(row["gateway"], peer) for row in rows if row["up"] for peer in row["peers"]]
    if peers:
        click.echo()
        print_table(_PEER, peers)


_GATEWAY = ["gateway", "state", "peers", "in", "out", "dropped"]
_PEER = ["gateway", "peer", "name", "since", "in", "out", "dropped", "queued"]


def _gateway(row: dict[str, Any]) -> list[str]:
    dropped = ", ".join(f"{reason} {count}" for reason, count in row["dropped"].items() if count)
    state = "up" if row["up"] else "down"
    return [row["gateway"], state, *(str(row[name]) for name in ("peers_connected", "received", "sent")), dropped]


def _peer(name: str, peer: dict[str, Any]) -> list[str]:
    since = time.strftime("%H:%M:%S", time.localtime(peer["since"]))
    numbers = (str(peer[key]) for key in ("received", "sent", "dropped", "queued"))
    return [name, str(peer["peer"]), str(peer["name"]), since, *numbers]


def _rows(path: str, topic: str) -> Iterator[dict[str, Any]]:
    with the_bus(path) as bus:
        yield from listing(bus, topic)
