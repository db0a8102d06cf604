"""What becomes of packets, echoes, pauses and clocks, with a real spool and journal and without a daemon."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
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
def history(tmp_path: Path) -> Iterator[Callable[..., History]]:
    made = History(tmp_path)

    def play(*events: tuple[object, ...]) -> History:
        for name, *arguments in events:
            getattr(made, str(name))(*arguments)
        return made

    yield play
    if not made.worker.done:
        made.finish()


@pytest.mark.parametrize(
    ("events", "sessions"),
    [
        ([], [(0, 0, "start", 1, 0, 0, 0)]),
        ([("packet", 1, 2), ("go_on", 9), ("answer",)], [(0, 9 - LESS, "start", 1, 2, 0, 0)]),
        # the kernel's count, which begins anew with another daemon
        ([("drops", 100), ("drops", 103), ("drops", 103), ("drops", 2)], [(0, 0, "start", 1, 0, 0, 5)]),
        # while the disk is full, nothing is claimed
        (
            [
                *[("packet", 1, 2), ("gap", 7), ("go_on", 2), ("answer",), ("pause",), ("packet", 3), ("gap", 2)],
                *[("go_on", 1), ("answer",), ("go_on", 1), ("look",), ("packet", 4), ("go_on", 5), ("answer",)],
            ],
            [(0, 2 - LESS, "start", 1, 2, 7, 0), (4, 9 - LESS, "resumed", 3, 3, 0, 0)],
        ),
        # nor while the host sleeps; a question that was under way is answered when it is awake
        (
            [
                *[("packet", 1), ("go_on", 1), ("look",), ("sleep", 8 * HOUR), ("answer", 8 * HOUR), ("packet", 2)],
                *[("go_on", 1), ("look",), ("answer",)],
            ],
            [
                (0, 1 - LESS, "start", 1, 1, 0, 0),
                (1 + 8 * HOUR, 2 + 8 * HOUR - LESS, "suspend", 2, 2, 0, 0),
            ],
        ),
        # a clock that is set: the first datagram by the new one is in the new session, before anybody looks
        (
            [
                *[("packet", 1), ("go_on", 1), ("answer",), ("set_clock", HOUR), ("packet", 2), ("go_on", 1)],
                *[("look",), ("answer",), ("set_clock", -2 * HOUR), ("answer", -HOUR), ("look",), ("answer", -60)],
            ],
            [
                (0, 1 - LESS, "start", 1, 1, 0, 0),
                (1 + HOUR, 2 + HOUR - LESS, "clock", 2, 2, 0, 0),
                (2 - HOUR, 2 - HOUR, "clock", 3, 2, 0, 0),
            ],
        ),
        # a host that boots in 1970
        (
            [
                *[("set_clock", YEARS), ("look",), ("packet", 1), ("go_on", 1), ("answer",), ("set_clock", -YEARS)],
                *[("packet", 2, 3), ("go_on", 1), ("look",), ("answer",)],
            ],
            [
                (0, 0, "start", 1, 0, 0, 0),
                (YEARS, YEARS + 1 - LESS, "clock", 1, 1, 0, 0),
                (1, 2 - LESS, "clock", 2, 3, 0, 0),
            ],
        ),
    ],
    ids=["nothing", "packets", "drops", "pause", "sleep", "clock", "1970"],
)
def test_sessions_claim_what_was_received(
    history: Callable[..., History], tmp_path: Path, events: list[tuple[object, ...]], sessions: list[object]
) -> None:
    first = [events[0], ("begin",), *events[1:]] if events and events[0][0] == "drops" else [("begin",), *events]
    played = history(*first, ("finish",))
    assert sorted(played.sessions()) == sorted(sessions)  # type: ignore[type-var]
    numbers = [row["rec_no"] for row in table(tmp_path / "journal")]
    assert numbers == list(range(1, len(numbers) + 1))
    counted = played.recording
    assert counted.records == len(numbers)
    packets = sum(len(event) - 1 for event in events if event[0] == "packet")
    assert counted.dropped == {"disk": packets - len(numbers), "spool_full": 0}
    assert counted.gaps == sum(int(str(event[1])) for event in events if event[0] == "gap")


@pytest.mark.parametrize(
    ("events", "logs"),
    [
        ([("go_on", 99)], 0),
        ([("go_on", 101)], 1),
        ([("sleep", 13 * HOUR)], 1),
        ([("go_on", 13 * HOUR)], 1),
        ([("packet", *range(1000))], 1),
    ],
    ids=["not yet", "old", "slept", "another day", "large"],
)
def test_a_log_ends_when_it_is_due(
    history: Callable[..., History], events: list[tuple[object, ...]], logs: int
) -> None:
    recording = history(("begin",))
    before = recording.recording.log
    history(*events, ("look",))
    assert (recording.recording.log is not before) == bool(logs)


def test_a_journal_with_too_many_sessions_goes_on_as_another_one(
    history: Callable[..., History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    history(("begin",), *[("packet", 1), ("pause",), ("go_on", 1), ("look",)] * 4, ("finish",))
    rows = table(tmp_path / "journal")
    assert [row["rec_no"] for row in rows] == [1, 2, 1, 2]
    assert len({row["journal_id"] for row in rows}) == 2
    assert len(table(tmp_path / "journal", "sessions")) == 5


def test_what_is_not_of_the_tap_is_nothing(history: Callable[..., History], tmp_path: Path) -> None:
    played = history(("packet", 1), ("begin",))  # before the subscription was confirmed
    mixed = frames.batch([b"MSG !\0to all", tapped(2, NOON, chan="secret/x"), tapped(3, NOON)])
    for raw in (b"MSG !\0to all", mixed):
        played.recording.on_packet(raw)
    history(("finish",))
    assert [(row["rec_no"], row["payload"]) for row in table(tmp_path / "journal")] == [(1, None), (2, b"hello")]
    assert names(tmp_path / "spool") == ["lock"]
