"""`bccn top`: shows the figures of top_model on a terminal, also after restarts of the daemon; or prints them once."""

from __future__ import annotations

import contextlib
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

from bccnd.cli.diagnosis import top_model as model
from bccnd.cli.diagnosis.fleet import loss_rate
from bccnd.cli.diagnosis.top_model import Figures, Look, Row, TrafficCount
from bccnd.cli.shared.connection import explain, fetch_listing, open_bus
from bccnd.cli.shared.options import json_option
from bccnd.cli.shared.output import fail, to_json, visible
from bccnd.cli.shared.parameter_types import Duration
from bccnd.client.bus import Connection, connect
from bccnd.client.event_queues import Gap
from bccnd.client.message import Message
from bccnd.errors import BusError
from bccnd.snapshot import ClientState, DaemonSummary, GatewayState, SourceState, read_rows
from bccnd.waiting_io import read_input

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

#: the share of the time that fetching the sources, which may be many, may take
_SHARE: Final = 0.05
#: messages counted before the keyboard is checked
_TURN: Final = 256
#: keys that end the command: q, Ctrl-C and Ctrl-D
_QUIT: Final = frozenset(b"qQ\x03\x04")
#: the size without a terminal
_WIDTH, _HEIGHT = 100, 40

#: styles by state
_STATES: Final = {"alive": "green", "silent": "yellow", "dead": "red"}

#: a text with its style
Item = tuple[str, str]


class Collector:
    """Fetches listings of the daemon, and receives all messages to count them."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._bus: Connection | None = None
        self._traffic = TrafficCount()
        self._since = 0.0
        self._sources: list[SourceState] = []
        self._worst_links: list[Row] = []
        self._sources_due = 0.0
        #: why no messages are counted; empty if they are
        self.deaf = ""

    def fetch(self) -> Look:
        """Look at the daemon; connect first if there is no connection. Raises BusError."""
        connected = self._bus is not None
        bus = self._bus = self._bus or connect(self._path, reconnect=False)
        if not connected:
            self._sources_due = 0.0
        at = time.monotonic()
        (daemon,) = read_rows(DaemonSummary, fetch_listing(bus, "daemon"))
        clients = read_rows(ClientState, fetch_listing(bus, "clients"))
        started = time.monotonic()
        if started >= self._sources_due:
            self._sources = read_rows(SourceState, fetch_listing(bus, "sources"))
            self._worst_links = list(fetch_listing(bus, "worst_links"))
            took = time.monotonic() - started
            self._sources_due = started + took / _SHARE if took > 0.01 else 0.0
        gateways = read_rows(GatewayState, fetch_listing(bus, "gateways"))
        look = Look(at, daemon, clients, self._sources, gateways, self._worst_links)
        if not connected:
            bus.subscribe("")
            refusals = bus.sync()
            self.deaf = explain(refusals[0]) if refusals else ""
            self.take_traffic()
        return look

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def take_traffic(self) -> tuple[TrafficCount, float]:
        """Return the messages counted since the last call, and the seconds since then."""
        traffic, since = self._traffic, self._since
        self._traffic, self._since = TrafficCount(), time.monotonic()
        return traffic, self._since - since

    def count_until(self, until: float, keyboard: int | None) -> bool:
        """Count messages until then (monotonic); return True as soon as a key ends the command. Raises BusError."""
        poll = select.poll()
        if keyboard is not None:
            poll.register(keyboard, select.POLLIN)
        bus = self._bus
        if bus is not None:
            self._count(bus)
            poll.register(bus.fileno(), select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(max(1, left * 1000)):
                if fd == keyboard:
                    typed = read_input(fd, 64)
                    if not typed or _QUIT.intersection(typed):
                        return True
                elif bus is not None:
                    self._count(bus)
        return False

    def _count(self, bus: Connection) -> None:
        for _ in range(_TURN):
            event = bus.receive(0)
            if event is None:
                return
            if isinstance(event, Message):
                self._traffic.add(event.chan, event.src, len(event.payload))
            elif isinstance(event, Gap):
                self._traffic.lost += event.lost


# -- drawing


class _Listing(NamedTuple):
    """Titles, and rows of texts with a style for each."""

    titles: list[str]
    rows: list[tuple[list[str], str]]


def draw(shown: Figures, console: Console, now: float, note: str = "", deaf: str = "") -> Group:
    """Draw what fits on a console. ``now`` is the wall clock; ``note`` and ``deaf`` are shown as well."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.table import Column, Table
    from rich.text import Text

    daemon, width = shown.daemon, console.width
    segments = ", ".join(daemon.segments) or "no segment"
    uptime = model.span(now - daemon.started)
    title = visible(f"bccnd {daemon.version} on {daemon.host}, up {uptime}, {segments}")
    notes = [note, f"channels and senders are not counted: {deaf}" if deaf else ""]
    first_line = Table.grid(Column(ratio=1, no_wrap=True), Column(), expand=True, padding=(0, 0, 0, 2))
    first_line.add_row(Text(title, "bold"), Text(time.strftime("%H:%M:%S", time.localtime(now)), "bold"))
    head = Group(
        first_line,
        *(
            Columns([Text(label, "bold"), *(Text(visible(text), style) for text, style in items)], padding=(0, 2))
            for label, items in (("/s", _rates(shown)), ("lost", _losses(shown)), ("now", _counts(shown)))
        ),
        Text("; ".join(visible(one) for one in notes if one), "bold yellow", no_wrap=True, overflow="ellipsis"),
    )
    missed = f" (missed {model.count(shown.unheard)})" if shown.unheard else ""
    bands = [
        [_busy(f"channel{missed}", shown.busy_channels), _busy("sender", shown.busy_senders)],
        [_clients(shown), _sources(shown)],
        [_links("gateway", shown.gateways), _links("peer", shown.peers)] if shown.gateways else [],
        [_fleet(shown)] if shown.worst_links else [],
    ]
    bands = [band for band in bands if band]
    room = console.height - len(console.render_lines(head)) - 2 * len(bands)
    body = Table.grid(expand=True)
    for band, rows in zip(bands, _share(room, [max(len(one.rows) for one in band) for band in bands]), strict=True):
        pair = Table.grid(*(Column(ratio=1) for _ in band), expand=True, padding=(0, 2, 0, 0), pad_edge=False)
        pair.add_row(*(_table(one, rows, width // len(band) - 2) for one in band))
        body.add_row(pair)
        body.add_row("")
    return Group(head, body)


def _share(room: int, wanted: Sequence[int]) -> list[int]:
    """Divide rows: tables with few entries get as many as they have, the others get equal parts."""
    shares = [0] * len(wanted)
    for done, place in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[place] = max(0, min(wanted[place], (room - sum(shares)) // (len(wanted) - done)))
    return shares


def _table(listing: _Listing, rows: int, width: int) -> Table:
    """Return a table of so many rows; its first column takes what the others, of 6 or 8 cells, leave of ``width``."""
    from rich.table import Table

    sizes = [8 if title == "silent" else 6 for title in listing.titles[1:]]
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold reverse")
    table.add_column(listing.titles[0], ratio=1, no_wrap=True)
    for title, size in zip(listing.titles[1:], sizes, strict=True):
        table.add_column(title, width=size, justify="right", no_wrap=True)
    for texts, style in listing.rows[:rows]:
        name = _shorten(visible(texts[0]), width - sum(sizes) - len(sizes))
        table.add_row(name, *map(visible, texts[1:]), style=style)
    return table


def _shorten(name: str, width: int) -> str:
    """Cut the middle out of a long name, as names of one program differ at the end."""
    kept = max(1, (width - 1) // 2)
    return name if len(name) <= width else f"{name[:kept]}~{name[-kept:]}"


def _rates(shown: Figures) -> Iterator[Item]:
    styles = {"dropped": "yellow", "integrity": "red", "bad": "red", "looped": "dim"}
    kinds = ("received", "delivered", "dropped", "integrity", "bad", "looped", "sent", "published", "deliveries")
    for name in kinds:
        value = shown.rates.get(name)
        yield f"{name} {model.rate(value)}", styles.get(name, "") if value else ""


def _losses(shown: Figures) -> Iterator[Item]:
    losses = [(name.replace("_", " "), total, shown.new[name]) for name, total in shown.losses.items()]
    dropped = [(name, total, shown.dropped_now.get(name)) for name, total in shown.daemon.dropped.items() if total]
    for name, total, new in (*losses, *dropped):
        yield f"{name} {model.count(total)}" + (f" (+{model.count(new)})" if new else ""), "red" if new else ""


def _counts(shown: Figures) -> Iterator[Item]:
    daemon = shown.daemon
    yield f"clients {model.count(daemon.clients)}", ""
    yield f"subscriptions {model.count(daemon.subscriptions)}", ""
    yield f"queued {model.size(daemon.queue_bytes)}", "yellow" if daemon.queue_bytes else ""
    yield f"sources {model.count(daemon.sources)}", ""
    for state, number in shown.states.items():
        yield f"{state} {model.count(number)}", _STATES[state] if number else ""


def _busy(title: str, rows: Sequence[Row]) -> _Listing:
    found = [([row["name"], model.rate(row["messages"]), model.size(row["bytes"])], "") for row in rows]
    return _Listing([title, "msg/s", "B/s"], found)


def _clients(shown: Figures) -> _Listing:
    rows = []
    for row in shown.worst_clients:
        style = "red" if row["lost_now"] else "yellow" if row["queued"] or row["waits"] else ""
        published = "waits" if row["waits"] else model.rate(row["published"])
        rows.append(([row["identity"], model.size(row["queued_bytes"]), model.count(row["lost"]), published], style))
    return _Listing(["client", "queued", "lost", "pub/s"], rows)


def _sources(shown: Figures) -> _Listing:
    rows = []
    for row in shown.troubled_sources:
        texts = [row["src"], row["state"], model.span(row["silent_seconds"]), model.count(row["missing"])]
        rows.append((texts, _STATES.get(row["state"], "")))
    return _Listing(["in trouble", "state", "silent", "miss"], rows)


def _links(title: str, links: Sequence[Row]) -> _Listing:
    rows = []
    for row in links:
        peers = "" if row["peers"] is None else f" ({model.count(row['peers'])} peers)" if row["up"] else " (DOWN)"
        numbers = [model.rate(row["received"]), model.rate(row["sent"]), model.count(row["dropped"])]
        rows.append(([row["name"] + peers, *numbers], "red" if not row["up"] or row["dropped_now"] else ""))
    return _Listing([title, "in/s", "out/s", "drop"], rows)


def _fleet(shown: Figures) -> _Listing:
    rows = []
    for row in shown.worst_links:
        due = row["received"] + row["lost"]
        texts = [f"{row['receiver']} of {row['sender']}", model.count(row["lost"]), model.count(due)]
        rows.append(([*texts, loss_rate(row)], "red"))
    return _Listing(["loss between hosts, in the last minute or two", "lost", "of", "rate"], rows)


@click.command()
@click.option("--interval", metavar="TIME", type=Duration(0.1, 3600), default="1s", help="Time between two updates.")
@click.option("--once", is_flag=True, help="Print the figures of one interval, and end.")
@json_option("With --once: print a JSON object.")
@click.pass_obj
def top(path: str | None, /, interval: float, once: bool, as_json: bool) -> None:
    """Watch the daemon: rates, losses, queues, busiest channels and senders, programs in trouble, and the worst links.

    \b
      bccn top
      bccn top --interval 5s
      bccn top --once --json | jq .rates

    Press q or Ctrl-C to end. After a restart of the daemon, the command reconnects. Rates are per second. Losses are
    totals, as in the metrics, followed by + and the new ones. To count channels and senders, the command subscribes to
    everything, which costs the daemon as much as any other such client. These counts exclude messages to one program,
    and are marked if this command was too slow to count all. Clients with losses or waiting messages come first;
    sources are those that are silent, dead or have missing messages. The last lines are the worst links of the fleet:
    which host loses messages from which other, by their reports.
    """
    if as_json and not once:
        raise click.UsageError("--json needs --once")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("standard output is not a terminal: use --once")
    with open_bus(path) as bus:
        list(fetch_listing(bus, "daemon"))  # so that errors are reported as by every other command
    with contextlib.closing(Collector(path)) as collector:
        if once:
            _print_once(collector, interval, as_json)
        else:
            _show(collector, interval)


def _print_once(collector: Collector, interval: float, as_json: bool) -> None:
    try:
        before = collector.fetch()
        collector.count_until(time.monotonic() + interval, None)
        shown = model.figures(before, collector.fetch(), *collector.take_traffic())
    except BusError as error:
        fail(error.detail)
    if as_json:
        rest = {name: value for name, value in vars(shown).items() if name != "daemon"}
        click.echo(to_json(vars(shown.daemon) | rest | {"deaf": collector.deaf}))
        return
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(width=width, height=_HEIGHT, markup=False, highlight=False, emoji=False)
    console.print(draw(shown, console, time.time(), deaf=collector.deaf))


def _show(collector: Collector, interval: float) -> None:
    """Show new figures after each interval, until a key ends the command."""
    from rich.console import Console
    from rich.live import Live

    console = Console(markup=False, highlight=False, emoji=False)
    before: Look | None = None
    shown: Figures | None = None
    away = note = ""
    ended = interrupted = False

    def interrupt(_number: int, _frame: object) -> NoReturn:
        nonlocal interrupted
        interrupted = True  # Python ignores what is raised in some places, as while it imports a module
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)

    live = Live(console=console, screen=True, auto_refresh=False)

    def show(figures: Figures, note: str) -> None:
        live.update(draw(figures, console, time.time(), note, collector.deaf), refresh=True)

    with contextlib.suppress(KeyboardInterrupt), _open_keyboard() as keyboard, live:
        while not (ended or interrupted):
            until = time.monotonic() + interval
            clock = time.strftime("%H:%M:%S")
            try:
                after = collector.fetch()
                if away:
                    note, away = f"the daemon was away until {clock}", ""
                if model.restarted(before, after):
                    note = f"the daemon was restarted at {clock}"
                shown = model.figures(before, after, *collector.take_traffic())
                before = after
                show(shown, note)
                ended = collector.count_until(until, keyboard)
            except BusError as error:
                collector.close()
                away = away or clock
                if shown is not None:
                    show(shown, f"AWAY since {away}: {error.detail}")
                ended = collector.count_until(until, keyboard)


@contextlib.contextmanager
def _open_keyboard() -> Iterator[int | None]:
    """Yield the descriptor on which single keys arrive, None without a keyboard; restore the terminal at the end."""
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
