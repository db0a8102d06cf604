"""Fixtures of more than one part's tests; and the look, before any of them, at what it is that they will test.

Modules that were compiled from other sources than those that lie beside them are never tested. With BCCND_CORE=python
only the primitives are compiled modules; see `bccnd/compiled_modules.py`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import runpy
import signal
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.isolation import isolate
from tests.leftovers import Leftovers
from tests.time_limit import HardLimit

# Nothing of the package is imported here: what does not fit together may not even come to be imported.
if TYPE_CHECKING:
    from tests.support import Hub

_ROOT: Final = Path(__file__).parents[1]
_REMEDY: Final = "Remedy: run make test, or make demo, which build anew what has changed"
_BUILD: Final = runpy.run_path(str(_ROOT / "bccnd" / "compiled_modules.py"))
#: the modules that come from the library, and the library
COMPILED: Final[tuple[str, ...]] = _BUILD["imported"]()
SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))
LIBRARY: Final[str] = _BUILD["LIBRARY"] + SUFFIX
#: what a module is compiled from
SOURCES: Final = (".py", ".pxd", ".pyx")

#: folders whose tests wait or take longest
_FIRST: Final = ("tests/recorder/", "tests/tools/", "tests/docs/", "tests/e2e/")

# `make test` tries each property on fewer examples, always the same ones; `make test-all` on all, at random.
_CHECKS: Final = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("quick", max_examples=25, deadline=None, suppress_health_check=_CHECKS, derandomize=True)
settings.register_profile("full", max_examples=100, deadline=None, suppress_health_check=_CHECKS)
settings.load_profile("quick")


def stale(root: Path = _ROOT) -> list[str]:
    """What there is to say against the library that lies in a tree."""
    library, folder = root / LIBRARY, root / "bccnd"
    wrong = [
        f"{one.relative_to(root)} is an extra library: delete it"
        for one in folder.rglob(f"*{SUFFIX}")
        if one != library
    ]
    if library.is_file():
        age = library.stat().st_mtime_ns
        made_of = [(root / name.replace(".", "/")).with_suffix(suffix) for name in COMPILED for suffix in SOURCES]
        sources = {root / "setup.py", *folder.glob("native/*/*.pxd")}
        sources |= {path for path in made_of if path.exists()}
        younger = [one for one in sources if one.stat().st_mtime_ns > age]
        wrong += [f"{LIBRARY} is older than {one.relative_to(root)}" for one in younger]
    return sorted(wrong)


def origin(name: str) -> str:
    """Where a module is loaded from."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:  # noqa: BLE001 - the package says what is missing
        return str(error)
    return "nowhere" if spec is None or spec.origin is None else spec.origin


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "stay in this machine's own network, as tests must that fetch packages"
    parser.addoption("--host-network", action="store_true", help=help_)


def pytest_configure(config: pytest.Config) -> None:
    runs_tests = "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", default=None)
    if runs_tests:
        isolation = isolate(own_network=not config.getoption("--host-network"))
        config.pluginmanager.register(Leftovers(isolation), "leftovers")
        config.pluginmanager.register(HardLimit(), "hard limit")
    # What a service manager has told whoever runs these tests is not meant for the daemons in them.
    for name in ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "FDSTORE", "LISTEN_PID", "LISTEN_FDS"):
        os.environ.pop(name, None)
    # In the background a shell has SIGINT ignored, and whoever is started inherits that. Programs under test must not.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    origins = {name: origin(name) for name in COMPILED}
    wrong = [f"{name} is not compiled: {place}" for name, place in origins.items() if not place.endswith(SUFFIX)]
    # Whoever was installed elsewhere has come there as a whole.
    if any(Path(one).is_relative_to(_ROOT / "bccnd") for one in origins.values()):
        wrong += stale()
    if wrong:
        pytest.exit("\n".join(["these are no modules to test:", *wrong, _REMEDY]), returncode=4)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what takes longest first: a long test that begins last has the machine to itself."""

    def place(item: pytest.Item) -> int:
        return next((n for n, folder in enumerate(_FIRST) if item.nodeid.startswith(folder)), len(_FIRST))

    items.sort(key=place)


@pytest.fixture
def log_as_before() -> Iterator[None]:
    """For a test that sets up the log of a program: afterwards the package's logger is as it was."""
    logger = logging.getLogger("bccnd")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    for added in set(logger.handlers) - set(handlers):
        added.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate


@pytest.fixture(autouse=True)
def _log_without_memory() -> None:
    """What an earlier test has logged holds back no record of this one."""
    log = sys.modules.get("bccnd.log")
    if log is not None:
        log.repeats.clear()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A bus that does nothing until it is turned."""
    from tests.support import Hub

    with Hub(tmp_path) as one:
        yield one
