"""Links as services of booted hosts, with what the package brings and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.gateways import certificates
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, wait

UNIT: Final = "bccnd-nng.service"


def figures(host: Host) -> dict[str, Any]:
    rows = map(json.loads, host.run("bccn", "gateways", "--json").splitlines())
    return next(row for row in rows if row["gateway"] == "nng")


def test_two_hosts_are_linked_with_certificates(hosts: Hosts, tmp_path: Path) -> None:
    certificates.make(tmp_path)
    hosts.wire("ab")
    places = {"relay01": {"listen": ["tls+tcp://0.0.0.0:5402"]}, "relay02": {"dial": ["tls+tcp://10.77.0.1:5402"]}}
    for letter, (name, place) in zip("ab", places.items(), strict=True):
        files = {"ca": "tls/ca.pem", "certificate": f"tls/{name}.pem", "key": f"tls/{name}.key"}
        tls = {**files, "server_name": "relay01"}
        host = hosts.ready(letter, {"gateways": {"nng": {**place, "tls": tls}}})
        assert host.run("systemctl", "is-enabled", UNIT, check=False).strip() == "disabled"
        for file in files.values():
            host.write(f"/etc/bccnd/{file}", (tmp_path / Path(file).name).read_bytes(), 0o600)
        host.run("systemctl", "enable", "--now", UNIT)
    a, b = hosts.all.values()
    wait(lambda: figures(a)["peers_connected"] == figures(b)["peers_connected"] == 1, "the link", 20)
    a.run("bccn", "pub", "demo/x", "hello")
    wait(lambda: figures(b)["received"], "the message", 20)
    # A killed gateway comes back, and so does the link.
    a.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", UNIT)
    wait(lambda: figures(b)["connects"] == 2 and figures(a)["peers_connected"] == 1, "the next link", 30)
    assert "\nUid:\t0\t" not in a.run("cat", f"/proc/{a.show('MainPID', UNIT)}/status")
    for host in (a, b):
        assert "Traceback" not in host.output(UNIT)
        host.run("systemctl", "stop", UNIT)
        assert host.show("Result", UNIT) == "success"
