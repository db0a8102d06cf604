"""The recorder beside a real daemon: what was sent is in the journal, once, and what is missing is accounted for."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import random
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bccnd.core.formats.tap_record import seq_of
from tests import prometheus
from tests.e2e.harness import PATIENCE, Daemon, Stream, Wire, datagram, wait
from tests.e2e.recorders import Recorder, files
from tests.kernel import open_to_others
from tests.recorder.material import names, table
from tests.support import cannot_here, free_port, need_root

SRC = "host-c/plain/7"
TICK = datetime.timedelta(milliseconds=10)


def daemon_with(folder: Path, recorder: dict[str, Any] | None = None, **settings: Any) -> Daemon:
    settings["recorder"] = {"journal": str(folder / "journal"), "rotate": 1, **(recorder or {})}
    return Daemon(folder / "a", settings)


def seqs(journal: Path) -> list[int]:
    return [seq_of(row["seq_key"]) for row in table(journal) if row["seq_key"] is not None]


def dense(rows: list[dict[str, Any]]) -> None:
    """No record twice and no number left out, in any journal."""
    numbers: dict[str, list[int]] = {}
    for row in rows:
        numbers.setdefault(row["journal_id"], []).append(row["rec_no"])
    for journal, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), journal


def test_the_journal_is_what_was_on_the_wire(tmp_path: Path) -> None:
    with daemon_with(tmp_path) as daemon, Recorder(daemon) as recorder, Wire(daemon.port) as wire:
        sent = [datagram(SRC, seq, f"x/{seq % 3}", f"payload {seq}") for seq in range(1, 301)]
        others = [b"junk", datagram(SRC, 300, "x"), datagram("h/p/1", 1, "!", b"to all"), b"BCCN2[3]abc"]
        others += [datagram("h/p/1", 2, "!relay99/x", b"for another")]
        wire.send(*sent[:150])
        wait(lambda: files(tmp_path / "journal"), "a file while it goes on")
        wire.send(*sent[150:], *others)
        with daemon.connect() as client:
            client.publish("own", b"ours")
            assert client.sync() == []
        wait(lambda: sum(daemon.verdicts().values()) == 306)
        verdicts = daemon.verdicts()
        assert not open_to_others(tmp_path / "journal")
        assert recorder.stop() == 0, recorder.output()
    assert not open_to_others(tmp_path / "journal")
    rows = table(tmp_path / "journal")
    dense(rows)
    assert Counter(row["verdict"] for row in rows) == verdicts
    ours = [row for row in rows if row["src"] == SRC and row["verdict"] == "accepted"]
    assert [(seq_of(row["seq_key"]), row["chan"], row["payload"], row["len"]) for row in ours] == [
        (seq, f"x/{seq % 3}", b"payload %d" % seq, len(sent[seq - 1])) for seq in range(1, 301)
    ]
    assert [row["form"] for row in rows if row["src"] == "h/p/1"] == ["all", "directed"]
    assert len(files(tmp_path / "journal")) > 1
    (session,) = table(tmp_path / "journal", "sessions")
    # The daemon's clock moves on every few milliseconds, and of the last ones nothing is claimed.
    assert session["start_ts"] - TICK <= rows[0]["ts"] <= rows[-1]["ts"] <= session["end_ts"] + 3 * TICK
    assert (session["socket_drops"], session["tap_gaps"]) == (0, 0)
    assert names(tmp_path / "journal/.spool") == ["relay01/lock", "relay01/lock.files"]


def traffic_of(daemon: Daemon, rate: float = 2000) -> Stream:
    return Stream(daemon.port, rate, lambda seq: datagram(SRC, seq, "x", b"x" * (seq % 90)))


def accounted_for(journal: Path, traffic: Stream) -> int:
    """Nothing is there twice, and each session has all that was sent in its time, but for what it counts as not
    received from a busy daemon; how many more are missing."""
    rows = table(journal)
    dense(rows)
    found = [seq_of(row["seq_key"]) for row in rows]
    recorded = set(found)
    assert len(found) == len(recorded)
    sessions = [
        (int(one["start_ts"].timestamp() * 1e6), int(one["end_ts"].timestamp() * 1e6), int(one["tap_gaps"]))
        for one in table(journal, "sessions")
    ]
    missing = [sent for seq, sent in traffic.sent.items() if seq not in recorded]
    for start, end, gaps in sessions:
        # It was received a moment after it was sent.
        assert sum(start <= sent and sent + 20_000 <= end for sent in missing) <= gaps
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(sessions))
    return len(missing) - sum(gaps for _, _, gaps in sessions)


def spooled(spool: Path) -> bytes:
    """What is in the logs that wait for the journal."""
    found = b""
    for path in spool.rglob("*.log"):
        with suppress(FileNotFoundError):  # it has just become a file of the journal
            found += path.read_bytes()
    return found


@pytest.mark.slow
def test_what_is_wrong_has_a_status_and_a_remedy(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    for options, status, words in (
        ("--rotate soon", 2, "rotate"),
        ("--host a/b", 2, "host"),
        ("--journal nonsense://x", 1, "nonsense://x"),
        ("--journal /proc/nothing/journal", 1, "/proc/nothing/journal"),
        ("--config /nowhere/bccnd.yaml", 2, "/nowhere/bccnd.yaml"),
    ):
        recorder = Recorder(daemon, "--journal", str(tmp_path / "journal"), *options.split(), start=False)
        recorder.log.unlink(missing_ok=True)
        found, output = recorder.spawn().wait(PATIENCE), recorder.output()
        assert (found, words in output, "remedy" in output, "Traceback" in output) == (status, True, True, False), (
            output
        )


@pytest.mark.slow
def test_a_killed_recorder_loses_only_its_absence(tmp_path: Path) -> None:
    dice = random.Random(7)
    kills: list[tuple[float, float]] = []
    with daemon_with(tmp_path, {"rotate_size": "64KiB"}) as daemon:
        recorder = Recorder(daemon)
        with traffic_of(daemon) as traffic:
            for _ in range(6):
                time.sleep(dice.uniform(0.1, 0.7))
                killed = time.time()
                recorder.kill()
                recorder.start()
                kills.append((killed, time.time()))
        # A stop leaves to the next start what it cannot put into the journal in time.
        spool = tmp_path / "journal/.spool"
        wait(lambda: len(list(spool.rglob("*.log"))) <= 1, "the logs of all recorders to be in the journal")
        assert recorder.stop() == 0, recorder.output()
    assert 0 < accounted_for(tmp_path / "journal", traffic) < len(traffic.sent)
    # What is missing was sent while nothing was recorded, or less than a second before.
    sessions = table(tmp_path / "journal", "sessions")
    assert len(sessions) == 7
    kills.append((max(one["end_ts"] for one in sessions).timestamp(), math.inf))
    found = set(seqs(tmp_path / "journal"))
    lost = [sent / 1e6 for seq, sent in traffic.sent.items() if seq not in found]
    assert not [sent for sent in lost if not any(killed - 1 <= sent <= back for killed, back in kills)]
    assert names(tmp_path / "journal/.spool") == ["relay01/lock", "relay01/lock.files"]


@pytest.mark.slow
def test_where_the_daemon_is_killed_another_journal_begins(tmp_path: Path) -> None:
    with daemon_with(tmp_path) as daemon, Recorder(daemon) as recorder:
        with traffic_of(daemon) as traffic:
            for number in (1, 2):
                wait(lambda: len(recorder.journals()) == number, "the journal")  # noqa: B023
                wait(lambda: SRC.encode() in spooled(tmp_path / "journal/.spool"), "a record of it")
                if number == 1:
                    daemon.kill()
                    daemon.start()
        assert recorder.stop() == 0, recorder.output()
    accounted_for(tmp_path / "journal", traffic)
    assert {row["journal_id"] for row in table(tmp_path / "journal")} >= {recorder.journals()[0]}
    sessions = table(tmp_path / "journal", "sessions")
    assert [one["journal_id"] for one in sessions] == sorted(recorder.journals())


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    need_root("a file system of its own")
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        cannot_here(f"no mount: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Take all the room that there is."""
    with place.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.root
@pytest.mark.slow
def test_a_full_disk_pauses_recording_and_nothing_else(tmp_path: Path) -> None:
    """The disk of log and journal both; another program fills it, and clears it again."""
    listen = f"127.0.0.1:{free_port()}"
    disk = tmp_path / "disk"
    with small_disk(disk, "4m"):
        settings = {"journal": str(disk / "journal"), "metrics": {"listen": listen}, "rotate": "1h"}
        with daemon_with(tmp_path, settings) as daemon, Recorder(daemon) as recorder:
            with traffic_of(daemon) as traffic:
                wait(lambda: SRC.encode() in spooled(disk / "journal/.spool"), "a record")
                fill(disk / "filler")
                wait(lambda: "recording pauses: No space left on device" in recorder.output(), "the pause")
                assert metric(listen, "paused") == 1
                wait(lambda: metric(listen, "dropped_records_total") > 100)
                assert recorder.output().count("recording pauses") == 1
                wait(lambda: "disk" in dropped_on_page(daemon), "its report to the daemon")
                (disk / "filler").unlink()
                wait(lambda: "were not kept since" in recorder.output(), "it to go on")
                assert metric(listen, "paused") == 0
            figures = ("records_total", "dropped_records_total")
            wait(lambda: sum(metric(listen, name) for name in figures) == len(traffic.sent))
            assert daemon.metric("deliveries_dropped_total") == 0
            dropped = metric(listen, "dropped_records_total")
            assert recorder.stop() == 0, recorder.output()
        rows, sessions = table(disk / "journal"), table(disk / "journal", "sessions")
        assert accounted_for(disk / "journal", traffic) == dropped
    assert len({row["journal_id"] for row in rows}) == 1
    assert len(sessions) == 2


def dropped_on_page(daemon: Daemon) -> set[str]:
    return {row["name"] for row in json.loads(daemon.page("/status.json"))["drops"] if row["times"]}


def metric(listen: str, name: str) -> float:
    with urllib.request.urlopen(f"http://{listen}/metrics", timeout=PATIENCE) as answer:
        return prometheus.metric(answer.read().decode(), f"recorder_{name}")


@pytest.mark.slow
def test_what_must_not_be_kept_is_on_no_disk(tmp_path: Path) -> None:
    """recorder.payload, with channels, while it is in the log as later in the journal."""
    rules = [{"channels": "door/", "payload": "hash"}, {"channels": "open/", "payload": "record"}, {"payload": "omit"}]
    with daemon_with(tmp_path, {"payload": rules, "rotate": "1h"}) as daemon, Recorder(daemon) as recorder:
        with Wire(daemon.port) as wire:
            for seq, chan in enumerate(("door/1", "open/1", "other", "!", "open/2"), start=1):
                wire.send(datagram(SRC, seq, chan, f"secret of {chan}"))
        spool = tmp_path / "journal/.spool"
        wait(lambda: b"secret of open/2" in spooled(spool))  # the last of them
        assert b"secret of open/1" in spooled(spool)
        for secret in (b"secret of door", b"secret of other", b"secret of !"):
            assert secret not in spooled(spool)
        assert recorder.stop() == 0, recorder.output()
    found = {row["chan"]: row["payload"] for row in table(tmp_path / "journal")}
    assert found["open/1"] == b"secret of open/1"
    assert (found["other"], found["!"]) == (None, None)
    assert found["door/1"][:7] == b"sha256:"
    assert len(found["door/1"]) == 39
