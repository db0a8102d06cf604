"""What the recorder makes of packets, echoes, pauses and counts, with a real spool and journal and without a daemon."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.core.wire import frames
from bccnd.net.loop import Loop
from bccnd.recorder import rotating_log as module
from bccnd.recorder.clock_steps import Clocks
from bccnd.recorder.recorder import Recorder
from bccnd.recorder.rotating_log import MARGIN
from tests.recorder.material import NOON, end, names, packet, recorder_in, table, tapped, wait_for_child

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in microseconds, to be set by the test."""
    clock = [NOON]
    monkeypatch.setattr(module, "now", lambda: clock[0])
    return clock


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    loop = Loop()
    made = recorder_in(tmp_path, loop, payload=[{"channels": "secret/", "payload": "omit"}])
    made.maintenance.start()
    yield made
    finished(made)
    made.spool.close()
    loop.close()


def finished(recorder: Recorder) -> None:
    """Everything is in the journal."""
    recorder.rotating_log.end("the end")
    end(recorder.maintenance)
    assert recorder.maintenance.logs == 0


def moments(rows: list[dict[str, object]], name: str) -> list[int]:
    return [round(row[name].timestamp() * 1e6) for row in rows]  # type: ignore[attr-defined]


def test_a_pause_ends_a_stretch_and_what_comes_in_it_is_counted(
    recorder: Recorder, now: list[int], tmp_path: Path
) -> None:
    recorder.rotating_log.begin()
    recorder.rotating_log.on_packet(packet(range(5), NOON))
    recorder.rotating_log.on_packet(frames.gap(7))
    now[0] = NOON + 2_000_000
    recorder._on_echo(b"%d" % now[0])
    recorder.rotating_log.pause(NO_SPACE)
    assert (recorder.rotating_log.log, recorder.rotating_log.paused) == (None, "No space left on device")
    recorder.rotating_log.on_packet(packet(range(5, 8), NOON))
    recorder.rotating_log.on_packet(frames.gap(2))
    recorder._on_echo(b"%d" % (NOON + 3_000_000))
    assert recorder.rotating_log.dropped == {"disk": 3, "spool_full": 0}
    now[0] = NOON + 4_000_000
    recorder._tick()
    assert recorder.rotating_log.log is not None
    assert recorder.rotating_log.paused == ""
    recorder.rotating_log.on_packet(packet(range(8, 10), NOON))
    now[0] = NOON + 9_000_000
    recorder._on_echo(b"%d" % now[0])
    finished(recorder)
    assert (recorder.rotating_log.records, recorder.rotating_log.gaps) == (7, 9)
    assert [row["rec_no"] for row in table(tmp_path / "journal")] == list(range(1, 8))
    sessions = table(tmp_path / "journal", "sessions")
    assert moments(sessions, "start_ts") == [NOON, NOON + 4_000_000]
    assert moments(sessions, "end_ts") == [NOON + 2_000_000 - MARGIN, NOON + 9_000_000 - MARGIN]
    assert [row["tap_gaps"] for row in sessions] == [7, 0]
    assert [row["cause"] for row in sessions] == ["start", "resumed"]


@pytest.mark.parametrize("cause", ["suspend", "clock"])
def test_while_a_host_sleeps_and_in_times_that_never_were_nothing_is_claimed(
    recorder: Recorder, now: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    hours = 8 * 3_600_000_000
    clocks = {"awake": 0, "boot": 0}
    monkeypatch.setattr(module, "read_clocks", lambda wall: Clocks(wall(), **clocks))

    def go_on(wall: int, awake: int, boot: int) -> None:
        now[0] += wall
        clocks["awake"] += awake
        clocks["boot"] += boot

    recorder.rotating_log.begin()
    recorder.rotating_log.on_packet(packet([1], NOON))
    go_on(1_000_000, 1_000_000, 1_000_000)
    recorder._tick()
    asked = now[0]
    recorder._on_echo(b"%d" % asked)
    # A question that is under way is answered when the host is awake again.
    go_on(hours, 500_000, hours if cause == "suspend" else 500_000)
    recorder._on_echo(b"%d" % asked)
    recorder.rotating_log.on_packet(packet([2], now[0]))
    recorder._tick()
    woke = now[0]
    go_on(1_000_000, 1_000_000, 1_000_000)
    recorder._tick()
    recorder._on_echo(b"%d" % now[0])
    # and back: what was asked by the clock of before is no time by that of now
    go_on(-hours, 500_000, 500_000)
    recorder._tick()
    recorder._on_echo(b"%d" % (woke + 1_000_000))
    finished(recorder)
    assert [row["rec_no"] for row in table(tmp_path / "journal")] == [1, 2]
    sessions = table(tmp_path / "journal", "sessions")
    assert sorted(row["cause"] for row in sessions) == sorted(["start", cause, "clock"])
    spans = set(zip(moments(sessions, "start_ts"), moments(sessions, "end_ts"), strict=True))
    assert spans == {
        (NOON, asked - MARGIN),
        (woke, woke + 1_000_000 - MARGIN),
        (woke + 1_000_000 - hours, woke + 1_000_000 - hours),
    }


@pytest.mark.slow
def test_a_journal_with_too_many_sessions_goes_on_as_another_one(
    recorder: Recorder, now: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    recorder.rotating_log.begin()
    for number in range(4):
        recorder.rotating_log.on_packet(packet([number], NOON))
        recorder.rotating_log.pause(NO_SPACE)
        now[0] += 1_000_000
        recorder._tick()
    finished(recorder)
    rows = table(tmp_path / "journal")
    assert [row["rec_no"] for row in rows] == [1, 2, 1, 2]
    assert len({row["journal_id"] for row in rows}) == 2
    assert len(table(tmp_path / "journal", "sessions")) == 5


def test_the_kernels_drops_are_those_of_the_stretch(recorder: Recorder, now: list[int], tmp_path: Path) -> None:
    recorder.rotating_log.on_drops(100)
    recorder.rotating_log.begin()
    recorder.rotating_log.on_drops(103)
    recorder.rotating_log.on_drops(103)
    recorder.rotating_log.on_drops(2)  # a daemon that has taken over counts anew
    assert recorder.rotating_log.drops == 5
    finished(recorder)
    (session,) = table(tmp_path / "journal", "sessions")
    assert session["socket_drops"] == 5


def test_a_new_day_is_a_new_log(recorder: Recorder, now: list[int], tmp_path: Path) -> None:
    recorder.rotating_log.begin()
    recorder._tick()
    assert recorder.maintenance.logs == 0
    now[0] += 13 * 3_600_000_000
    recorder._tick()
    wait_for_child(lambda: list((tmp_path / "journal/sessions").rglob("*.parquet")), "the first log to be finished")


def test_what_is_not_of_the_tap_is_nothing(recorder: Recorder, now: list[int], tmp_path: Path) -> None:
    recorder.rotating_log.on_packet(tapped(1, NOON))  # before the subscription was confirmed
    recorder.rotating_log.begin()
    recorder.rotating_log.on_packet(b"MSG !\0to all")
    recorder.rotating_log.on_packet(frames.batch([b"MSG !\0to all", tapped(2, NOON, chan="secret/x"), tapped(3, NOON)]))
    assert recorder.rotating_log.records == 2
    finished(recorder)
    assert [(row["rec_no"], row["payload"]) for row in table(tmp_path / "journal")] == [(1, None), (2, b"hello")]
    assert names(tmp_path / "spool") == ["lock", "lock.files"]
