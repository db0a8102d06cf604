"""One daemon for several tests: settings for a while, verdicts since a moment, names for senders, its gateways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness import Daemon

_NUMBERS: Final = count(1)


def new_src(program: str = "peer") -> str:
    """A source that no test has used."""
    return f"relay02/{program}/{next(_NUMBERS)}"


@contextmanager
def in_force(daemon: Daemon, **settings: Any) -> Iterator[None]:
    """Replace sections of the configuration by a reload, and put back what was there."""
    before = {name: daemon.settings.get(name) for name in settings}
    daemon.settings.update(settings)
    daemon.configure({})
    daemon.reload()
    try:
        yield
    finally:
        daemon.settings.update(before)
        for name in (name for name, section in before.items() if section is None):
            del daemon.settings[name]
        daemon.configure({})
        daemon.reload()


class Since:
    """Counts of a daemon since this was made."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._verdicts = Counter(daemon.verdicts())

    def verdicts(self) -> dict[str, int]:
        return dict(Counter(self._daemon.verdicts()) - self._verdicts)


def gateways(daemon: Daemon, name: str = "--gateway") -> list[int]:
    """The processes of a daemon's gateways, or of that which has this name."""
    found = []
    with suppress(FileNotFoundError):
        for child in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split():
            with suppress(FileNotFoundError):
                if name.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                    found.append(int(child))
    return found


def has_peers(daemon: Daemon, count: int) -> bool:
    """Whether the links of a daemon have so many peers."""
    return daemon.metric("gateway_peers", gateway="nng") == count
