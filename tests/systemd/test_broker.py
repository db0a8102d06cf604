"""The TCP broker as a service of a booted host: it listens, uses the bus, reports there, and keeps what it must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from bccnd.gateways.broker.session_store import load
from tests.support import ROOT
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, wait

UNIT: Final = "bccnd-broker.service"
PUBLISH: Final = (
    "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto("
    "sys.argv[1].encode().ljust(50, b'\\0') + b'\\x01\\x09\\x7e', ('127.0.0.1', 5401))"
)

CONNECT: Final = "import socket; socket.create_connection(('127.0.0.1', 5401))"
OCCUPY: Final = "import socket, time; taken = socket.create_server(('127.0.0.1', 5401)); time.sleep(600)"


def figures(host: Host) -> dict[str, Any]:
    """What the daemon knows of the broker."""
    rows = map(json.loads, host.run("bccn", "gateways", "--json").splitlines())
    return next(row for row in rows if row["gateway"] == "broker")


def reader(host: Host, *topics: str) -> None:
    """A subscriber C1 in the background, which ends with its first message."""
    host.write("/tmp/subscriber.py", (ROOT / "examples/broker/subscriber.py").read_text())
    words = " ".join(f"'{topic}'" for topic in topics)
    command = f"python3 /tmp/subscriber.py --id C1 -n 1 -t 30 127.0.0.1:5401 {words} </dev/null >/tmp/heard 2>&1 &"
    host.run("sh", "-c", command)
    wait(lambda: figures(host)["peers_connected"] == 1, "the subscriber", 20)


def heard(host: Host) -> str:
    return host.path("/tmp/heard").read_text()


def test_the_broker_as_a_service(hosts: Hosts, tmp_path: Path) -> None:
    hosts.wire("a")
    host = hosts.ready("a")
    assert host.run("systemctl", "is-enabled", UNIT, check=False).strip() == "disabled"
    # What is not configured is said, and not tried again and again.
    host.run("systemctl", "start", UNIT, check=False)
    wait(lambda: host.show("ActiveState", UNIT) == "failed", "it to give up", 20)
    assert "gateways.broker" in host.output(UNIT)

    hosts.configure(host, {"gateways": {"broker": {"tcp": "127.0.0.1:5401", "udp": "127.0.0.1:5401"}}})
    host.reload()
    host.run("systemctl", "enable", "--now", UNIT)
    wait(lambda: figures(host)["up"], "it to report", 20)
    reader(host, "upb/*")
    host.run("python3", "-c", PUBLISH, "upb/temp")
    wait(lambda: "upb/temp - SHORT_REAL - 24.30" in heard(host), "the publication", 20)
    wait(lambda: figures(host)["peers_connected"] == 0, "it to leave", 20)

    # Killed, it comes back with what was subscribed to; so it does with another daemon.
    before = host.show("MainPID", UNIT)
    host.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", UNIT)
    wait(lambda: host.show("MainPID", UNIT) not in ("0", before), "the next one", 20)
    wait(lambda: figures(host)["up"], "it to report", 20)
    reader(host)
    host.run("systemctl", "restart", "bccnd.service")
    host.wait_active()
    host.run("bccn", "pub", "upb/door", "open")
    wait(lambda: "127.0.0.1:0 - upb/door - STRING - open" in heard(host), "the message", 20)

    # It is neither root nor the daemon, and no other user sees its file.
    pid = host.show("MainPID", UNIT)
    status = host.run("cat", f"/proc/{pid}/status")
    assert "\nUid:\t0\t" not in status
    assert host.run("cat", f"/proc/{pid}/comm").strip() == "bccnd-broker"
    path = "/var/lib/bccnd-broker/broker-127.0.0.1-5401.db"
    assert host.run("stat", "-c", "%a", path).strip() == "600"
    host.run("systemctl", "stop", UNIT)
    assert host.show("Result", UNIT) == "success"
    # Of a copy: SQLite follows /proc/PID/root to the root of this machine.
    (tmp_path / "state.db").write_bytes(host.path(path).read_bytes())
    ((name, _, topics),) = load(str(tmp_path / "state.db"), "", 0.0)[0]
    assert (name, topics) == (b"C1", (b"upb/*",))

    # A port that another program has fails the start; once it is free, the next attempt of systemd succeeds.
    host.run("systemd-run", "--unit=other", "python3", "-c", OCCUPY)
    wait(lambda: host.status("python3", "-c", CONNECT) == 0, "the other program", 20)
    assert host.status("systemctl", "start", UNIT) != 0
    assert "cannot listen on 127.0.0.1:5401" in host.output(UNIT)
    host.run("systemctl", "stop", "other")
    wait(lambda: host.show("ActiveState", UNIT) == "active", "it to have the port", 30)
    assert "Traceback" not in host.output(UNIT)
