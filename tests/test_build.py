"""Compiled modules: the list in setup.py, the declarations beside them, the check that none is stale, the wheels."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from bccnd.leaf import clock
from tests.conftest import SUFFIX, listed, mismatch, module_name, origin, sources, stale
from tests.support import ROOT, cannot_here
from tests.tree import repository

COMPILED: Final = listed()
#: the modules that are written a second time in Cython
LEAVES: Final = [Path(source).stem for source in COMPILED if source.endswith(".pyx")]


def test_the_list_and_the_files_in_cython_agree() -> None:
    assert [source for source in COMPILED if not (ROOT / source).is_file()] == []
    assert [source for source in COMPILED if not (ROOT / source).with_suffix(".pxd").is_file()] == []
    listed_modules = [module_name(source) for source in COMPILED]
    assert len(set(listed_modules)) == len(listed_modules) > 10
    cython = [path.relative_to(ROOT) for kind in ("pxd", "pyx") for path in (ROOT / "bccnd").rglob(f"*.{kind}")]
    assert [path for path in cython if module_name(str(path)) not in listed_modules] == []
    # Each module in Cython is in the leaf, and there in plain Python too.
    assert [path for path in cython if path.suffix == ".pyx" and path.parent != Path("bccnd/leaf")] == []
    assert [name for name in LEAVES if not (ROOT / f"bccnd/leaf/{name}.py").is_file()] == []


def test_the_build_under_test_is_the_one_that_is_loaded() -> None:
    kinds = {importlib.import_module(module_name(source)).__file__.endswith(SUFFIX) for source in COMPILED}  # type: ignore[union-attr]
    wanted = os.environ.get("BCCND_BUILD")
    assert kinds == ({wanted == "compiled"} if wanted else kinds)
    assert kinds == {clock.COMPILED}


def is_public(name: str) -> bool:
    return not name.startswith("_")


def assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [ast.unparse(name) for one in targets for name in (one.elts if isinstance(one, ast.Tuple) else [one])]


def plain_names(name: str) -> dict[str, set[str]]:
    """The public names of a plain module, each with its own public attributes if it is a class."""
    found: dict[str, set[str]] = {}
    for node in ast.parse((ROOT / f"bccnd/leaf/{name}.py").read_text()).body:
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            inside = [one for method in methods for one in ast.walk(method) if isinstance(one, ast.stmt)]
            fields = [text[5:] for one in inside for text in assigned(one) if text.startswith("self.")]
            bases = [ast.unparse(base).split(".") for base in node.bases]
            inherited = {one for base in bases if len(base) == 2 for one in plain_names(base[0])[base[1]]}
            fields = [one for one in fields if one not in inherited]
            found[node.name] = set(filter(is_public, [*(method.name for method in methods), *fields]))
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = set()
        else:
            found |= {text: set() for text in assigned(node)}
    return {one: attributes for one, attributes in found.items() if is_public(one)}


@pytest.mark.skipif(not clock.COMPILED, reason="not compiled: there is nothing to compare")
@pytest.mark.parametrize("name", LEAVES)
def test_a_compiled_module_offers_what_the_plain_one_does_and_nothing_else(name: str) -> None:
    module = importlib.import_module(f"bccnd.leaf.{name}")
    offered = {one: thing for one, thing in vars(module).items() if is_public(one)}
    compiled = {
        one: set(filter(is_public, vars(thing))) if isinstance(thing, type) else set()
        for one, thing in offered.items()
        if not isinstance(thing, ModuleType) and getattr(thing, "__module__", module.__name__) == module.__name__
    }
    assert compiled == plain_names(name)
    for node in ast.parse((ROOT / f"bccnd/leaf/{name}.py").read_text()).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        # Only whether it is compiled may differ.
        if isinstance(value, ast.Constant) and assigned(node) != ["COMPILED"]:
            assert [getattr(module, text) for text in assigned(node) if is_public(text)] in ([], [value.value])


def tree(root: Path, names: dict[str, str]) -> None:
    """Write files, each a second younger than the one before."""
    for age, (name, text) in enumerate(names.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000 + age, 1_000_000 + age))


FILES: Final = {
    "setup.py": 'COMPILED = (\n    "bccnd/core/one.py",\n    "bccnd/leaf/two.pyx",\n)\n',
    "bccnd/leaf/two.py": "",
    "bccnd/leaf/two.pyx": "",
    "bccnd/leaf/two.pxd": "cdef int deux\n",
    "bccnd/core/other.py": "",
    "bccnd/core/other.pxd": "from bccnd.leaf cimport two\n",
    "bccnd/core/one.pxd": "cimport cython\nfrom bccnd.core.other cimport Other, More\n",
    "bccnd/core/one.py": "",
    f"bccnd/leaf/two{SUFFIX}": "",
    f"bccnd/core/one{SUFFIX}": "",
}


def test_a_module_is_made_of_its_source_and_the_declarations_that_it_uses(tmp_path: Path) -> None:
    tree(tmp_path, FILES)
    assert listed(tmp_path) == ["bccnd/core/one.py", "bccnd/leaf/two.pyx"]
    core, deep = tmp_path / "bccnd/core", tmp_path / "bccnd/leaf"
    expected = {core / "one.py", core / "one.pxd", core / "other.pxd", deep / "two.pxd"}
    assert sources(tmp_path, "bccnd/core/one.py") == expected
    assert sources(tmp_path, "bccnd/leaf/two.pyx") == {deep / "two.pyx", deep / "two.pxd"}
    clients = {str(path.relative_to(ROOT)) for path in sources(ROOT, "bccnd/net/clients.py")}
    assert {"bccnd/net/clients.py", "bccnd/net/clients.pxd", "bccnd/core/runs.pxd", "bccnd/leaf/scan.pxd"} <= clients


def test_a_compiled_module_is_stale_once_anything_that_it_is_made_of_has_changed(tmp_path: Path) -> None:
    stale_after = {
        "bccnd/core/one.py": ["core/one"],
        "bccnd/core/one.pxd": ["core/one"],
        "bccnd/core/other.pxd": ["core/one"],
        "bccnd/leaf/two.pyx": ["leaf/two"],
        "bccnd/leaf/two.pxd": ["core/one", "leaf/two"],
        "bccnd/leaf/two.py": [],
        "bccnd/core/other.py": [],
        "setup.py": [],
    }
    for touched, wrong in stale_after.items():
        tree(tmp_path, FILES)
        assert stale(tmp_path, listed(tmp_path)) == []
        os.utime(tmp_path / touched, (2_000_000, 2_000_000))
        assert stale(tmp_path, listed(tmp_path)) == [f"bccnd/{name}{SUFFIX} is older than {touched}" for name in wrong]
    tree(tmp_path, {**FILES, f"bccnd/core/gone{SUFFIX}": "", "bccnd/core/gone.other-python.so": ""})
    (line,) = stale(tmp_path, listed(tmp_path))
    assert line.startswith(f"bccnd/core/gone{SUFFIX} is of a module that is not compiled any more")


def test_what_is_wanted_is_what_must_be_there() -> None:
    pure = {"a": "/x/a.py", "b": "/x/b.py"}
    compiled = {"a": f"/x/a{SUFFIX}", "b": f"/x/b{SUFFIX}"}
    mixed = {"a": pure["a"], "b": compiled["b"]}
    for wanted, good in (("", [pure, compiled]), ("pure", [pure]), ("compiled", [compiled]), ("Pure", [])):
        for origins in (pure, compiled, mixed):
            assert bool(mismatch(wanted, origins)) is (origins not in good)


def test_a_run_for_the_other_build_ends_before_it_begins() -> None:
    compiled = origin("bccnd.leaf.scan").endswith(SUFFIX)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--import-mode=append", "tests/test_build.py"],
        cwd=ROOT,
        env={**os.environ, "BCCND_BUILD": "pure" if compiled else "compiled"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert f"bccnd.leaf.scan is {'' if compiled else 'not '}compiled" in done.stdout + done.stderr


def wheel(folder: Path, **environment: str) -> Path:
    """The wheel that comes of the files of the repository."""
    for name in repository():
        target = folder / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    kept = {name: value for name, value in os.environ.items() if name not in ("BCCND_PURE", "PYTHONPATH")}
    options = ["-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder / "out"), "."],
        cwd=folder / "tree",
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (folder / "out").iterdir()
    return found


def modules_in(archive: zipfile.ZipFile) -> set[str]:
    return {name for name in archive.namelist() if name.startswith("bccnd/")}


def belonging() -> set[str]:
    """What every wheel has in it."""
    return {name for name in repository() if re.fullmatch(r"bccnd/.*\.(py|pyx|pxd|typed|css|js|svg)", name)}


def kinds_loaded(folder: Path) -> set[str]:
    """How the modules on the list are loaded from a wheel that was unpacked."""
    names = [module_name(source) for source in COMPILED]
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        f"import importlib, bccnd.daemon\n"
        f"assert bccnd.__file__.startswith({str(folder)!r})\n"
        f"print(*{{importlib.import_module(name).__file__.rpartition('.')[2] for name in {names}}})"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_the_pure_wheel_needs_no_compiler_and_fits_everywhere(tmp_path: Path) -> None:
    found = wheel(tmp_path, BCCND_PURE="1", CC="/bin/false", CXX="/bin/false")
    assert found.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(found) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", ".c", ".o"))]
        assert modules_in(archive) == belonging()
        archive.extractall(tmp_path / "unpacked")
    assert kinds_loaded(tmp_path / "unpacked") == {"py"}


@pytest.mark.slow
@pytest.mark.timeout(400)  # it takes half a minute, on a machine that does nothing else
def test_the_compiled_wheel_has_every_module_of_the_list_and_names_its_platform(tmp_path: Path) -> None:
    if os.environ.get("BCCND_BUILD") == "pure":
        pytest.skip("it is made once, where what is compiled is tested")
    headers = [Path(sysconfig.get_path("include")) / "Python.h", Path("/usr/include/openssl/sha.h")]
    if shutil.which("cc") is None or not all(header.is_file() for header in headers):
        cannot_here("there is no compiler, or not the headers of Python and OpenSSL")
    found = wheel(tmp_path)
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.search(rf"-{version}-{version}-linux_\w+\.whl$", found.name)
    built = {source.rpartition(".")[0] + SUFFIX for source in COMPILED}
    with zipfile.ZipFile(found) as archive:
        assert modules_in(archive) == belonging() | built
        assert not [name for name in archive.namelist() if name.endswith((".c", ".o"))]
        archive.extractall(tmp_path / "unpacked")
    assert kinds_loaded(tmp_path / "unpacked") == {"so"}
