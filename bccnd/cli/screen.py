"""`bccn top`: the figures of top.py on a terminal, again and again, as long as somebody looks.

Law: it asks the daemon for little, and for less the longer the answer takes. A daemon that is away is waited for, and
the terminal is always left as it was found.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from bccnd.cli import top as model
from bccnd.cli.show import cells, cut, explain, fail, failure, listing, the_bus, visible
from bccnd.cli.top import Busy, ClientRow, Figures, GatewayRow, Look, SourceRow, Tally
from bccnd.client.bus import Connection, Gap, connect
from bccnd.client.message import Message
from bccnd.errors import BusError

if TYPE_CHECKING:
    from rich.text import Text

#: the longest of the listings that grow may take this part of the time
_SHARE: Final = 0.05
#: messages counted between two looks at the keyboard
_TURN: Final = 256
#: keys that end it: q, and what a terminal sends for Ctrl-C and Ctrl-D where it does not signal them
_ENOUGH: Final = frozenset(b"qQ\x03\x04")
#: how it looks where no terminal says how large it is
_WIDTH: Final = 100
_HEIGHT: Final = 40


# -- looking


class Watch:
    """Two connections to the daemon: one that asks, one that hears everything and counts it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._asks: Connection | None = None
        self._hears: Connection | None = None
        self._tally = Tally()
        self._since = 0.0
        self._sources: tuple[dict[str, Any], ...] = ()
        self._sources_due = 0.0
        #: why nothing is heard; empty when it is
        self.deaf = ""

    def open(self) -> Look:
        """Begin. Raises BusError."""
        self.close()
        self._asks = connect(self._path, reconnect=False)
        self._sources_due = 0.0
        first = self.look()
        self.deaf = self._begin_to_hear()
        self._tally, self._since = Tally(), time.monotonic()
        return first

    def _begin_to_hear(self) -> str:
        """Why nothing is heard; empty when it is. Who cannot hear can still ask."""
        try:
            self._hears = connect(self._path, reconnect=False)
            self._hears.subscribe("")
            refusals = self._hears.sync()
        except BusError as error:
            if self._hears is None:
                return error.detail
            why = failure(self._hears, error)
            self._hears.close()
            self._hears = None
            return why
        return explain(refusals[0]) if refusals else ""

    def close(self) -> None:
        for connection in (self._asks, self._hears):
            if connection is not None:
                connection.close()
        self._asks = self._hears = None

    def look(self) -> Look:
        """Ask for what can be asked for. Raises BusError."""
        asks = self._asks
        if asks is None:
            raise BusError("connection_lost", "")
        at = time.monotonic()
        (daemon,) = listing(asks, "daemon")
        clients = tuple(listing(asks, "clients"))
        started = time.monotonic()
        if started >= self._sources_due:
            self._sources = tuple(listing(asks, "sources"))
            took = time.monotonic() - started
            self._sources_due = started + took / _SHARE if took > 0.01 else 0.0
        return Look(at, daemon, clients, self._sources, self._look_at_gateways(asks))

    @staticmethod
    def _look_at_gateways(asks: Connection) -> tuple[dict[str, Any], ...]:
        try:
            return tuple(listing(asks, "gateways"))
        except BusError as error:
            if error.reason == "unknown_listing":  # a daemon older than this tool
                return ()
            raise

    def heard(self) -> tuple[Tally, float]:
        """What was heard since the last time, and in how many seconds."""
        tally, since = self._tally, self._since
        self._tally, self._since = Tally(), time.monotonic()
        return tally, self._since - since

    def listen(self, until: float, keys: int | None) -> bool:
        """Count what comes until then (monotonic); True as soon as somebody has had enough. Raises BusError."""
        poll = select.poll()
        if keys is not None:
            poll.register(keys, select.POLLIN)
        hears = self._hears
        if hears is not None:
            poll.register(hears.fileno(), select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(max(1, left * 1000)):
                if fd == keys:
                    typed = os.read(fd, 64)
                    if not typed or _ENOUGH.intersection(typed):
                        return True
                elif hears is not None:
                    self._hear(hears)
        return False

    def _hear(self, hears: Connection) -> None:
        tally = self._tally
        for _ in range(_TURN):
            event = hears.receive(0)
            if event is None:
                return
            if isinstance(event, Message):
                tally.add(event.chan, event.src, len(event.payload))
            elif isinstance(event, Gap):
                tally.lost += event.lost


# -- drawing


def draw(shown: Figures, width: int, height: int, now: float, note: str = "", deaf: str = "") -> list[Text]:
    """Lines that fit; ``now`` is the wall clock, ``note`` what there is to say beside."""
    from rich.text import Text

    lines = [*_head(shown, width, now), *_rates(shown, width), *_losses(shown, width), *_counts(shown, width)]
    notes = [note, f"channels and senders are not heard: {deaf}" if deaf else ""]
    lines.append(Text(cut("; ".join(visible(one) for one in notes if one), width), "bold yellow"))
    half = (width - 2) // 2
    room = max(4, height - len(lines) - 1)
    below = 1 + max(1, len(shown.worst_clients), len(shown.troubled_sources))
    upper = min(1 + max(1, len(shown.busy_channels), len(shown.busy_senders)), room - min(below, room // 2))
    lower = room - upper
    ways = min(1 + max(len(shown.gateways), len(shown.peers)), lower // 2) if shown.gateways else 0
    lower -= ways + 1 if ways else 0
    missed = f"missed {model.count(shown.unheard)}" if shown.unheard else ""
    tables = [
        (_busy("channel", shown.busy_channels, half, upper, missed), _busy("sender", shown.busy_senders, half, upper)),
        (_clients(shown.worst_clients, half, lower), _sources(shown.troubled_sources, half, lower)),
    ]
    if ways:
        tables.append((_ways("gateway", shown.gateways, half, ways), _ways("peer", shown.peers, half, ways)))
    for number, (left, right) in enumerate(tables):
        if number:
            lines.append(Text(""))
        for one in range(max(len(left), len(right))):
            line = left[one].copy() if one < len(left) else Text(" " * half)
            line.append("  ")
            line.append_text(right[one] if one < len(right) else Text(""))
            lines.append(line)
    for line in lines:
        line.truncate(width)
    return lines[:height]


def _head(shown: Figures, width: int, now: float) -> list[Text]:
    from rich.text import Text

    where = ", ".join(visible(name) for name in shown.segments) or "no segment"
    text = f"bccnd {visible(shown.version)} on {visible(shown.host)}, up {model.span(now - shown.started)}, {where}"
    end = time.strftime("  %H:%M:%S", time.localtime(now))
    return [Text(_filled(text, width - len(end)) + end, "bold")]


def _rates(shown: Figures, width: int) -> list[Text]:
    styles = {"dropped": "yellow", "integrity": "red", "bad": "red", "looped": "dim"}
    names = ("received", "delivered", "dropped", "integrity", "bad", "looped", "sent", "published", "deliveries")
    items = []
    for name in names:
        value = shown.rates.get(name)
        items.append((f"{name} {model.rate(value):>6}", styles.get(name, "") if value else ""))
    return _flow("/s", items, width)


def _losses(shown: Figures, width: int) -> list[Text]:
    items = []
    for name, total in shown.losses.items():
        new = f" (+{model.count(shown.new[name])})" if shown.new[name] else ""
        items.append((f"{name.replace('_', ' ')} {model.count(total)}{new}", "red" if new else ""))
    for reason, total in shown.dropped.items():
        if total:
            now = shown.dropped_now.get(reason)
            new = f" (+{model.count(now)})" if now else ""
            items.append((f"{visible(reason)} {model.count(total)}{new}", "red" if new else ""))
    return _flow("lost", items, width)


def _counts(shown: Figures, width: int) -> list[Text]:
    items = [
        (f"clients {model.count(shown.clients)}", ""),
        (f"subscriptions {model.count(shown.subscriptions)}", ""),
        (f"queued {model.size(shown.queue_bytes)}", "yellow" if shown.queue_bytes else ""),
        (f"sources {model.count(shown.sources)}", ""),
    ]
    styles = {"alive": "green", "silent": "yellow", "dead": "red"}
    items += [
        (f"{state} {model.count(number)}", styles[state] if number else "") for state, number in shown.states.items()
    ]
    return _flow("now", items, width)


def _flow(label: str, items: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Items one after the other behind a label, none of them broken."""
    from rich.text import Text

    lines = [Text(f"{label:<5}", "bold")]
    for text, style in items:
        if lines[-1].cell_len > 5 and lines[-1].cell_len + len(text) > width:
            lines.append(Text(" " * 5))
        lines[-1].append(cut(text, width - 5), style)
        lines[-1].append("  ")
    return lines


def _busy(title: str, rows: Sequence[Busy], width: int, height: int, note: str = "") -> list[Text]:
    cells_of = [([row.name, model.rate(row.messages), model.size(row.bytes)], "") for row in rows]
    return _table([f"{title} ({note})" if note else title, "msg/s", "B/s"], (6, 6), cells_of, width, height)


def _clients(rows: Sequence[ClientRow], width: int, height: int) -> list[Text]:
    cells_of = []
    for row in rows:
        style = "red" if row.lost_now else "yellow" if row.queued or row.waits else ""
        said = "waits" if row.waits else model.rate(row.published)
        cells_of.append(([row.identity, model.size(row.queued_bytes), model.count(row.lost), said], style))
    return _table(["client", "queued", "lost", "pub/s"], (6, 6, 6), cells_of, width, height)


def _ways(title: str, rows: Sequence[GatewayRow], width: int, height: int) -> list[Text]:
    cells_of = []
    for row in rows:
        style = "red" if not row.up or row.dropped_now else ""
        peers = "" if row.peers is None else f" ({model.count(row.peers)} peers)" if row.up else " (DOWN)"
        numbers = [model.rate(row.received), model.rate(row.sent), model.count(row.dropped)]
        cells_of.append(([f"{row.name}{peers}", *numbers], style))
    return _table([title, "in/s", "out/s", "drop"], (6, 6, 6), cells_of, width, height)


def _sources(rows: Sequence[SourceRow], width: int, height: int) -> list[Text]:
    styles = {"silent": "yellow", "dead": "red"}
    cells_of = [
        ([row.src, row.state, model.span(row.silent_seconds), model.count(row.missing)], styles.get(row.state, ""))
        for row in rows
    ]
    return _table(["in trouble", "state", "silent", "miss"], (6, 8, 6), cells_of, width, height)


def _table(
    titles: Sequence[str], widths: Sequence[int], rows: Sequence[tuple[list[str], str]], width: int, height: int
) -> list[Text]:
    """A title and rows, exactly so wide; the first column takes what the others leave."""
    from rich.text import Text

    first = max(4, width - sum(widths) - len(widths))

    def line(texts: Sequence[str], style: str) -> Text:
        others = (f"{cut(visible(text), size):>{size}}" for text, size in zip(texts[1:], widths, strict=True))
        return Text(cut(" ".join((_filled(texts[0], first), *others)), width), style)

    return [line(titles, "bold reverse"), *(line(texts, style) for texts, style in rows[: height - 1])]


def _filled(name: str, width: int) -> str:
    """A name, exactly so wide; of a long one both ends, as names of one program differ at the end."""
    text = visible(name)
    width = max(1, width)
    if cells(text) > width:
        head = cut(text, width // 2)
        tail = text
        while cells(tail) > width - cells(head) - 1:
            tail = tail[1:]
        text = f"{head}~{tail}"
    return text + " " * (width - cells(text))


# -- bccn top


def print_once(path: str, interval: float, as_object: bool) -> None:
    """Print the figures of one interval."""
    with the_bus(path) as bus:
        list(listing(bus, "daemon"))  # so that what is wrong is said as by every other command
    eyes = Watch(path)
    try:
        before = eyes.open()
        eyes.listen(time.monotonic() + interval, None)
        after = eyes.look()
        shown = model.figures(before, after, *eyes.heard())
    except BusError as error:
        fail(error.detail)
    finally:
        eyes.close()
    if as_object:
        click.echo(json.dumps(asdict(shown) | {"deaf": eyes.deaf}))
        return
    from rich.console import Console

    console = Console(
        width=None if sys.stdout.isatty() else _WIDTH, markup=False, highlight=False, emoji=False, soft_wrap=True
    )
    for line in draw(shown, console.width, _HEIGHT, time.time(), deaf=eyes.deaf):
        line.rstrip()
        console.print(line)


def watch(path: str, interval: float) -> None:
    """Show figures until somebody has had enough."""
    from rich.console import Console, Group

    with the_bus(path) as bus:
        list(listing(bus, "daemon"))
    console = Console(markup=False, highlight=False, emoji=False)
    eyes = Watch(path)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    try:
        with _keys() as keys, console.screen() as screen:

            def show(shown: Figures, note: str) -> None:
                width, height = console.size
                screen.update(Group(*draw(shown, width, height, time.time(), note, eyes.deaf)))

            _refresh(eyes, interval, keys, show)
    except KeyboardInterrupt:
        pass
    finally:
        eyes.close()


def _refresh(watch: Watch, interval: float, keys: int | None, show: Callable[[Figures, str], None]) -> None:
    """Look again after each interval, for ever, or until somebody has had enough."""
    before: Look | None = None
    shown: Figures | None = None
    away: float | None = None
    connected = False
    note = ""
    while True:
        until = time.monotonic() + interval
        try:
            if not connected:
                after = watch.open()
                connected = True
                if away is not None:
                    note = f"the daemon was away, and is back since {time.strftime('%H:%M:%S')}"
                    away = None
            else:
                after = watch.look()
            if model.restarted(before, after):
                note = f"the daemon was restarted; back since {time.strftime('%H:%M:%S')}"
            shown = model.figures(before, after, *watch.heard())
            before = after
            show(shown, note)
            if watch.listen(until, keys):
                return
        except BusError as error:
            watch.close()
            connected = False
            away = away or time.time()
            if shown is not None:
                show(shown, f"AWAY since {time.strftime('%H:%M:%S', time.localtime(away))}: {error.detail}")
            if watch.listen(until, keys):
                return


def _end(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """The descriptor on which single keys come, if there is a keyboard."""
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
