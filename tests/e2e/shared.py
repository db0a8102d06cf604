"""Datagrams of all verdicts, settings for a while, and what a daemon knows of its gateways and of its fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import bccnd
from bccnd.cli.shared.connection import fetch_listing
from tests.e2e.harness import KEY, Daemon, datagram, wait

_NUMBERS: Final = count(1)
#: one of each verdict that a stranger can bring about, in an order in which each of them gets its own
BY_VERDICT: Final = {
    "accepted": datagram("relay02/s/1", 5005, "demo/x", b"one", KEY),
    "duplicate": datagram("relay02/s/1", 5005, "demo/x", b"one", KEY),
    "integrity_failed": datagram("relay02/s/1", 5006, "demo/x", b"forged \x1b[31m", b"another key, not ours"),
    "integrity_missing": datagram("relay02/s/1", 5006, "demo/x", b"unsigned"),
    "integrity_unknown": b"BCCN1[23:crc32=01234567]relay02/s/1:2:demo/x|ab",
    "length_mismatch": b"BCCN1[999]relay02/s/1:2:demo/x|short",
    "bad_envelope": b"\x1b]0;owned\x07 no datagram at all",
    "bad_body": datagram("relay02/s/1", 5006, "demo:x", b"", KEY),
    "bad_src": datagram("relay02/*", 5006, "demo/x", b"", KEY),
    "bad_channel": datagram("relay02/s/1", 5006, "demo x", b"", KEY),
    "bad_target": datagram("relay02/s/1", 5006, "!?", b"", KEY),
    "bad_seq": datagram("relay02/s/1", 2**64, "demo/x", b"", KEY),
    "not_addressed": datagram("relay02/s/1", 5006, "!relay99/nobody", b"", KEY),
    "oversize": datagram("relay02/s/1", 5007, "demo/x", b"x" * 1500, KEY),
    "unsupported_version": datagram("relay02/s/1", 5007, "demo/x", b"", KEY).replace(b"BCCN1", b"BCCN2"),
    "stale": datagram("relay02/s/1", 5004, "demo/x", b"late", KEY),
    "restart": datagram("relay02/s/1", 1, "demo/x", b"anew", KEY),
}


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


def known_to(daemon: Daemon) -> dict[str, list[dict[str, Any]]]:
    """What `bccn fleet` shows; to be asked often, as it starts no program."""
    found: dict[str, list[dict[str, Any]]] = {"hosts": [], "links": [], "findings": []}
    with bccnd.connect(str(daemon.bus)) as bus:
        for row in fetch_listing(bus, "fleet"):
            for name, item in row.items():
                found[name].append(item)
    return found


def await_link(daemon: Daemon, receiver: str, sender: str, **least: int) -> None:
    """Wait until a daemon knows that of a sender a receiver has received, or lost, so much."""

    def known() -> bool:
        rows = [one for one in known_to(daemon)["links"] if (one["receiver"], one["sender"]) == (receiver, sender)]
        return bool(rows) and all(rows[0][name] >= count for name, count in least.items())

    wait(known, f"{receiver} from {sender}: {least}")
