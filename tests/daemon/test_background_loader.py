"""Loading the configuration beside the loop, with a directory service that takes its time."""

from __future__ import annotations

import grp
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bccnd.config import Configuration, load
from bccnd.daemon import background_loader
from bccnd.daemon.background_loader import BackgroundLoader, Outcome
from bccnd.errors import ConfigError
from bccnd.net.loop import Loop
from bccnd.net.service_manager import ServiceManager
from tests.daemon.running import daemon_in_process
from tests.hubs import loop
from tests.support import PATIENCE, turn, turn_until

__all__ = ["loop"]


class Directory:
    """Looks groups up, each as soon as it is told to answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._answers = threading.Semaphore(0)

    def look_up(self, name: str) -> grp.struct_group:
        self.asked.append(name)
        assert self._answers.acquire(timeout=PATIENCE)
        return grp.struct_group((name, "x", 4321, []))

    def answer(self, times: int = 1) -> None:
        self._answers.release(times)


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Directory]:
    one = Directory()
    monkeypatch.setattr(grp, "getgrnam", one.look_up)
    yield one
    one.answer(100)
    for thread in threading.enumerate():
        if thread.daemon:
            thread.join(PATIENCE)


class Loading:
    """A loader of a file, and what came of it."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self.path = path
        self.outcomes: list[Outcome] = []
        self.write("bccn")
        self.loader = BackgroundLoader(loop, lambda: load(str(path)), self.outcomes.append)

    def write(self, group: str) -> None:
        self.path.write_text(f"bus: {{group: {group}}}")


@pytest.fixture
def loading(loop: Loop, tmp_path: Path) -> Iterator[Loading]:
    one = Loading(loop, tmp_path / "bccnd.yaml")
    yield one
    one.loader.close()


def test_a_file_that_changes_meanwhile_is_loaded_again(loop: Loop, loading: Loading, directory: Directory) -> None:
    loading.loader.start()
    turn_until(loop, lambda: directory.asked, "the question")
    turn(loop, 10)
    assert loading.outcomes == []
    loading.write("other")
    for _ in range(3):
        loading.loader.start()
    directory.answer(4)
    turn_until(loop, lambda: loading.outcomes, "the end")
    turn(loop, 10)
    assert [one().gids for one in loading.outcomes] == [{"other": 4321}]
    assert directory.asked == ["bccn", "other"]


def test_the_late_answer_of_a_lookup_is_not_used(
    loop: Loop, loading: Loading, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_loader, "TIMEOUT", 0.01)
    for _ in range(2):
        loading.loader.start()
        turn_until(loop, lambda: loading.outcomes, "the end of patience")
        with pytest.raises(ConfigError, match="more than"):
            loading.outcomes.pop()()
    turn_until(loop, lambda: directory.asked, "the question")  # a thread may be slower than the patience
    assert directory.asked == ["bccn"], "one thread at most"
    directory.answer()
    turn_until(loop, lambda: not any(thread.daemon for thread in threading.enumerate()), "the late answer")
    turn(loop, 3)
    assert loading.outcomes == []
    monkeypatch.setattr(background_loader, "TIMEOUT", PATIENCE)
    directory.answer()
    loading.loader.start()
    turn_until(loop, lambda: loading.outcomes, "the end")
    assert loading.outcomes[-1]().gids == {"bccn": 4321}
    assert directory.asked == ["bccn"] * 2, "one thread at a time, one for the first two tries"


def test_what_loading_raises_is_raised_on_the_loop(loop: Loop) -> None:
    def broken() -> Configuration:
        raise ZeroDivisionError

    outcomes: list[Outcome] = []
    loader = BackgroundLoader(loop, broken, outcomes.append)
    loader.start()
    turn_until(loop, lambda: outcomes, "the end")
    with pytest.raises(ZeroDivisionError):
        outcomes[0]()
    loader.close()


def test_a_thread_that_outlives_the_loader_writes_nowhere(loop: Loop, tmp_path: Path, directory: Directory) -> None:
    one = Loading(loop, tmp_path / "bccnd.yaml")
    one.loader.start()
    turn_until(loop, lambda: directory.asked, "the question")
    one.loader.close()
    directory.answer()
    turn(loop, 3)
    assert one.outcomes == []


def test_a_daemon_serves_while_its_reload_waits(
    tmp_path: Path, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bccnd.yaml"
    settings = {"segments": [], "bus": {"path": str(tmp_path / "bus.sock")}, "metrics": {"listen": "off"}}
    sent: list[str] = []

    def notify(message: str, fds: Sequence[int]) -> None:
        if not fds:
            sent.append(message)

    with daemon_in_process(path, settings, ServiceManager(notify)) as daemon:
        for group in ("bccn", "0"):
            path.write_text(json.dumps({**settings, "access": [{"group": group, "publish": [""]}]}))
            sent.clear()
            os.kill(os.getpid(), signal.SIGHUP)
            turn_until(daemon.loop, lambda: sent, "the reload")
            turn_until(daemon.loop, lambda: directory.asked, "the question")
            assert [text.partition("=")[0] for text in sent] == ["RELOADING"] * len(sent)
            directory.answer()
            turn_until(daemon.loop, lambda: "READY=1" in sent[-1], "the end")
        assert daemon.config_reloads == {"applied": 2, "refused": 0}
