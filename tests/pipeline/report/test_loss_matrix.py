"""The matrix of loss on the page and in files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from bccnd.pipeline.report.facts import Link
from bccnd.pipeline.report.loss_matrix import matrix, to_csv, to_json
from tests.pipeline.reporting import EVIL, full


@pytest.mark.parametrize(("senders", "grouped"), [(50, False), (51, True)])
def test_a_matrix_with_too_many_senders_is_of_their_hosts(senders: int, grouped: bool) -> None:
    links = tuple(
        Link(f"r{host}", f"s{number % 60:02d}/app/{number}", 100, 100, 100 - number, number, 0, 0, 0, 0)
        for host in range(3)
        for number in range(senders)
    )
    table = matrix(replace(full(), links=links))
    assert (table["grouped"], len(table["programs"]), table["more"]) == (grouped, 50, (int(grouped), 0))
    # the worst first
    assert table["programs"][0] == ("s50" if grouped else "s49/app/49")
    links = tuple(Link(f"r{host}", "s/a", 100, 100, 100 - host, host, 0, 0, 0, 0) for host in range(5))
    assert matrix(replace(full(), links=links))["hosts"] == ["r4", "r3", "r2", "r1", "r0"]


def test_files_have_all_pairs_and_what_is_not_known_is_empty() -> None:
    links = (
        Link("h02", "=1+1", 100, 100, 90, 10, 0, 0, 7, 3),
        Link("h01", f"h01/{EVIL}", 0, 0, 0, 0, 0, 0, 0, 0),
    )
    facts = replace(full(), links=links)
    content = json.loads(to_json(facts))
    assert (content["from"], content["to"]) == ("2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z")
    lost, nothing_due = content["pairs"]
    assert {"program": "=1+1", "host": "h02", "loss": 0.1, "lost": 10, "due": 100, "own": False}.items() <= lost.items()
    assert (nothing_due["program"], nothing_due["loss"], nothing_due["own"]) == (f"h01/{EVIL}", None, True)
    rows = list(csv.DictReader(io.StringIO(to_csv(facts))))
    # no spreadsheet computes a name
    assert [row["program"] for row in rows] == ["'=1+1", f"h01/{EVIL}"]
    assert [(row["loss"], row["own"], row["dup"]) for row in rows] == [("0.1", "0", "7"), ("", "1", "0")]
