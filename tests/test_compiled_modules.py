"""Which programs need compiled modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support import ROOT

#: prints the primitives that clients and commands load, then how a module of core and a primitive are loaded
PROGRAM: Final = """
import importlib, sys
import bccnd, docs.reference
from bccnd.cli import bccnd_main, main, sbusd
bccnd.aio, bccnd.connect, bccnd.Endpoint, bccnd.read_key
for entry in main.COMMANDS.values():
    importlib.import_module(f"bccnd.cli.{entry.place.partition(':')[0]}")
print(*(name for name in sys.modules if name.startswith("bccnd.native")))
import bccnd.core.receiving.ingress as ingress, bccnd.native.buffers.header as header
print(*(module.__file__.rpartition(".")[2] for module in (ingress, header)))
"""


@pytest.mark.parametrize(("core", "kinds"), [("", "so so"), ("python", "py so")])
def test_clients_and_commands_need_no_primitive(core: str, kinds: str) -> None:
    environment = {**os.environ, "BCCND_CORE": core, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"\n{kinds}\n", "")


@pytest.mark.parametrize("words", ["bccnd_main", "bccnd_main --gateway nng", "sbusd -f -a /dev/unix/abstract"])
def test_a_server_of_the_pure_package_ends_with_a_remedy(tmp_path: Path, words: str) -> None:
    shutil.copytree(ROOT / "bccnd", tmp_path / "bccnd", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    module, *arguments = words.split()
    code = f"from bccnd.cli.{module} import main; main(prog_name='server')"
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    assert "remedy: " in done.stderr
