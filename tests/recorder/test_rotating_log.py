"""What becomes of packets, echoes, pauses and clocks, with a real spool and journal and without a daemon."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.config import RecorderSettings
from bccnd.config.recorder_schema import KeepSettings
from bccnd.core.wire import frames
from bccnd.recorder import rotating_log as module
from bccnd.recorder.clock_steps import Clocks
from bccnd.recorder.maintenance import Maintenance
from bccnd.recorder.rotating_log import MARGIN, RotatingLog
from bccnd.recorder.spool import Spool
from tests.recorder.material import NOON, end, names, packet, table, tapped

SECOND = 1_000_000
HOUR = 3600
#: the end of a session of which the last answer was asked for then
LESS = MARGIN / SECOND
YEARS = -NOON / SECOND


class History:
    """A recording whose clocks stand still until they are told to move, in seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clocks = Clocks(NOON, 0, 0)
        rules = [{"channels": "secret/", "payload": "omit"}]
        limits = {"spool_size": 5 << 20, "rotate": 100.0, "rotate_size": 1 << 16}
        settings = RecorderSettings.model_validate({"journal": str(folder / "journal"), "payload": rules, **limits})
        self._spool = Spool(str(folder / "spool"))
        self.worker = Maintenance(self._spool, settings.journal, "relay01", KeepSettings())
        self.recording = RotatingLog(settings, "relay01", self._spool, self.worker, lambda: self.clocks)
        self.worker.start()

    def play(self, events: str) -> None:
        """Let events happen, each the name of a method with its numbers: ``begin, packet 1 2, go_on 9``."""
        for event in events.split(","):
            name, *numbers = event.split()
            getattr(self, name)(*map(float if name in ("answer", "set_clock") else int, numbers))

    def begin(self) -> None:
        self.recording.begin()

    def packet(self, *seqs: int) -> None:
        """A batch that was received just now."""
        self.recording.on_packet(packet(seqs, self.clocks.wall, step=0))

    def gap(self, count: int) -> None:
        self.recording.on_packet(frames.gap(count))

    def drops(self, count: int) -> None:
        self.recording.on_drops(count)

    def answer(self, seconds_ago: float = 0) -> None:
        """All has come that the daemon had when it was asked."""
        self.recording.on_synced(self.clocks.wall - round(seconds_ago * SECOND))

    def go_on(self, seconds: float) -> None:
        self._move(seconds, seconds, seconds)

    def sleep(self, seconds: float) -> None:
        self._move(seconds, 0, seconds)

    def set_clock(self, seconds: float) -> None:
        self._move(seconds, 0, 0)

    def _move(self, *seconds: float) -> None:
        self.clocks = Clocks(*(clock + round(SECOND * by) for clock, by in zip(self.clocks, seconds, strict=True)))

    def look(self) -> None:
        self.recording.check()

    def pause(self) -> None:
        self.recording.pause(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def finish(self) -> None:
        """Everything is in the journal."""
        self.recording.end("the end")
        end(self.worker)
        assert self.worker.logs == 0
        self._spool.close()

    def sessions(self) -> list[tuple[object, ...]]:
        """Start and end in seconds after noon, cause, first and last number, gaps and drops."""
        return [
            (
                *(round(row[name].timestamp() - NOON / SECOND, 3) for name in ("start_ts", "end_ts")),
                *(row["cause"], row["first_rec_no"], row["last_rec_no"], row["tap_gaps"], row["socket_drops"]),
            )
            for row in sorted(table(self.folder / "journal", "sessions"), key=lambda row: row["first_rec_no"])
        ]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path)
    yield made
    if not made.worker.done:
        made.finish()


#: events, and the sessions that they leave: start, end, cause, first and last number, gaps, drops
HISTORIES: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "nothing": ("begin", [(0, 0, "start", 1, 0, 0, 0)]),
    "packets": ("begin, packet 1 2, go_on 9, answer", [(0, 9 - LESS, "start", 1, 2, 0, 0)]),
    # the kernel's count, which begins anew with another daemon
    "drops": ("drops 100, begin, drops 103, drops 103, drops 2", [(0, 0, "start", 1, 0, 0, 5)]),
    # while the disk is full, nothing is claimed
    "pause": (
        """begin, packet 1 2, gap 7, go_on 2, answer, pause, packet 3, gap 2,
        go_on 1, answer, go_on 1, look, packet 4, go_on 5, answer""",
        [(0, 2 - LESS, "start", 1, 2, 7, 0), (4, 9 - LESS, "resumed", 3, 3, 0, 0)],
    ),
    # nor while the host sleeps; a question that was under way is answered when it is awake
    "sleep": (
        f"begin, packet 1, go_on 1, look, sleep {8 * HOUR}, answer {8 * HOUR}, packet 2, go_on 1, look, answer",
        [(0, 1 - LESS, "start", 1, 1, 0, 0), (1 + 8 * HOUR, 2 + 8 * HOUR - LESS, "suspend", 2, 2, 0, 0)],
    ),
    # the first datagram by the new clock is in the new session, before anything looks at the clock
    "a clock that is set": (
        f"""begin, packet 1, go_on 1, answer, set_clock {HOUR}, packet 2, go_on 1, look, answer,
        set_clock {-2 * HOUR}, answer {-HOUR}, look, answer -60""",
        [
            (0, 1 - LESS, "start", 1, 1, 0, 0),
            (1 + HOUR, 2 + HOUR - LESS, "clock", 2, 2, 0, 0),
            (2 - HOUR, 2 - HOUR, "clock", 3, 2, 0, 0),
        ],
    ),
    "a host that boots in 1970": (
        f"""begin, set_clock {YEARS}, look, packet 1, go_on 1, answer, set_clock {-YEARS},
        packet 2 3, go_on 1, look, answer""",
        [
            (0, 0, "start", 1, 0, 0, 0),
            (YEARS, YEARS + 1 - LESS, "clock", 1, 1, 0, 0),
            (1, 2 - LESS, "clock", 2, 3, 0, 0),
        ],
    ),
}


@pytest.mark.parametrize(("events", "sessions"), HISTORIES.values(), ids=HISTORIES)
def test_sessions_claim_what_was_received(
    history: History, tmp_path: Path, events: str, sessions: list[tuple[object, ...]]
) -> None:
    history.play(events)
    history.finish()
    assert sorted(history.sessions()) == sorted(sessions)
    numbers = [row["rec_no"] for row in table(tmp_path / "journal")]
    assert numbers == list(range(1, len(numbers) + 1))
    counted = history.recording
    assert counted.records == len(numbers)
    packets, gaps = (re.findall(rf"{event} ([\d ]+)", events) for event in ("packet", "gap"))
    assert counted.dropped == {"disk": len(" ".join(packets).split()) - len(numbers), "spool_full": 0}
    assert counted.gaps == sum(map(int, gaps))


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        *(("go_on 99", False), ("go_on 101", True), (f"sleep {13 * HOUR}", True), (f"go_on {13 * HOUR}", True)),
        (f"packet {' '.join(map(str, range(1000)))}", True),
    ],
)
def test_a_log_ends_when_it_is_due_or_large(history: History, event: str, ends: bool) -> None:
    history.play("begin")
    before = history.recording.log
    history.play(f"{event}, look")
    assert (history.recording.log is not before) == ends


def test_a_journal_with_too_many_sessions_goes_on_as_another_one(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    history.play("begin" + 4 * ", packet 1, pause, go_on 1, look")
    history.finish()
    rows = table(tmp_path / "journal")
    assert [row["rec_no"] for row in rows] == [1, 2, 1, 2]
    assert len({row["journal_id"] for row in rows}) == 2
    assert len(table(tmp_path / "journal", "sessions")) == 5


def test_what_is_not_of_the_tap_is_nothing(history: History, tmp_path: Path) -> None:
    history.play("packet 1, begin")  # before the subscription was confirmed
    mixed = frames.batch([b"MSG !\0to all", tapped(2, NOON, chan="secret/x"), tapped(3, NOON)])
    for raw in (b"MSG !\0to all", mixed):
        history.recording.on_packet(raw)
    history.finish()
    assert [(row["rec_no"], row["payload"]) for row in table(tmp_path / "journal")] == [(1, None), (2, b"hello")]
    assert names(tmp_path / "spool") == ["lock"]
