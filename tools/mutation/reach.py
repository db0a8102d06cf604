"""Records which functions of the package each test runs, so that a mutant meets only tests that can detect it."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

import pytest


@dataclass
class Reach:
    """``functions`` of each test, each as its module's path and its name (`Mutant.function`), and the ``seconds`` that
    each test takes. What runs while a file is imported, or a fixture of several tests is set up, counts for each test
    of that file."""

    functions: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def tests_of(self, path: str, function: str) -> list[str]:
        """Return the tests that run a function, the quickest first."""
        tests = [test for test in self.seconds if (path, function) in self.functions.get(test, ())]
        return sorted(tests, key=self.seconds.__getitem__)


class Recorder:
    """A plugin of pytest that fills a `Reach` for the package in the folder ``tree``."""

    def __init__(self, tree: str) -> None:
        self.reach = Reach()
        self._prefix: Final = os.path.join(tree, "")
        self._of_file: dict[str, set[tuple[str, str]]] = defaultdict(set)

    @contextmanager
    def _recorded(self, into: set[tuple[str, str]]) -> Iterator[None]:
        seen: dict[int, CodeType] = {}

        def on_call(frame: FrameType, event: str, _argument: Any) -> None:
            if event == "call":
                seen[id(frame.f_code)] = frame.f_code

        before = sys.getprofile()
        sys.setprofile(on_call)
        try:
            yield
        finally:
            sys.setprofile(before)
            for code in seen.values():
                if code.co_filename.startswith(self._prefix):
                    function = code.co_qualname.partition(".<locals>")[0]
                    into.add((code.co_filename.removeprefix(self._prefix), function))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        with self._recorded(self._of_file[collector.nodeid.partition("::")[0]]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        with self._recorded(self._of_file[request.node.nodeid.partition("::")[0]]):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self._recorded(self.reach.functions.setdefault(item.nodeid, set())):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reach.seconds[report.nodeid] = self.reach.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        for test, functions in self.reach.functions.items():
            functions |= self._of_file[test.partition("::")[0]]
