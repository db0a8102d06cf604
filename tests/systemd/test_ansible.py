"""The Ansible role on a booted host: what each run changes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support import ROOT, cannot_here
from tests.systemd import load
from tests.systemd.conftest import Hosts, Packages
from tests.systemd.host import Host

PROGRAM: Final = Path(sys.executable).with_name("ansible-playbook")
FOLDER: Final = ROOT / "packaging/ansible"
#: for one run of the playbook (s)
_PATIENCE: Final = 180
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: in place of ssh, whose last argument is the command
_SSH: Final = '#!/bin/sh\nfor command do :; done\nexec {enter} sh -c "$command"\n'


class Playbook:
    """The sample playbook with the sample inventory, for one host, with variables of the test."""

    def __init__(self, host: Host, folder: Path, package: Path) -> None:
        self._folder = folder
        self.key = folder / "hmac.key"
        self.key.write_bytes(load.KEY)
        (play,) = yaml.safe_load((FOLDER / "site.yml").read_text())
        own = {"bccnd_package": str(package), "bccnd_keys": [str(self.key)], "bccnd_users": ["ann"]}
        self.variables: dict[str, Any] = {**play["vars"], **own}
        ssh = folder / "ssh"
        ssh.write_text(_SSH.format(enter=shlex.join(host.inside("env", "-i", f"PATH={_PATH}", "HOME=/root"))))
        ssh.chmod(0o700)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANSIBLE"))},
            "PATH": _PATH,
            "LC_ALL": "C.UTF-8",
            # facts of the host, which no variable here uses
            "ANSIBLE_GATHERING": "explicit",
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_REMOTE_USER": "root",
            "ANSIBLE_SSH_ARGS": "",
            "ANSIBLE_SSH_EXECUTABLE": str(ssh),
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
        }

    def run(self) -> tuple[dict[str, int], str]:
        """Run it; what it counts as changed and failed, and what it says."""
        variables = self._folder / "variables.json"
        variables.write_text(json.dumps(self.variables))
        words = [str(PROGRAM), "-i", str(FOLDER / "inventory.ini"), "--limit", "relay01*", "-e", f"@{variables}"]
        done = subprocess.run(
            [*words, str(FOLDER / "site.yml")],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
        counts = {name: int(count) for name, count in re.findall(r"\b(changed|failed)=(\d+)", done.stdout)}
        assert counts, done.stdout
        assert (done.returncode == 0) == (counts["failed"] == 0), done.stdout
        return counts, done.stdout


def test_the_ansible_role_on_a_booted_host(hosts: Hosts, packages: Packages, tmp_path: Path) -> None:
    if not PROGRAM.exists():
        cannot_here("ansible-core is not installed: make test-systemd installs it")
    hosts.wire("a")
    host = hosts.host("a", bare=True)
    host.boot()
    host.run("useradd", "-M", "ann")
    playbook = Playbook(host, tmp_path, packages.old)
    counts, output = playbook.run()
    assert counts["failed"] == 0, output
    host.wait_active()
    # No daemon has run without the key.
    assert all("integrity hmac" in entry["MESSAGE"] for entry in host.journal(BCCND_EVENT="ready"))
    assert "bccn" in host.run("id", "-nG", "ann").split()
    assert host.run("stat", "-c", "%a %U", "/etc/bccnd/keys/hmac.key").split() == ["600", "root"]

    # A second run changes nothing.
    pid = host.main_pid()
    counts, output = playbook.run()
    assert counts == {"changed": 0, "failed": 0}, output
    assert host.main_pid() == pid

    # Another setting is taken over by a reload.
    config = playbook.variables["bccnd_config"]
    config["access"] = [{"group": "bccn", "publish": ["demo/"], "subscribe": [""]}]
    reloads = len(host.journal(BCCND_EVENT="reload_applied"))
    counts, output = playbook.run()
    assert counts == {"changed": 2, "failed": 0}, output
    assert host.main_pid() == pid
    assert len(host.journal(BCCND_EVENT="reload_applied")) == reloads + 1

    # A faulty one is refused, with its reason, before it replaces the good one.
    good = host.path("/etc/bccnd/bccnd.yaml").read_text()
    config["hots"] = "relay01"
    counts, output = playbook.run()
    assert counts == {"changed": 0, "failed": 1}, output
    assert "hots" in output
    assert host.path("/etc/bccnd/bccnd.yaml").read_text() == good
    del config["hots"]

    # Another package and another key each restart the daemon.
    playbook.variables["bccnd_package"] = str(packages.new)
    counts, output = playbook.run()
    assert counts["failed"] == 0, output
    assert "+newer" in host.page()
    assert host.main_pid() != pid
    pid = host.main_pid()
    playbook.key.write_bytes(load.KEY[::-1])
    counts, output = playbook.run()
    assert counts == {"changed": 2, "failed": 0}, output
    assert host.main_pid() != pid
