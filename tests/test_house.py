"""The shape of the house: who may import whom, what stands at the top, and that every module says what its law is."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT, cannot_here

#: what a part may import of this package, beside itself. Downward only:
#: errors, leaf <- core <- journal, net, client <- gateways, recorder, pipeline, daemon <- cli; config beside daemon
MAY: dict[str, set[str]] = {
    "": {"aio", "client", "errors"},
    "errors": set(),
    "version": set(),
    "leaf": set(),
    "core": {"errors", "leaf"},
    "journal": {"core", "errors"},
    "net": {"core", "errors", "leaf", "version"},
    # Each is a program of its own, and a client of the daemon.
    "gateways": {"client", "config", "core", "errors"},
    # A program that speaks on the segment itself opens the same kind of socket as the daemon.
    "client": {"core", "errors", "net"},
    "aio": {"client", "errors"},
    "document": {"errors"},
    "config": {"client", "core", "document", "errors"},
    "pipeline": {"core", "client", "errors", "journal", "version"},
    # The recorder is a service too: it reports to systemd and to the log as the daemon does.
    "recorder": {"core", "client", "config", "errors", "journal", "net", "version"},
    # It looks at what the daemon uses, by the daemon's own means.
    "doctor": {"client", "config", "core", "errors", "net", "version"},
    "daemon": {"core", "net", "gateways", "client", "config", "errors", "leaf", "version"},
    "cli": {
        *("core", "net", "gateways", "client", "config", "errors", "journal", "recorder", "daemon", "pipeline"),
        *("doctor", "version"),
    },
}
#: what depends on the world, and so has no place where decisions are made
IMPURE = {
    *("asyncio", "socket", "time", "logging", "random", "os", "select", "threading"),
    *("datetime", "multiprocessing", "pathlib", "secrets", "selectors", "signal", "subprocess", "tempfile", "uuid"),
}
#: what the daemon must not carry around
HEAVY = {"asyncio", "click", "cryptography", "numpy", "pandas", "pyarrow", "pynng", "pyspark", "rich"}
#: what may stand at the top of the repository, beside dot files
TOP = {
    *("bccnd", "docs", "etc", "examples", "packaging", "systemd", "tests"),
    *("CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml", "setup.py"),
    # Spark finds a data source by the name of a top-level module
    "pyspark_bccn.py",
}

MODULES = sorted((ROOT / "bccnd").rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def part_of(path: Path) -> str:
    """The part that a module belongs to; empty for the package itself."""
    inside = path.relative_to(ROOT / "bccnd").with_suffix("").parts
    return "" if inside == ("__init__",) else inside[0]


def imports(source: str, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every module that a source imports, wherever in it; from a package, each name as well, as it may be a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            whole = base + tuple((node.module or "").split(".") if node.module else ())
            for alias in node.names:
                yield (*whole, alias.name)


def imported(path: Path) -> set[tuple[str, ...]]:
    inside = path.relative_to(ROOT).with_suffix("").parts[:-1]
    return set(imports(path.read_text(), inside))


def parts_imported(path: Path) -> set[str]:
    """The parts of this package that a module imports."""
    return {name[1] for name in imported(path) if name[0] == "bccnd" and len(name) > 1}


def repository() -> list[str]:
    """The files that belong to the repository: tracked, or about to be."""
    if shutil.which("git") is None:
        cannot_here("there is no git")
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        cannot_here(f"not a repository: {done.stderr.strip()}")
    # A file that was deleted and whose deletion is not recorded yet is still listed.
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_reader_of_imports_sees_every_kind_of_import() -> None:
    source = (
        "import a.b, c as d\n"
        "from e import f, g\n"
        "from . import h\n"
        "from .i import j\n"
        "from ..k import l\n"
        "def late():\n    import m\n"
        "if TYPE_CHECKING:\n    from n import o\n"
    )
    assert set(imports(source, ("bccnd", "net"))) == {
        *(("a", "b"), ("c",), ("e", "f"), ("e", "g"), ("m",), ("n", "o")),
        *(("bccnd", "net", "h"), ("bccnd", "net", "i", "j"), ("bccnd", "k", "l")),
    }


def test_every_part_is_known_to_this_rule() -> None:
    assert {part_of(path) for path in MODULES} <= set(MAY)
    assert {"", "errors", "core", "net", "client", "config", "daemon", "cli"} <= {part_of(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_downward_only(path: Path) -> None:
    part = part_of(path)
    assert parts_imported(path) - {part} <= MAY[part]


def test_the_rule_itself_runs_downward_only() -> None:
    order = [
        "errors",
        "version",
        "leaf",
        "core",
        "journal",
        "net",
        "client",
        "aio",
        "document",
        "config",
        "gateways",
        "recorder",
        "daemon",
    ]
    order += ["doctor", "pipeline", "cli"]
    for part, below in MAY.items():
        if part:
            assert all(order.index(one) < order.index(part) for one in below), part
    assert "gateways" not in MAY["net"]
    assert "net" not in MAY["gateways"]
    assert "pipeline" not in MAY["daemon"]


def test_programs_share_with_the_daemon_only_how_a_socket_is_opened() -> None:
    clients = [path for path in MODULES if part_of(path) == "client"]
    taken = {name[1:3] for path in clients for name in imported(path) if name[:2] == ("bccnd", "net")}
    assert taken == {("net", "udp")}


@pytest.mark.parametrize("path", [one for one in MODULES if part_of(one) in ("core", "errors")], ids=name_of)
def test_the_core_asks_nobody_for_the_time_or_the_world(path: Path) -> None:
    assert not {name[0] for name in imported(path)} & IMPURE


@pytest.mark.parametrize("path", [one for one in MODULES if part_of(one) in ("daemon", "net", "config")], ids=name_of)
def test_what_runs_in_the_daemon_names_nothing_heavy(path: Path) -> None:
    assert not {name[0] for name in imported(path)} & HEAVY


def loaded_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_daemon_loads_nothing_heavy_not_even_through_others() -> None:
    assert not loaded_after("import bccnd.daemon") & HEAVY
    # It must be this test that would notice.
    assert loaded_after("import bccnd.daemon, asyncio") & HEAVY == {"asyncio"}


def test_only_who_speaks_on_the_segment_loads_what_that_takes() -> None:
    show = "print(*sys.modules)"
    code = f"import sys, bccnd, bccnd.cli.tool\n{show}\nbccnd.Endpoint, bccnd.read_key\n{show}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = (set(line.split()) for line in done.stdout.splitlines())
    needed = {"bccnd.client.endpoint", "bccnd.client.keys", "bccnd.net.udp", "bccnd.core.routes"}
    assert not needed & before
    assert needed <= after


def test_a_program_that_connects_loads_neither_the_daemon_nor_its_libraries() -> None:
    assert not loaded_after("import bccnd") & (HEAVY | {"h11", "logging", "prometheus_client", "pydantic", "yaml"})


def test_the_bus_alone_loads_nothing_of_the_configuration_or_the_metrics() -> None:
    needless = (HEAVY - {"click"}) | {"h11", "prometheus_client", "pydantic", "yaml"}
    assert not loaded_after("import bccnd.cli.sbusd") & needless


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_begins_with_its_law(path: Path) -> None:
    says = ast.get_docstring(ast.parse(path.read_text()))
    assert says
    if path.name != "__init__.py" and part_of(path) in ("core", "net"):
        assert "Law:" in says


def test_the_top_of_the_repository_holds_only_what_belongs_there() -> None:
    top = {name.partition("/")[0] for name in repository()}
    assert {name for name in top if not name.startswith(".")} <= TOP
    assert {"bccnd", "etc", "pyproject.toml"} <= top


def test_no_file_speaks_of_a_place_that_only_its_authors_have() -> None:
    # Put together here, so that this file does not speak of them either.
    places = [b"/".join((b"..", b"shared")), b"/".join((b"", b"work", b"")), b".".join((b"design", b"md"))]
    guilty = [name for name in repository() if any(place in (ROOT / name).read_bytes() for place in places)]
    assert guilty == []
