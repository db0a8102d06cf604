"""The package on a host: install, first start, what it says when it cannot start, removal."""

from __future__ import annotations

import re
from typing import Final

from tests.systemd import load
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, dpkg, wait

UNITS: Final = ("bccnd.service", "bccnd-bus.socket", "bccnd-udp.socket", "bccnd-metrics.socket")
#: what changes with every installation and removal of any package, and with every run of a host
_RECORDS: Final = re.compile(
    r"^/(var/lib/dpkg/(status|status-old|available|lock|lock-frontend|diversions|triggers/\w+|updates|info)"
    r"|var/log/(dpkg\.log|journal/.*|wtmp|btmp|lastlog)|var/cache/ldconfig/aux-cache|etc/\.pwd\.lock"
    r"|etc/(passwd|shadow)-|etc/g(roup|shadow)-?|var/lib/systemd/(catalog/database|random-seed|timers/.*|linger)|.*/__pycache__(/.*)?)$"
)


def listing(host: Host) -> set[str]:
    """Every file of a host's disk: kind, mode, owner, name, and what is in it or where it leads."""
    look = "find / -xdev \\( -path /tmp -o -path /run -o -path /proc -o -path /sys -o -path /dev \\) -prune -o "
    output = host.run("sh", "-c", look + "-printf '%y %m %U:%G %p %l\\n'")
    kinds = {line for line in output.splitlines() if not _RECORDS.match(line.split(" ")[3])}
    sums = host.run("sh", "-c", look + "-type f -path '/etc/*' -exec sha256sum {} +")
    return kinds | {line for line in sums.splitlines() if not _RECORDS.match(line.split()[1])}


def test_install_starts_it_and_purge_leaves_only_the_group(hosts: Hosts) -> None:
    hosts.wire("a")
    host = hosts.host("a", bare=True)
    host.boot()
    before = listing(host)
    dpkg(host, "-i", "/packages/old.deb")
    host.wait_active("the first start, with the configuration as it is shipped")
    for unit in UNITS:
        assert host.show("ActiveState", unit) == "active", unit
        assert host.run("systemctl", "is-enabled", unit).strip() == "enabled"
    assert host.run("systemctl", "is-system-running", check=False).strip() == "running"

    # It is what it says, and serves: programs, Prometheus.
    version = host.run("dpkg-query", "-W", "-f", "${Version}", "bccnd")
    # Debian sorts 1.2.0~dev0 before 1.2.0, Python 1.2.0.dev0.
    assert f'version="{version.replace("~", ".")}"' in host.page()
    with load.witness(host) as program, load.local_speaker(host, 0, 100, "-n", "20") as speaker:
        assert speaker.finish(ask=False)["sent"] == 20
        assert load.faults(program.finish(), {0: 20}) == []
    assert "ok" in host.page("/healthz").lower()

    # It writes no file: these folders are what ProtectSystem= leaves out.
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        command = ("nsenter", "-t", host.show("MainPID"), "-m", "touch", f"{folder}/written")
        assert "Read-only file system" in host.run(*command, check=False), folder

    added = sorted(listing(host) - before)
    assert any("/usr/bin/bccnd" in line for line in added)
    dpkg(host, "--remove", "bccnd")
    assert host.run("systemctl", "list-units", "--plain", "--no-legend", "bccnd*").strip() == ""
    assert not host.path("/run/bccnd/bus.sock").exists()
    dpkg(host, "--purge", "bccnd")
    host.run("systemctl", "daemon-reload")
    after = listing(host)
    assert sorted(after - before) == []
    assert sorted(before - after) == []
    assert not host.path("/run/bccnd").exists()
    # A group is never removed: files may belong to it.
    assert host.run("getent", "group", "bccn").startswith("bccn:")


def test_after_a_boot_it_runs_and_only_the_group_may_use_the_bus(hosts: Hosts) -> None:
    hosts.wire("a")
    host = hosts.ready("a")
    for name, groups in (("ann", ["-G", "bccn"]), ("bob", [])):
        host.run("useradd", "-M", *groups, name)
    ask = ("bccn", "pub", "x", "y")
    assert host.run("runuser", "-u", "ann", "--", *ask) == ""
    output = host.run("runuser", "-u", "bob", "--", *ask, check=False)
    assert "bob" in output or "ermission" in output
    assert "Remedy" in output or "bccn" in output
    # The kernel says which program connects, and it is not hidden from the daemon.
    with load.witness(host):
        (client,) = [one for one in host.clients() if one["program"] == "witness"]
        assert client["identity"] == f"host-a/witness/{client['pid']}"


def test_what_stops_a_start_is_told_by_status(hosts: Hosts) -> None:
    config, key = "/etc/bccnd/bccnd.yaml", "/etc/bccnd/keys/hmac.key"
    hosts.wire("a")
    host = hosts.ready("a")
    pid = host.main_pid()

    def says(*words: str) -> bool:
        # systemd takes a moment to have what was logged, and forgets the last word at each attempt to start.
        status = host.run("systemctl", "status", "--no-pager", "-l", "bccnd.service", check=False)
        return all(word in status for word in words)

    # A reload is refused; the daemon goes on with what it has.
    host.write(config, "segments: [{port: 99999}]\n")
    assert host.status("systemctl", "reload", "bccnd.service") != 0
    assert (host.main_pid(), host.show("ActiveState")) == (pid, "active")
    wait(lambda: says("99999"), "the reason in the status")
    # A start fails, and once it is put right it goes on by itself.
    assert host.status("systemctl", "restart", "bccnd.service") != 0
    wait(lambda: says("99999", config), "the reason and the file in the status")
    hosts.configure(host)
    wait(lambda: host.show("ActiveState") == "active", "the next start")
    host.path(key).unlink()
    assert host.status("systemctl", "restart", "bccnd.service") != 0
    wait(lambda: says(key, "remedy: "), "the key and the remedy in the status")
    host.run("bccn", "keygen", key)
    wait(lambda: host.show("ActiveState") == "active", "the next start, with the key")


def test_an_upgrade_that_cannot_start_leaves_the_old_one(hosts: Hosts) -> None:
    hosts.wire("a")
    host = hosts.ready("a")
    pid = host.main_pid()
    host.write("/etc/bccnd/bccnd.yaml", "hots: relay01\n")
    with load.witness(host, "-n", "2") as program:
        output = dpkg(host, "-i", "/packages/new.deb")
        assert "hots" in output
        assert host.main_pid() == pid
        hosts.configure(host)
        dpkg(host, "-i", "/packages/new.deb")
        host.wait_active()
        assert host.main_pid() != pid
        assert "+newer" in host.page()
        assert load.faults(program.finish(), {}) == []
