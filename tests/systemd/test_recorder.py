"""The recorder as a service of a booted host: it may tap and use the socket, writes where it may, and comes back."""

from __future__ import annotations

import json
from typing import Final

from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, wait
from tests.systemd.recorders import give_pyarrow

UNIT: Final = "bccnd-recorder.service"


def rows(host: Host) -> list[dict[str, object]]:
    """What stands in the host's journal: verdict, channel and journal of every record but the daemon's own reports."""
    code = (
        "import sys, json; sys.path += ['/opt/bccnd/lib']\n"
        "import glob, pyarrow.parquet as pq\n"
        "for path in glob.glob('/var/lib/bccnd/journal/obs/*/*/*.parquet'):\n"
        "    table = pq.read_table(path, partitioning=None, columns=['verdict', 'chan', 'journal_id', 'rec_no'])\n"
        "    for row in table.to_pylist(): print(json.dumps(row))\n"
    )
    every = [json.loads(line) for line in host.run("python3", "-IS", "-c", code).splitlines()]
    return [row for row in every if not row["chan"].startswith("bccn/report/")]


def ids(host: Host, unit: str) -> list[str]:
    """User and group of a service, in numbers."""
    status = host.run("cat", f"/proc/{host.show('MainPID', unit)}/status")
    return [line.split()[1] for line in status.splitlines() if line.startswith(("Uid:", "Gid:"))]


def test_the_recorder_as_a_service(hosts: Hosts) -> None:
    hosts.wire("a")
    host = hosts.ready("a", {"recorder": {"rotate": "2s", "keep": {"age": "1d"}}})
    # Without what it needs it is not started, and says what is missing.
    assert host.run("systemctl", "is-enabled", UNIT, check=False).strip() == "disabled"
    host.run("systemctl", "start", UNIT)
    assert host.show("ActiveState", UNIT) == "inactive"
    assert "/opt/bccnd/bin/bccn" in host.run("systemctl", "status", "--no-pager", "-l", UNIT, check=False)
    give_pyarrow(host)
    host.run("systemctl", "enable", "--now", UNIT)
    wait(lambda: "recording" in host.show("StatusText", UNIT), "it to record", 30)
    assert host.show("ActiveState", UNIT) == "active"
    host.run("bccn", "pub", "demo/one", "first")
    wait(lambda: [row["chan"] for row in rows(host)] == ["demo/one"], "a file", 30)
    # Killed, it is started again and puts what it had into the journal; the daemon restarted, it goes on.
    host.run("bccn", "pub", "demo/two", "second")
    before = host.show("MainPID", UNIT)
    host.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", UNIT)
    wait(lambda: host.show("MainPID", UNIT) not in ("0", before), "the next recorder", 30)
    wait(lambda: "recording" in host.show("StatusText", UNIT), "it to record", 30)
    host.run("systemctl", "restart", "bccnd.service")
    host.wait_active()
    host.run("bccn", "pub", "demo/three", "third")
    wait(lambda: len(rows(host)) == 3, "all of it", 30)
    found = sorted(rows(host), key=lambda row: (str(row["journal_id"]), str(row["rec_no"])))
    assert [row["chan"] for row in found] == ["demo/one", "demo/two", "demo/three"]
    assert {row["verdict"] for row in found} == {"looped"}
    assert "Traceback" not in host.output(UNIT)
    # It is neither root nor the daemon, and no other user sees its files.
    (uid, gid), (daemon, group) = (ids(host, unit) for unit in (UNIT, "bccnd.service"))
    assert uid not in ("0", daemon)
    assert gid == group
    assert host.run("stat", "-L", "-c", "%a", "/var/lib/bccnd/journal").strip() == "750"
    host.run("systemctl", "stop", UNIT)
    assert host.show("Result", UNIT) == "success"
    assert host.run("sh", "-c", "ls /var/lib/bccnd/journal/.spool/*/*.log 2>/dev/null", check=False) == ""
