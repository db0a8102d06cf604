"""The architecture: imports run downward, the core is pure, and programs load no more than they need."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support import ROOT
from tests.tree import IMPURE, imported, repository

#: the parts of the package, in layers: a part imports itself and parts of the layers above, none of its own layer
PARTS: Final = (
    "boot_clock compiled_modules drop_catalog errors file_modes log paths snapshot version waiting_io",
    "native",
    "core",
    "client fleet journal key_files net",
    "aio config endpoint handover testing",
    # Each gateway is a program of its own, and a client of the daemon.
    "__init__ bus gateways",
    "doctor monitoring recorder",
    "daemon pipeline",
    "cli",
)
#: the same for the parts of a room
INSIDE: Final[dict[str, tuple[str, ...]]] = {
    "bus": ("clients", "delivery", "incoming", "requests"),
    "cli": ("shared", "messages diagnosis", "pipe journals"),
    "native": ("buffers", "system"),
    "core": ("wire", "formats matching observing trust", "tracking", "receiving sending"),
    "pipeline": (
        "clocks lake reports restarts schema source sql",
        "epochs inputs",
        "receivers",
        "units",
        "compute report",
        "driver",
    ),
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


def above(layers: tuple[str, ...]) -> dict[str, set[str]]:
    """What each part may import: itself, and what stands in the layers above."""
    names = [layer.split() for layer in layers]
    return {one: {one}.union(*names[:number]) for number, layer in enumerate(names) for one in layer}


def test_imports_run_downward() -> None:
    allowed = above(PARTS)
    upward = {
        f"{path.relative_to(ROOT)}: {'.'.join(name)}"
        for path in modules()
        for name in imported(path)
        if name[0] == "bccnd" and len(name) > 1 and name[1] not in allowed[part_of(path)]
    }
    for room, layers in INSIDE.items():
        inside = above(layers)
        upward |= {
            f"{path.relative_to(ROOT)}: {'.'.join(name)}"
            for path in modules(room)
            if path.parent.name != room
            for name in imported(path)
            if name[:2] == ("bccnd", room) and name[2] not in inside[path.parent.name]
        }
    assert upward == set()
    # Programs share with the daemon only how a UDP socket is opened.
    shared = {name[2] for path in modules("endpoint") for name in imported(path) if name[:2] == ("bccnd", "net")}
    assert shared == {"segment_opening"}


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
