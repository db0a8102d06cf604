"""The log of a real daemon: in a journal, with fields and ids, on a terminal, in a pipe, and where nothing reads it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bccnd.log.events import EVENTS
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, acting_as, datagram, seqpacket, wait
from tests.log.journals import JournalSocket
from tests.support import NOBODY, need_root

#: puts a folder in the place where every daemon looks for the journal, for one process only
IN_PLACE = (
    'mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind "$0" /run/systemd/journal && exec "$@"'
)


class Journaled(Daemon):
    """A daemon whose standard error is the journal, as the service manager does it."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        need_root("a journal where the daemon looks for it")
        folder.mkdir(mode=0o700)
        self.journal = JournalSocket(folder / "journal/socket")
        self.stream, self._theirs = socket.socketpair()
        self.stream.setblocking(False)
        self.entries: list[dict[str, bytes]] = []
        super().__init__(folder, settings, start=False)

    def spawn(self) -> subprocess.Popen[bytes]:
        info = os.fstat(self._theirs.fileno())
        command = [str(BIN / "bccnd"), "--config", str(self.config)]
        return subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", IN_PLACE, str(self.folder / "journal"), *command],
            stdin=subprocess.DEVNULL,
            stderr=self._theirs.fileno(),
            env={**os.environ, "JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"},
        )

    def output(self) -> str:
        self.entries += self.journal.waiting()
        return "\n".join(entry["MESSAGE"].decode() for entry in self.entries)

    def reported(self, event: str, number: int = 0) -> dict[str, bytes]:
        """An entry about an event; it has the fields that every entry has, and those of this event."""
        wait(lambda: len(self._all(event)) > number, f"{event} in:\n{self.output()}")
        entry = self._all(event)[number]
        known = EVENTS[event]
        assert entry["MESSAGE_ID"] == known.id.encode()
        assert entry["SYSLOG_IDENTIFIER"] == b"bccnd"
        assert entry["PRIORITY"] in (b"3", b"4", b"6")
        for field in known.fields:
            assert f"BCCND_{field.upper()}" in entry, field
        if entry["PRIORITY"] != b"6":
            assert entry["BCCND_REMEDY"] in entry["MESSAGE"]
        return entry

    def _all(self, event: str) -> list[dict[str, bytes]]:
        self.output()
        return [entry for entry in self.entries if entry.get("BCCND_EVENT") == event.encode()]

    def close(self) -> None:
        """Close; nothing was written to the standard error that is not in the journal."""
        with pytest.raises(BlockingIOError):
            self.stream.recv(100)
        self.stream.close()
        self._theirs.close()
        self.journal.close()


@pytest.fixture
def journaled(tmp_path: Path) -> Iterator[Journaled]:
    daemon = Journaled(tmp_path / "a")
    yield daemon
    daemon.close()


def test_the_life_of_a_daemon_is_in_the_journal(journaled: Journaled) -> None:
    journaled.start()
    with journaled:
        assert journaled.reported("ready")["PRIORITY"] == b"6"
        journaled.reload()
        journaled.reported("reload_applied")
        journaled.configure({"host": "other"})
        journaled.reload()
        assert journaled.reported("restart_needed")["BCCND_SETTING"] == b"host"
        journaled.config.write_text("segment: []\ndedup: {horizon: soon}\n")
        journaled.reload()
        refused = journaled.reported("reload_refused")
        assert (refused["PRIORITY"], refused["BCCND_REASON"]) == (b"3", b"bad_configuration")
        assert b"segments?" in refused["MESSAGE"]
        assert b"'soon'" in refused["MESSAGE"]
    assert journaled.reported("stopped")["PRIORITY"] == b"6"
    # And now it cannot even start.
    for number, reason in enumerate((b"segments?", b"nosuch0")):
        assert journaled.spawn().wait(PATIENCE) == 2
        entry = journaled.reported("start_refused", number)
        assert entry["PRIORITY"] == b"3"
        assert reason in entry["MESSAGE"]
        journaled.configure({"segments": [{"interface": "nosuch0"}]})


def test_a_client_that_does_wrong_is_in_the_journal_with_all_that_is_known_of_it(journaled: Journaled) -> None:
    address = f"bccnd-journal-{os.getpid()}"
    bus = {"user": {"clients": 2}, "sockets": [{"path": f"@{address}", "mode": "0666"}]}
    journaled.configure({"access": [{"publish": ["a/"]}], "bus": bus})
    journaled.start()
    key = b"b\x1b[2J\nPRIORITY=0"
    with journaled, ExitStack() as stack:
        with acting_as(NOBODY):
            first, *_ = [stack.enter_context(seqpacket(f"\0{address}")) for _ in range(3)]
        first.send(b"MSG " + key + b"\0x")
        entry = journaled.reported("not_permitted")
        assert (entry["BCCND_CHANNEL"], entry["PRIORITY"]) == (key, b"4")
        assert (entry["BCCND_UID"], entry["BCCND_PID"]) == (b"%d" % NOBODY, b"%d" % os.getpid())
        assert entry["BCCND_IDENTITY"] == b"relay01/%b/%b" % (entry["BCCND_PROGRAM"], entry["BCCND_PID"])
        assert b"\x1b" not in entry["MESSAGE"]
        refused = journaled.reported("client_refused")
        assert (refused["BCCND_REASON"], refused["BCCND_COUNT"]) == (b"too_many_clients_of_user", b"1")
        assert "BCCND_IDENTITY" not in refused


def test_what_may_be_an_attack_is_in_the_journal_once_with_its_number(journaled: Journaled) -> None:
    journaled.configure(
        {
            "integrity": journaled.with_key(KEY),
            "dedup": {"freshness": "monotonic"},
            "segments": [{**journaled.settings["segments"][0], "name": "hall"}],
        }
    )
    journaled.start()
    with journaled, Wire(journaled.port) as wire:
        bad = datagram("relay02/x/1", 5, "a", b"x", key=b"another key of thirty-two bytes.")
        unknown = datagram("relay02/x/1", 5, "a", b"x").replace(b"]", b":crc32=00000000]", 1)
        wire.send(*[bad] * 3, *[datagram("relay02/x/1", 5, "a", b"x")] * 4, *[unknown] * 5)
        wire.send(*[datagram("relay02/x/1", seq, "a", b"x", key=KEY) for seq in (10_000, 1, 2)])
        total = 3 + 4 + 5 + 3
        wait(lambda: sum(journaled.verdicts().values()) == total, "all to be read")
        found: dict[bytes, int] = {}
        for number in range(4):
            entry = journaled.reported("datagrams_refused", number)
            assert entry["BCCND_SEGMENT"] == b"hall"
            assert b"bccn tap --refused" in entry["BCCND_REMEDY"]
            found[entry["BCCND_VERDICT"]] = found.get(entry["BCCND_VERDICT"], 0) + int(entry["BCCND_COUNT"])
        assert set(found) == {b"integrity_failed", b"integrity_missing", b"integrity_unknown", b"replayed"}
        assert journaled.verdicts() == {"accepted": 1, **{name.decode(): count for name, count in found.items()}}
        # More of the same is not logged for a minute.
        wire.send(*[bad] * 50)
        wait(lambda: journaled.verdicts()["integrity_failed"] == 53, "the rest to be read")
        time.sleep(1.2)
        journaled.output()
        assert sum(entry.get("BCCND_EVENT") == b"datagrams_refused" for entry in journaled.entries) == 4
