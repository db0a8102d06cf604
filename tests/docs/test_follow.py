"""Pages for newcomers can be followed to the letter: each command ends as the page says, and shows what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import Block, commands, pattern, read_page
from tests.support import ROOT, need_root

#: pages whose commands are run, each from its first block to its last one
FOLLOWED: Final = (
    "README.md",
    "docs/getting-started.md",
    "docs/recipes.md",
    "docs/teams.md",
    "docs/tutorial.md",
)
#: commands of these pages that are not run: whole suites, what needs the network, units, other machines
NOT_RUN: Final = re.compile(r"make (?:demo|test|deb|ready-report)|adduser")
#: what a page takes for granted, by the command before which it happens
PREPARED: Final = {
    ("docs/recipes.md", "python adder.py"): "bccnd & rest",
    # Other hosts, whose messages are recorded.
    ("docs/getting-started.md", "bccn record"): """
        for n in $(seq 10 20); do
            sleep 0.5; printf 'BCCN1[31]relay02/load/1:%d:load/there|xx' $n |
            socat - UDP4-DATAGRAM:127.255.255.255:5400,broadcast; done &""",
}
#: the text before a block that is the content of a file
_FILE: Final = re.compile(r"[Ww]rite .*\bto `([^`]+)`.*:$")


def script(page: str, output: Path) -> str:
    lines = [f"output={shlex.quote(str(output))}", (Path(__file__).parent / "follow.sh").read_text()]
    lines += [f"export PATH={Path(sys.executable).parent}:$PATH", "begin 0"]
    python = False
    for block in read_page(page)[0]:
        if found := _FILE.search(block.before):
            path = shlex.quote(found[1])
            lines += [f"mkdir -p $(dirname {path}); cat >{path} <<'END OF FILE'\n{block.text}END OF FILE"]
        elif block.kind == "sh":
            lines += followed(block)
        elif block.kind == "python":
            program = (
                f"timeout --foreground --preserve-status -s INT 10 python - <<'END OF FILE'\n{block.text}END OF FILE"
            )
            lines += [f"begin {block.line}", program, "status=$?; [ $status = 130 ] || ended $status 0"]
        elif block.kind == "text" and python:
            lines += [f"await {shlex.quote(pattern(line))}" for line in block.text.splitlines()]
        python = block.kind == "python"
    return "\n".join([*lines, "kill -KILL $(jobs -p) 2>/dev/null", "exit 0"])


def followed(block: Block) -> Iterator[str]:
    for command in commands(block):
        text = command.text
        if NOT_RUN.match(text):
            continue
        yield from (
            prepared for (page, start), prepared in PREPARED.items() if page == block.page and text.startswith(start)
        )
        waits = [f"await {shlex.quote(command.shows)}"] if command.shows else []
        interrupted = "Ctrl-C ends it" in command.comment
        yield f"begin {command.line}"
        if interrupted or "until Ctrl-C" in command.comment:
            yield f"{{ {text}\n}} &"
            yield from waits or ["rest"]
            yield from ["interrupt"] if interrupted else []
        elif command.stays:
            yield from (text, *(waits or ["rest"]))
        else:
            yield from (text, f"ended $? {command.status}", *waits)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    need_root("a host of its own takes namespaces")
    file = tmp_path / "script"
    file.write_text(script(page, tmp_path / "output"))
    python = Path(sys.prefix).resolve()
    writable = [*map(Path, ("/etc", "/root", "/run", "/tmp", "/var/lib")), ROOT]
    writable += [] if python.is_relative_to(ROOT) else [python]
    spaces = ["--mount", "--pid", "--ipc", "--uts", "--net", "--mount-proc", "--fork", "--kill-child"]
    done = subprocess.run(
        ["unshare", *spaces, "sh", Path(__file__).with_name("host.sh"), file, python, *writable],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1"}
        | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PIP_NO_INDEX": "1", "BCCND_PURE": "1", "EDITOR": "true"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, f"{page}: {done.stdout}{done.stderr}"
