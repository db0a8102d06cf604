"""What an operator finds in the journal of a host: events by their ids, fields, and what the catalog says to them."""

from __future__ import annotations

import json
from typing import Any

from tests.systemd import load
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, wait


def event(host: Host, name: str) -> dict[str, Any]:
    """The first entry of an event; waits for it."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = host.journal(BCCND_EVENT=name)
        return bool(found)

    wait(there, f"{name} in the journal", 20)
    return found[0]


def test_events_are_found_by_id_and_field_and_explained(hosts: Hosts) -> None:
    segment = hosts.wire("ab")
    host = hosts.ready("a", {"bus": {"queue": {"messages": 16}}})
    with (
        load.witness(host, "-w", "1", "-p", "600"),
        load.local_speaker(host, 0, 5000, "-n", "2000") as here,
        load.remote_speaker(segment, "b", 1, 100, "-n", "20") as unsigned,
    ):
        assert here.finish(ask=False)["sent"] == 2000
        assert unsigned.finish(ask=False)["sent"] == 20
        slow = event(host, "client_slow")
        refused = event(host, "datagrams_refused")
        host.run("systemctl", "restart", "bccnd.service")
        entries = [event(host, name) for name in ("ready", "taken_over")]
    assert slow["BCCND_PROGRAM"] == "witness"
    assert slow["BCCND_UID"] == "0"
    assert slow["BCCND_IDENTITY"] == f"host-a/witness/{slow['BCCND_PID']}"
    assert slow["BCCND_REMEDY"] in slow["MESSAGE"]
    assert refused["BCCND_VERDICT"] == "integrity_missing"
    assert refused["BCCND_SEGMENT"] in refused["MESSAGE"]
    examined = json.loads(host.run("bccn", "doctor", "--json", check=False))
    warned = {row["remedy"]: row["finding"] for row in examined if row["check"] == "log"}
    assert "datagrams" in warned[refused["BCCND_REMEDY"]]
    for entry in (slow, refused, *entries):
        assert entry["SYSLOG_IDENTIFIER"] == "bccnd"
        assert entry["_SYSTEMD_UNIT"] == "bccnd.service"
        # The catalog was taken up when the package was installed.
        explained = host.run("journalctl", "--dump-catalog", entry["MESSAGE_ID"].hex)
        assert "Defined-By: bccnd" in explained
        assert len(explained.splitlines()) > 5
    assert "Defined-By: bccnd" in host.run("journalctl", "-x", "--no-pager", "-u", "bccnd", "BCCND_EVENT=ready")
