"""The log: what happens often is said once and then counted; prefixes for the journal, the time for people."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from bccnd.net import log


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that a test moves: `clock.now` is the seconds."""
    one = SimpleNamespace(now=1000.0)
    one.monotonic = lambda: one.now
    monkeypatch.setattr(log, "time", one)
    return one


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The daemon's logger, put back as it was."""
    handlers, level, propagate = log.logger.handlers[:], log.logger.level, log.logger.propagate
    yield log.logger
    log.logger.handlers[:] = handlers
    log.logger.setLevel(level)
    log.logger.propagate = propagate


def test_a_thing_is_said_once_and_then_counted(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    limited = log.Limited()
    for _ in range(5):
        limited.warn("slow/a", "a is slow")
    assert caplog.messages == ["a is slow"]
    clock.now += log.QUIET - 1
    limited.warn("slow/a", "a is slow")
    assert caplog.messages == ["a is slow"]
    clock.now += 1
    limited.warn("slow/a", "a is slow")
    assert caplog.messages == ["a is slow", "a is slow (5 more times in the meantime)"]


def test_the_count_begins_anew_when_it_was_said(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    limited = log.Limited()
    limited.warn("x", "it")
    limited.warn("x", "it")
    clock.now += log.QUIET
    limited.warn("x", "it")
    clock.now += log.QUIET
    limited.warn("x", "it")
    assert caplog.messages == ["it", "it (1 more times in the meantime)", "it"]


def test_one_thing_does_not_silence_another(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    limited = log.Limited()
    limited.warn("slow/a", "a is slow")
    limited.warn("slow/b", "b is slow")
    assert caplog.messages == ["a is slow", "b is slow"]


def test_what_is_remembered_is_bounded(
    clock: SimpleNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAX_THINGS", 10)
    limited = log.Limited()
    for number in range(100):
        limited.warn(f"slow/{number}", f"{number} is slow")
        assert len(limited._seen) <= 10
    assert len(caplog.messages) == 100


def test_a_percent_sign_in_a_message_is_no_format(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    log.Limited().warn("x", "100%s %d")
    assert caplog.messages == ["100%s %d"]


def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Set the log up with a standard error that can be read."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    log.setup()
    return out


def test_the_journal_gets_a_level_before_each_message_and_one_line_for_it(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:12345")
    out = written(monkeypatch)
    logger.info("ready")
    logger.warning("slow")
    logger.error("cannot start: it\n  remedy: that")
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["<6>ready", "<4>slow"]
    assert lines[2].startswith("<3>cannot start: it")
    assert lines[2].endswith("remedy: that")
    assert len(lines) == 3


def test_people_get_the_time_and_the_level(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    out = written(monkeypatch)
    logger.warning("slow\nvery slow")
    first, second = out.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d bccnd warning: slow", first)
    assert second == "  very slow"


def test_a_trace_stays_with_its_message(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:12345")
    out = written(monkeypatch)
    try:
        raise ValueError("the cause")
    except ValueError:
        logger.exception("a bug")
    (line,) = out.getvalue().splitlines()
    assert line.startswith("<3>a bug")
    assert "ValueError: the cause" in line


def test_debug_is_not_said(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    out = written(monkeypatch)
    logger.debug("chatter")
    logger.info("news")
    assert "chatter" not in out.getvalue()
    assert "news" in out.getvalue()
