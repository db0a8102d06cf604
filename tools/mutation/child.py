"""Runs tests in a child process that has loaded pytest and hypothesis before: a mutant takes a part of a second."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

# Loaded once, before the children are forked.
import hypothesis.stateful
import pytest

from tools.mutation.reach import Reach, Recorder

#: seconds of processor time, and times what the tests took, after which a mutant goes round for ever
LEAST, TIMES = 20, 10
#: seconds after which it waits for ever
LONGEST: Final = 900
#: bytes that a mutant may allocate
MEMORY: Final = 3 << 30
#: exit statuses of pytest: all passed, some failed, interrupted (an import failed), an internal error, no tests
PASSED, KILLED, NONE = 0, (1, 2, 3), 5


class Overlay(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text in place of its file."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self._name = name
        self._path = path
        self._text = text

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._text, str(self._path), "exec"), module.__dict__)


class Choice:
    """A plugin of pytest that runs only these tests, in this order, without a search for the smallest example."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutation", phases=phases)
        hypothesis.settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self._order), key=lambda one: self._order[one.nodeid])


def record(tree: Path, tests: Sequence[str]) -> Reach:
    """Run all these tests on the package in ``tree`` and return which functions they run.

    Raises SystemExit if one fails.
    """

    def run(out: int) -> int:
        recorder = Recorder(str(tree))
        status = _pytest(tests, recorder)
        with open(out, "wb", closefd=False) as file:
            pickle.dump(recorder.reach, file)
        return status

    out = os.memfd_create("reach")
    try:
        status = _in_child(lambda: run(out), LONGEST, sys.stderr.fileno())
        if status != PASSED:
            raise SystemExit(f"the tests fail without a mutant (status {status}): run them with BCCND_CORE=python")
        os.lseek(out, 0, os.SEEK_SET)
        with open(out, "rb", closefd=False) as file:
            found: Reach = pickle.load(file)  # of our own child
            return found
    finally:
        os.close(out)


def fails(overlay: Overlay, tests: Sequence[str], seconds: float) -> bool:
    """Whether a test fails with this module; ``seconds`` is what all of them take without it."""
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))

    def run() -> int:
        sys.meta_path.insert(0, overlay)
        return _pytest(files, Choice(tests))

    with open(os.devnull, "wb") as null:
        status = _in_child(run, LEAST + int(TIMES * seconds), null.fileno())
    if status not in (PASSED, NONE, *KILLED) and status > 0:
        raise SystemExit(f"pytest ended with status {status} on {' '.join(files)}")
    return status not in (PASSED, NONE)


def _pytest(files: Sequence[str], plugin: object) -> int:
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis was imported before
    return int(pytest.main([*options, *files], plugins=[plugin]))


def _in_child(run: Callable[[], int], seconds: int, output: int) -> int:
    """Return what ``run`` returns, or the negative number of the signal that ended it; ``output`` is a descriptor."""
    pid = os.fork()
    if not pid:
        status = 3
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            signal.alarm(LONGEST)
            os.dup2(output, 1)
            os.dup2(output, 2)
            status = run()
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what its tests have started
    return os.waitstatus_to_exitcode(ended)
