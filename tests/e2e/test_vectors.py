"""The table of vectors through real daemons: the same verdicts, the same messages to a client."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bccnd
from tests import vectors
from tests.e2e.harness import PATIENCE, Daemon, Wire
from tests.vectors import AT_DOORS, DELIVERED, DOORS, KEYS, DoorVectors, Fields

#: datagrams sent at once: no more than the smallest receive buffer holds
BURST = 32


def integrity(daemon: Daemon, at: DoorVectors) -> dict[str, Any]:
    """The section of the configuration for a door, its keys in files."""
    for name, key in KEYS.items():
        for path, data in [(name, key.secret or key.private), (f"{name}.pub", key.public)]:
            if data:
                (daemon.folder / path).write_bytes(data)
                (daemon.folder / path).chmod(0o600)
    return {
        "algorithm": at.algorithm,
        "keys": list(at.keys),
        "signers": {prefix: [f"{name}.pub" for name in names] for prefix, names in at.signers.items()},
        "required": at.required,
        "unverifiable": at.unverifiable,
    }


Short = tuple[str, int, str, bytes, str]


def short(fields: Fields) -> Short:
    """What a client gets to know of a message, but for the address and the time."""
    return fields.src.decode(), fields.seq, fields.chan.decode(), fields.payload, fields.form


def between(at: DoorVectors, number: int) -> tuple[bytes, Short]:
    """A datagram that every door lets in, and its message. It comes between any two of the table."""
    fields = Fields(b"relay01/between/1", number, b"between", b"", b"")
    return vectors.sealed(at.signs, b"relay01/between/1:%d:between|" % number), short(fields)


def received(client: bccnd.Connection, count: int) -> list[Short]:
    """The next messages of a client."""
    got: list[Short] = []
    while len(got) < count:
        event = client.receive(PATIENCE)
        assert isinstance(event, bccnd.Message), f"{event} behind {got[-3:]}"
        got.append(event[:5])
    return got


@pytest.mark.parametrize("at", DOORS.values(), ids=vectors.name_of)
def test_a_daemon_gives_the_verdicts_of_its_door(tmp_path: Path, at: DoorVectors) -> None:
    # Many vectors have the same src and seq. As only one source is remembered, what comes between two of them makes
    # the daemon forget the first; and it shows behind which of them a client got what.
    chosen = [vector for door, vector in AT_DOORS if door is at]
    daemon = Daemon(tmp_path / "a", {"dedup": {"max_sources": 1}}, start=False)
    daemon.configure({"integrity": integrity(daemon, at)})
    daemon.start()
    with daemon:
        with daemon.connect("") as client, Wire(daemon.port) as wire:
            for first in range(0, len(chosen), BURST):
                expected: list[Short] = []
                for number, vector in enumerate(chosen[first : first + BURST], start=first):
                    mark, message = between(at, number)
                    wire.send(vector.datagram, mark)
                    if vector.verdict in DELIVERED:
                        assert vector.fields is not None
                        expected.append(short(vector.fields))
                    expected.append(message)
                assert received(client, len(expected)) == expected
            assert client.sync(PATIENCE) == []
            assert client.receive(0) is None
        totals = Counter(vector.verdict for vector in chosen)
        totals["accepted"] += len(chosen)
        assert daemon.verdicts() == totals
