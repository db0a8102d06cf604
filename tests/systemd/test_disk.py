"""A host whose disk is full: the daemon needs none of it."""

from __future__ import annotations

import time
from pathlib import Path

from tests.systemd import load
from tests.systemd.conftest import Hosts
from tests.systemd.host import wait


def test_with_a_full_disk_it_serves_on_and_can_be_restarted(hosts: Hosts, key_file: Path) -> None:
    hosts.wire("abc")
    a = hosts.host("a", room="48M")
    hosts.configure(a)
    # The journal is on the disk, too.
    a.path("/var/log/journal").mkdir(exist_ok=True)
    a.boot()
    a.wait_active()
    with load.Load(a, None, hosts.segment, key_file) as traffic:
        a.run("sh", "-c", "cat /dev/zero > /var/log/full", check=False)
        a.run("sh", "-c", "cat /dev/zero > /etc/full", check=False)
        assert a.status("sh", "-c", "echo something > /etc/more") != 0, "the disk is not full"
        assert a.status("sh", "-c", "echo something > /var/log/more") != 0
        time.sleep(0.5)
        for way in (["systemctl", "restart"], ["systemctl", "kill", "--kill-who=main", "-s", "KILL"]):
            before = a.main_pid()
            a.run(*way, "bccnd.service")
            wait(lambda before=before: a.main_pid() not in (0, before), "the next daemon")  # type: ignore[misc]
            a.wait_active()
            time.sleep(0.5)
        a.reload()
        assert traffic.finish(crashes=1) == []
    assert a.kernel_drops() == 0
    assert "active (running)" in a.run("systemctl", "status", "--no-pager", "bccnd.service")
