"""`bccn clients`, `sources`, `gateways` and `keys`: prints listings of the daemon as tables or JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from bccnd.cli.diagnosis.top_model import span
from bccnd.cli.shared.connection import fetch_listing, open_bus
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.options import json_option
from bccnd.cli.shared.output import print_json, print_table, visible
from bccnd.fleet.key_holders import key_holders

#: sources and hosts that `bccn keys` names for each key
_NAMED: Final = 5
#: seconds of silence after which `bccn keys` leaves a source out
_GONE: Final = 3600.0

Row = dict[str, Any]


def _print(
    path: str | None, topic: str, titles: Sequence[str], cells: Callable[[Row], list[str]], as_json: bool
) -> list[Row]:
    with open_bus(path) as bus:
        rows = list(fetch_listing(bus, topic))
    if as_json:
        print_json(rows)
    else:
        print_table(titles, map(cells, rows))
    return rows


def _time_of_day(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


@click.command()
@json_option()
@click.pass_obj
def clients(path: str | None, as_json: bool) -> None:
    """List the programs connected to the daemon: identity, user, dialect and patterns, queue and losses.

    A client that 'waits' publishes faster than its limit (bus.user.rate), or to a client that makes publishers wait.

    \b
      bccn clients
      bccn clients --json | jq 'select(.lost > 0).identity'
    """
    titles = ["identity", "uid", "since", "dialect", "published", "queued", "lost", "patterns"]
    _print(path, "clients", titles, _client, as_json)


def _client(row: Row) -> list[str]:
    patterns = " ".join(repr(text) for text in row["patterns"]) + (" ..." if row["subscriptions"] > 8 else "")
    published = f"{row['published']}{' waits' if row['waits'] else ''}"
    place = [row["identity"], str(row["uid"]), _time_of_day(row["since"]), row["dialect"]]
    return [*place, published, str(row["queued"]), str(row["lost"]), patterns]


@click.command()
@json_option()
@click.pass_obj
def sources(path: str | None, as_json: bool) -> None:
    """List the senders on the segments, the latest first (10,000 at most), then those found dead.

    State is alive, silent or dead for senders of heartbeats, and empty for others. Missing counts the latest numbers
    that have not arrived. With --json, key is the fingerprint of the key that signed the latest datagram.

    \b
      bccn sources
      bccn sources --json | jq 'select(.state == "dead").src'
    """
    _print(path, "sources", ["source", "state", "silent", "last seq", "epoch", "missing"], _source, as_json)


def _source(row: Row) -> list[str]:
    numbers = (str(row.get(name, "")) for name in ("last_seq", "epoch", "missing"))
    return [row["src"], row["state"], f"{row['silent_seconds']:.1f} s", *numbers]


@click.command()
@json_option()
@click.pass_obj
def gateways(path: str | None, as_json: bool) -> None:
    """List the gateways of this host, then their peers: messages, and dropped messages by reason.

    With --json each gateway has its peers.

    \b
      bccn gateways
      bccn gateways --json | jq '.dropped | with_entries(select(.value > 0))'
    """
    rows = _print(path, "gateways", ["gateway", "state", "peers", "in", "out", "dropped"], _gateway, as_json)
    peers = [_peer(row["gateway"], peer) for row in rows if row["up"] for peer in row["peers"]]
    if peers and not as_json:
        click.echo()
        print_table(["gateway", "peer", "name", "since", "in", "out", "dropped", "queued"], peers)


def _gateway(row: Row) -> list[str]:
    dropped = ", ".join(f"{reason} {count}" for reason, count in row["dropped"].items() if count)
    numbers = (str(row[name]) for name in ("peers_connected", "received", "sent"))
    return [row["gateway"], "up" if row["up"] else "down", *numbers, dropped]


def _peer(name: str, peer: Row) -> list[str]:
    numbers = (str(peer[key]) for key in ("received", "sent", "dropped", "queued"))
    return [name, str(peer["peer"]), str(peer["name"]), _time_of_day(peer["since"]), *numbers]


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, shell_complete=complete_files)
@click.option("--fleet", is_flag=True, help="Show which hosts of the fleet sign with each key, have it, or lack it.")
@json_option()
@click.pass_obj
def keys(path: str | None, /, files: Sequence[str], fleet: bool, as_json: bool) -> None:
    """List the fingerprints of the keys that the daemon verifies with, and the sources that sign with each; or print
    the fingerprints of the keys in FILEs.

    Verified counts datagrams since the start of the daemon, also before a reload; 'last used' is the time of the last
    one, to ten seconds. Sources are those whose latest datagram was signed with the key, except sources that are dead
    or have sent nothing for an hour. For sig, 'speaks for' names the sources for which the key is valid.

    When you change keys, --fleet shows which hosts have the new key and which still sign with the old one, by their
    reports. Programs without a daemon report nothing: an old key is unused once no host lists a source with it. The
    metric is bccnd_key_verified_total.

    \b
      bccn keys
      bccn keys --fleet
      bccn keys --json | jq 'select(.sources == []).fingerprint'
      bccn keys /etc/bccnd/keys/hmac.key
    """
    for file in files:
        click.echo(f"{_read_fingerprint(file)}  {file}")
    if files:
        return
    if fleet:
        _print_holders(path, as_json)
        return
    with open_bus(path) as bus:
        rows = list(fetch_listing(bus, "keys"))
        for row in rows:
            row["sources"] = []
        by_key = {row["fingerprint"]: row["sources"] for row in rows}
        for source in fetch_listing(bus, "sources"):
            if source["state"] != "dead" and source["silent_seconds"] < _GONE:
                by_key.get(source.get("key"), []).append(source["src"])
    if as_json:
        print_json(rows)
    else:
        titles = ["key", "algorithm", "signs", "speaks for", "verified", "last used", "sources"]
        print_table(titles, map(_key, rows))


def _key(row: Row) -> list[str]:
    signers = " ".join(repr(prefix) for prefix in row["signers"])
    used = "never" if row["last_used_s"] is None else f"{span(row['last_used_s'])} ago"
    about = [row["fingerprint"], row["algorithm"], "yes" if row["signs"] else "", signers]
    return [*about, str(row["verified"]), used, _list(row["sources"])]


def _print_holders(path: str | None, as_json: bool) -> None:
    with open_bus(path) as bus:
        hosts = list(fetch_listing(bus, "hosts"))
    holders = key_holders(hosts)
    if as_json:
        print_json(one._asdict() for one in holders)
        return
    titles = ["key", "algorithm", "hosts that sign with it", "that only verify with it", "that lack it"]
    print_table(
        titles,
        ([one.fingerprint, one.algorithm, *map(_list, (one.signs, one.verifies, one.lacks))] for one in holders),
    )
    silent = [host for host in hosts if host["silent"]]
    if silent:
        click.echo(f"Silent, and as of their last report: {_list([visible(host['host']) for host in silent])}.")


def _list(names: Sequence[str]) -> str:
    return " ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _read_fingerprint(file: str) -> str:
    """Return the fingerprint of a key; of a private key, that of its public half. Raises click.UsageError."""
    from bccnd.core.trust.integrity_algorithms import fingerprint
    from bccnd.errors import BadKey
    from bccnd.key_files import read_key, read_public_key

    try:
        with open(file, "rb") as opened:
            start = opened.read(64)
        if not start.startswith(b"-----BEGIN "):
            return fingerprint(read_key(file))
        from bccnd.core.trust import signatures  # loads a library that other commands do not need

        public = signatures.public_of(read_key(file, "sig")) if b"PRIVATE" in start else read_public_key(file)
        return signatures.fingerprint_of(public)
    except (OSError, BadKey) as error:
        raise click.UsageError(str(error)) from error
