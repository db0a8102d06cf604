"""`bccn pipeline ingest`: packet captures become a journal.

Law: one line says what was made; what is wrong is said in one line with its remedy, and the journal is as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from bccnd.cli.progress import progress
from bccnd.cli.show import fail
from bccnd.core.bccn1 import check_src
from bccnd.errors import BadDatagram, BadKey, JournalError

if TYPE_CHECKING:
    from bccnd.journal.captures import Summary

#: what to install where a part is missing
EXTRA = "pip install 'bccnd[pipeline]'"
RECORDER_EXTRA = "pip install 'bccnd[recorder]'"


def need(modules: Sequence[str], remedy: str) -> None:
    """End the command where one of these is not installed."""
    from importlib.util import find_spec

    for name in modules:
        if find_spec(name) is None:
            fail(f"this takes {name}, which is not installed\n  remedy: {remedy}")


def _read(read: Callable[[str], bytes], file: str) -> bytes:
    try:
        return read(file)
    except BadKey as bad:
        raise click.UsageError(str(bad)) from bad


def read_signers(signers: Sequence[str]) -> dict[bytes, list[bytes]]:
    """Public keys by the prefixes that they speak for, of ``SRC=FILE`` or FILE for all. Raises click.UsageError."""
    from bccnd.client.keys import read_public_key

    found: dict[bytes, list[bytes]] = {}
    for signer in signers:
        prefix, _, file = signer.rpartition("=")
        if prefix:
            try:
                check_src(os.fsencode(prefix))
            except BadDatagram:
                raise click.UsageError(f"--signer {signer}: {prefix!r} cannot be the beginning of a src") from None
        found.setdefault(os.fsencode(prefix), []).append(_read(read_public_key, file))
    return found


@click.command()
@click.argument("captures", nargs=-1, required=True)
@click.option("--host", required=True, metavar="NAME", help="The host that has captured.")
@click.option("--out", "journal", required=True, metavar="JOURNAL", help="A folder, or a URI that pyarrow knows.")
@click.option("--port", type=click.IntRange(1, 65_535), default=5400, show_default=True, help="UDP port of BCCN.")
@click.option("--segment", default="capture", show_default=True, metavar="NAME", help="What to call the segment.")
@click.option("--key", "keys", metavar="FILE", multiple=True, help="A key that datagrams are checked with.")
@click.option("--signer", "signers", metavar="SRC=FILE", multiple=True, help="A public key, and of whom.")
@click.option(
    "--algorithm",
    type=click.Choice(["none", "crc32", "hmac", "sig"]),
    help="The check of datagrams; hmac where there is a --key, sig where there is a --signer, else none.",
)
@click.option("--required", is_flag=True, help="Refuse datagrams without a check.")
@click.option("--no-payload", is_flag=True, help="Leave payloads out of the journal.")
@click.option(
    "--late", type=click.Choice(["drop", "deliver"]), default="drop", show_default=True, help="As dedup.late there."
)
def ingest(
    captures: Sequence[str],
    host: str,
    journal: str,
    port: int,
    segment: str,
    keys: Sequence[str],
    signers: Sequence[str],
    algorithm: str | None,
    required: bool,
    no_payload: bool,
    late: str,
) -> None:
    """Write what is in the CAPTURES of one host to a journal, as if a daemon had been there.

    pcap and pcapng, also compressed by gzip. Give all captures of one run together (tcpdump -C, -G): they are read in
    the order of time. The same captures again make the same files.

    \b
      tcpdump -i eth0 -s 2048 -B 16384 -w eth0.pcap udp port 5400
      bccn pipeline ingest eth0.pcap --host relay02 --out /var/lib/bccnd/journal

    Without keys, checks that nobody can verify are let pass.
    """
    need(["pyarrow"], RECORDER_EXTRA)
    from bccnd.client.keys import read_key
    from bccnd.core.dedup import DedupRules
    from bccnd.core.integrity import usual_algorithm
    from bccnd.journal import layout
    from bccnd.journal.captures import CaptureSettings
    from bccnd.journal.captures import ingest as do_ingest

    if not layout.is_host(host):
        raise click.UsageError(f"--host {host}: take letters, digits, '_', '.' and '-', at most 64")
    chosen = algorithm or usual_algorithm(keys, signers)
    settings = CaptureSettings(
        host,
        port=port,
        segment=segment,
        algorithm=chosen,
        keys=tuple(_read(lambda file: read_key(file, algorithm=chosen), key) for key in keys),
        signers=read_signers(signers),
        required=required,
        payload=not no_payload,
        rules=DedupRules(deliver_late=late == "deliver"),
    )
    try:
        settings.door()
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    try:
        with progress("reading captures") as tell:
            done = do_ingest(captures, journal, settings, tell)
    except JournalError as error:
        fail(str(error))
    click.echo(_told(done))


def _told(done: Summary) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(done.verdicts.items(), key=lambda one: -one[1]))
    text = f"{done.rows} datagrams in {done.files} files of journal {done.journal_id}: {counts}"
    tally = done.tally
    left_out = [
        f"{count} {what}"
        for count, what in (
            (tally.truncated, "cut off by the snapshot length (tcpdump -s 2048)"),
            (tally.fragments, "in fragments"),
            (tally.malformed, "malformed"),
            (tally.unknown_link, f"of link types {sorted(tally.links)}"),
            (tally.dropped, "missed by the capturing host"),
            (tally.cut_short, "captures that end within a packet"),
        )
        if count
    ]
    return text + (f"; left out: {', '.join(left_out)}" if left_out else "")
