"""`bccn pipeline ingest`: writes packet captures to a journal."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.options import key_options, port_option, read_keys
from bccnd.cli.shared.output import fail
from bccnd.cli.shared.progress import show_progress
from bccnd.errors import JournalError
from bccnd.file_modes import private_files

if TYPE_CHECKING:
    from bccnd.journal.capture_import import Summary

#: remedies for optional packages that are missing
PIPELINE_EXTRA: Final = "pip install '.[pipeline]', in a clone of bccnd"
REPORT_EXTRA: Final = "pip install '.[report]', in a clone of bccnd"
RECORDER_EXTRA: Final = "pip install '.[recorder]', in a clone of bccnd"


def require(modules: Sequence[str], remedy: str) -> None:
    """End the command if one of these modules is not installed."""
    for name in modules:
        if find_spec(name) is None:
            fail(f"this requires {name}, which is not installed\n  remedy: {remedy}")


def check_host(host: str | None) -> None:
    """Raises click.UsageError for a name that cannot be part of a path in a journal."""
    from bccnd.journal import file_names

    if host is not None and not file_names.is_host(host):
        raise click.UsageError(f"--host {host}: use letters, digits, '_', '.' and '-', at most 64")


@click.command()
@click.argument("captures", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--host", required=True, metavar="NAME", help="The host that made the capture.")
@click.option(
    "--out",
    "journal",
    required=True,
    metavar="JOURNAL",
    shell_complete=complete_files,
    help="A folder, or a URI that pyarrow supports.",
)
@port_option
@click.option("--segment", default="capture", metavar="NAME", help="The name of the segment.")
@key_options
@click.option("--required", is_flag=True, help="Refuse datagrams without a check.")
@click.option("--no-payload", is_flag=True, help="Leave payloads out of the journal.")
@click.option(
    "--late", type=click.Choice(["drop", "deliver"]), default="drop", help="Like dedup.late in the configuration."
)
def ingest(
    captures: Sequence[str], host: str, journal: str, keys: Sequence[str], signers: Sequence[str],
    algorithm: str | None, no_payload: bool, late: str, **envelope: Any,
) -> None:  # fmt: skip
    """Write the CAPTURES of one host to a journal, as if a daemon had recorded there.

    Captures are pcap or pcapng files, also compressed by gzip; - is the standard input. Give all captures of one run
    together (tcpdump -C, -G): they are read in the order of time. Repeating the command with the same captures makes
    the same files.

    \b
      tcpdump -i eth0 -s 2048 -B 16384 -w eth0.pcap udp port 5400
      bccn pipeline ingest eth0.pcap --host relay02 --out /var/lib/bccnd/journal

    Without keys, checks are not verified, and datagrams with a check are accepted.
    """
    require(["pyarrow"], RECORDER_EXTRA)
    from bccnd.journal.capture_import import CaptureSettings
    from bccnd.journal.capture_import import ingest as do_ingest

    check_host(host)
    read = read_keys(keys, signers, algorithm)
    settings = CaptureSettings(
        host,
        **envelope,
        algorithm=read["algorithm"],
        keys=tuple(read["keys"]),
        signers={prefix.encode("utf-8", "surrogateescape"): public for prefix, public in read["signers"].items()},
        payload=not no_payload,
        late=late,
    )
    try:
        settings.checker()
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    try:
        with private_files(), show_progress("reading captures") as show:
            done = do_ingest(captures, journal, settings, show)
    except JournalError as error:
        fail(str(error))
    click.echo(_summary(done))


def count_left_out(*counts: tuple[int, str]) -> str:
    """Return the end of a summary that says what was left out; empty if nothing was."""
    found = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"; left out: {found}" if found else ""


def _summary(done: Summary) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(done.verdicts.items(), key=lambda one: -one[1]))
    tally = done.tally
    return f"{done.rows} datagrams in {done.files} files of journal {done.journal_id}: {counts}" + count_left_out(
        (tally.truncated, "cut off by the snapshot length (tcpdump -s 2048)"),
        (tally.fragments, "in fragments"),
        (tally.malformed, "malformed"),
        (tally.unknown_link, f"of link types {sorted(tally.links)}"),
        (tally.dropped, "missed by the capturing host"),
        (tally.cut_short, "captures that end in the middle of a packet"),
    )
