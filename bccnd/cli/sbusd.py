"""`bccn-sbusd`: runs the local bus alone, with the flags and addresses of sbusd; no segment, no configuration.

Unlike sbusd it honours the blocking and order modes, and a slow client never blocks the bus.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

import click

from bccnd import log
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.stream_errors import ServerCommand
from bccnd.core.formats.bus_address import read_address, write_address
from bccnd.core.formats.durations_and_sizes import parse_whole
from bccnd.core.formats.quoting import quote
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire.identity_format import identity, tagged
from bccnd.errors import BadAddress
from bccnd.version import VERSION

# The bus is imported where it is used: --help needs none, and the pure package has none.
if TYPE_CHECKING:
    from bccnd.bus.client_acceptor import Entrance
    from bccnd.bus.clients.access_rules import Access
    from bccnd.config.schema import BusSettings

DEFAULT_ADDRESS: Final = "/run/sbus.socket"
DEFAULT_PIDFILE: Final = "/run/sbus.pid"
#: without a name behind it: a random abstract address
_GENERATED: Final = "/dev/unix/abstract"


#: sbusd has no limits; these are far beyond its uses, and bound the memory that a client can take
_LIMITS: Final = SimpleNamespace(
    queue=SimpleNamespace(messages=65_536, bytes=16 << 20),
    max_clients=65_536,
    max_subscriptions=65_536,
    patience=5.0,
    user=SimpleNamespace(clients=65_536, subscriptions=1_000_000, wildcards=1_000_000, queue_bytes=256 << 20, rate=0.0),
)


class _Rules(NamedTuple):
    access: Access
    bus: BusSettings = cast("BusSettings", _LIMITS)


@click.command(cls=ServerCommand, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "-a",
    "address",
    metavar="ADDRESS",
    shell_complete=complete_files,
    default=DEFAULT_ADDRESS,
    help="A path, /dev/fd/N, /dev/unix/abstract[/HEX].",
)
@click.option("-c", "auto_close", is_flag=True, help="Exit when the last client disconnects.")
@click.option("-f", "foreground", is_flag=True, help="Stay in the foreground.")
@click.option("-g", "for_group", is_flag=True, help="Let the group of the socket file connect.")
@click.option("-o", "for_others", is_flag=True, help="Let all users connect.")
@click.option("-r", "reuse", is_flag=True, help="Remove a file at the path.")
@click.option(
    "-p",
    "pidfile",
    metavar="FILE",
    shell_complete=complete_files,
    default=DEFAULT_PIDFILE,
    help="/dev/null for none; not with -f.",
)
@click.option("-u", "users", metavar="USER", multiple=True, help="Let only this user connect, and our own; repeatable.")
@click.version_option(VERSION, message="bccn-sbusd %(version)s")
def main(
    address: str, auto_close: bool, foreground: bool, for_group: bool, for_others: bool, reuse: bool, pidfile: str,
    users: tuple[str, ...],
) -> None:  # fmt: skip
    """A message bus for the programs of this host, in the place of sbusd.

    Goes to the background once it serves, or with -f closes its standard input and output then. SIGINT and SIGTERM
    end it with status 0; SIGHUP too, in the foreground.

    \b
      bccn-sbusd -f -a /run/user/1000/bus.sock
      bccn-sbusd -fc -a /dev/unix/abstract
    """
    from bccnd.bus.client_acceptor import Entrance
    from bccnd.bus.clients.access_rules import admit_all, by_user

    log.setup("bccn-sbusd")
    uids = [_uid_of(user) for user in users]
    listener, path = _open(address, 0o700 | 0o070 * for_group | 0o007 * for_others, reuse)
    entrance = Entrance(listener, DIALECTS["sbus"], by_user([*uids, os.getuid()]) if uids else admit_all)
    with _removing(path):
        if foreground:
            _serve(entrance, auto_close, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], _close_standard_streams)
            return
        with _daemonized(None if pidfile == os.devnull else pidfile) as ready:
            _serve(entrance, auto_close, [signal.SIGINT, signal.SIGTERM], ready)


def _serve(entrance: Entrance, auto_close: bool, ends: list[signal.Signals], ready: Callable[[], None]) -> None:
    from bccnd.bus.clients.access_rules import Access
    from bccnd.bus.server import Bus
    from bccnd.core.matching.routes import Routes
    from bccnd.net.loop import Loop

    loop = Loop()
    for number in ends:
        loop.on_signal(number, loop.stop)
    dialect = entrance.dialect
    bus = Bus(
        loop,
        [entrance],
        Routes(dialect, forms=False),
        partial(identity, os.fsencode(socket.gethostname())),
        tagged,
        _Rules(Access((), dialect, os.geteuid(), os.getegid())),
        on_quiet=loop.stop if auto_close else lambda: None,
    )
    ready()
    loop.run()
    bus.close()
    loop.close()


def _open(address: str, mode: int, reuse: bool) -> tuple[socket.socket, str]:
    """Open a listening socket; return it and the path to remove at the end, if there is one."""
    from bccnd.net.listen import BACKLOG, adopt, bind_unix, listen_abstract

    try:
        where = b"" if address == _GENERATED else read_address(address)
        if isinstance(where, str):
            path = os.path.abspath(where)
            if reuse:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            bind_unix(listener, path, mode)
            listener.listen(BACKLOG)
            return listener, path
        if isinstance(where, int):
            for flag, bits in (("-g", 0o070), ("-o", 0o007)):
                if mode & bits:
                    text = f"{flag} has no effect on an inherited socket"
                    log.event("doubtful_setting", text, setting=flag)
            return adopt(where), ""
        listener = listen_abstract(where or None)
    except BadAddress as bad:
        raise click.UsageError(f"-a {address}: {bad.detail}") from bad
    except OSError as error:
        _fail(f"cannot listen on {address}: {error.strerror}")
    if not where:
        click.echo(write_address(listener.getsockname()))
        sys.stdout.flush()
    return listener, ""


@contextlib.contextmanager
def _removing(path: str) -> Iterator[None]:
    """Remove a file at the end, in the process that has served, not in its parent."""
    try:
        yield
    finally:
        if path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


@contextlib.contextmanager
def _daemonized(pidfile: str | None) -> Iterator[Callable[[], None]]:
    """Fork to the background; the parent exits when the function that is yielded has been called."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        # Nothing is read from a child that could not start. The parent removes no files.
        os._exit(0 if os.read(reader, 1) else 1)
    os.close(reader)
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if pidfile is not None:
        pidfile = os.path.abspath(pidfile)
        try:
            with os.fdopen(os.open(pidfile, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
                file.write(f"{os.getpid()}\n")
        except OSError as error:
            _fail(f"cannot write {pidfile}: {error.strerror}; remove it if no sbusd is running, or choose another (-p)")

    def ready() -> None:
        os.chdir("/")
        _close_standard_streams()
        if os.isatty(2):
            os.dup2(1, 2)
        os.write(writer, b"\0")
        os.close(writer)

    with _removing(pidfile or ""):
        yield ready


def _close_standard_streams() -> None:
    """Replace standard input and output by /dev/null, so that no socket gets their numbers."""
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if null > 1:
        os.close(null)


def _uid_of(user: str) -> int:
    number = parse_whole(user)
    try:
        uid = pwd.getpwnam(user).pw_uid if number is None else number
    except (KeyError, ValueError):
        uid = -1
    if not 0 <= uid < (1 << 32) - 1:
        raise click.UsageError(f"-u {quote(user)}: no such user")
    return uid


def _fail(message: str) -> NoReturn:
    click.echo(f"bccn-sbusd: {message}", err=True)
    sys.exit(1)
