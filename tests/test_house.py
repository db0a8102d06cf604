"""The architecture: imports run downward, the core is pure, and programs load no more than they need."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.tree import IMPURE, imported, repository

#: what a part may import of this package, beside itself: only parts that stand above it in this table
MAY: dict[str, set[str]] = {
    "compiled_modules": set(),
    "errors": set(),
    "version": set(),
    "paths": set(),
    "boot_clock": set(),
    "file_modes": set(),
    "waiting_io": set(),
    "native": {"compiled_modules", "errors"},
    "drop_catalog": set(),
    "snapshot": set(),
    "core": {"errors", "native"},
    "key_files": {"core", "errors"},
    "config": {"core", "errors", "key_files", "paths"},
    "fleet": {"core"},
    "log": set(),
    "journal": {"core", "errors", "version", "waiting_io"},
    "net": {"core", "errors", "file_modes", "log", "native"},
    "handover": {"core", "errors", "log", "native"},
    # Of the configuration only types: `bccn-sbusd` has a bus without one.
    "bus": {"config", "core", "drop_catalog", "errors", "fleet", "handover", "log", "native", "net", "snapshot"},
    "monitoring": {"bus", "core", "drop_catalog", "fleet", "log", "net", "snapshot", "version"},
    "client": {"compiled_modules", "core", "errors", "native", "paths"},
    # A program that takes part in a segment itself opens the same kind of socket as the daemon.
    "endpoint": {"client", "core", "errors", "net"},
    "aio": {"client", "errors"},
    "__init__": {"aio", "client", "compiled_modules", "endpoint", "errors", "key_files"},
    # Each gateway is a program of its own, and a client of the daemon.
    "gateways": {
        *("boot_clock", "client", "config", "core", "drop_catalog", "errors", "file_modes", "key_files", "log", "net"),
        "snapshot",
    },
    "recorder": {"boot_clock", "bus", "core", "client", "config", "errors", "journal", "log", "net", "version"},
    "daemon": {
        *("bus", "client", "config", "core", "errors", "fleet", "gateways", "handover", "log", "monitoring", "native"),
        *("net", "version"),
    },
    "doctor": {
        *("bus", "client", "config", "core", "drop_catalog", "endpoint", "errors", "key_files", "log", "net", "paths"),
        *("snapshot", "version"),
    },
    # It starts a daemon as a process.
    "testing": {"client", "errors"},
    "pipeline": {"core", "client", "errors", "fleet", "journal", "key_files", "version"},
    "cli": {
        *("bus", "core", "net", "gateways", "client", "config", "errors", "journal", "recorder", "daemon", "pipeline"),
        *(
            "doctor",
            "drop_catalog",
            "endpoint",
            "file_modes",
            "fleet",
            "handover",
            "key_files",
            "log",
            "paths",
            "snapshot",
            "version",
            "waiting_io",
        ),
    },
}
#: what a part of a room may import of that room, beside itself: only parts that stand above it in this table
INSIDE: dict[str, dict[str, set[str]]] = {
    "bus": {
        "clients": set(),
        "delivery": {"clients"},
        "incoming": {"clients", "delivery"},
        "requests": {"clients", "delivery", "incoming"},
    },
    "cli": {
        "shared": set(),
        "messages": {"shared"},
        "pipe": {"messages", "shared"},
        "diagnosis": {"shared"},
        "journals": {"messages", "shared"},
    },
    "native": {"buffers": set(), "system": {"buffers"}},
    "core": {
        "wire": set(),
        "formats": {"wire"},
        "trust": {"wire"},
        "observing": {"wire"},
        "tracking": {"formats", "observing", "wire"},
        "matching": {"wire"},
        "sending": {"formats", "matching", "observing", "tracking", "trust", "wire"},
        "receiving": {"matching", "observing", "tracking", "trust", "wire"},
    },
    "pipeline": {
        "source": set(),
        "sql": set(),
        "schema": set(),
        "lake": set(),
        "inputs": {"lake"},
        "restarts": set(),
        "reports": set(),
        "epochs": {"restarts"},
        "clocks": set(),
        "receivers": {"clocks", "inputs"},
        "units": {"clocks", "epochs", "inputs", "lake", "receivers", "reports", "restarts", "schema", "sql"},
        "compute": {"clocks", "inputs", "lake", "receivers", "schema", "units"},
        "driver": {"compute", "inputs", "lake", "schema", "units"},
        "report": {"lake", "schema", "units"},
    },
}
#: files of a folder of the package, at most; a room that grows beyond is divided into parts
MAX_FILES = 25
#: what the daemon must not load
HEAVY = {"asyncio", "click", "cryptography", "numpy", "pandas", "pyarrow", "pyspark", "rich"}


def modules(*parts: str) -> list[Path]:
    """The modules of some parts of the package; without parts, all."""
    found = [path for path in (ROOT / "bccnd").rglob("*.py") if not parts or part_of(path) in parts]
    assert found
    return found


def part_of(path: Path) -> str:
    return path.relative_to(ROOT / "bccnd").with_suffix("").parts[0]


def test_imports_run_downward() -> None:
    parts = list(MAY)
    assert [part for part in parts if not MAY[part] <= set(parts[: parts.index(part)])] == []
    upward = {
        f"{path.relative_to(ROOT)}: {'.'.join(name)}"
        for path in modules()
        for name in imported(path)
        if name[0] == "bccnd" and len(name) > 1 and name[1] not in MAY[part_of(path)] | {part_of(path)}
    }
    assert upward == set()
    # Programs share with the daemon only how a UDP socket is opened.
    shared = {name[2] for path in modules("endpoint") for name in imported(path) if name[:2] == ("bccnd", "net")}
    assert shared == {"segment_opening"}


def test_parts_of_a_room_import_downward() -> None:
    for room, allowed in INSIDE.items():
        parts = list(allowed)
        assert [part for part in parts if not allowed[part] <= set(parts[: parts.index(part)])] == []
        upward = {
            f"{path.relative_to(ROOT)}: {'.'.join(name)}"
            for path in modules(room)
            if path.parent.name != room
            for name in imported(path)
            if name[:2] == ("bccnd", room) and name[2] not in allowed[path.parent.name] | {path.parent.name}
        }
        assert upward == set()


def test_no_room_is_wide() -> None:
    files = [path for path in (ROOT / "bccnd").rglob("*") if path.suffix in {".py", ".pyx", ".pxd"}]
    size = Counter(str(path.parent.relative_to(ROOT / "bccnd")) for path in files)
    assert [room for room, count in size.items() if count > MAX_FILES] == []


@pytest.mark.parametrize(
    ("parts", "forbidden"),
    [
        (("core", "errors", "fleet"), IMPURE),
        (("daemon", "net", "bus", "handover", "log", "monitoring", "config"), HEAVY),
    ],
    ids=["core", "daemon"],
)
def test_the_core_is_pure_and_the_daemon_light(parts: tuple[str, ...], forbidden: set[str]) -> None:
    guilty = {
        f"{path.relative_to(ROOT)}: {name[0]}"
        for path in modules(*parts)
        for name in imported(path)
        if name[0] in forbidden
    }
    # For people at a terminal, and only there.
    assert guilty <= {"bccnd/log/handlers.py: rich"}


def loaded_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_programs_load_no_more_than_they_need() -> None:
    libraries = {"h11", "prometheus_client", "pydantic", "yaml"}
    assert not loaded_after("import bccnd.daemon") & HEAVY
    assert not loaded_after("import bccnd.cli.sbusd") & ((HEAVY - {"click"}) | libraries)
    assert not loaded_after("import bccnd") & (HEAVY | libraries | {"logging"})
    endpoint = {"bccnd.endpoint.endpoint", "bccnd.key_files", "bccnd.net.segment_opening"}
    assert not loaded_after("import bccnd, bccnd.cli.main") & {*endpoint, "bccnd.core.matching.pattern_tree"}
    assert endpoint <= loaded_after("import bccnd\nbccnd.Endpoint, bccnd.read_key")


def test_no_file_names_a_place_that_only_authors_have() -> None:
    # Put together here, so that this file does not speak of them either.
    places = [b"/".join((b"..", b"shared")), b"/".join((b"", b"work", b"")), b".".join((b"design", b"md"))]
    guilty = [name for name in repository() if any(place in (ROOT / name).read_bytes() for place in places)]
    assert guilty == []
