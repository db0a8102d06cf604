"""What crosses a threshold in tables, and what of it is said: each finding once, and again when it got worse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import bccnd
from bccnd.cli.publish import publish
from bccnd.errors import PipelineError
from bccnd.pipeline.publish import MOST, RULES, STATE, Finding, Published, findings
from tests.e2e.harness import Daemon
from tests.pipeline.journals import heard
from tests.pipeline.reporting import MINUTE, START, put
from tests.refusals import refused


def link(host: str, src: str, seen: int, here: int = 0, nowhere: int = 0, minute: int = 0) -> dict[str, Any]:
    counts = {"any_seen": seen + here, "seen": seen, "lost_here": here, "lost_everywhere": nowhere, "not_listening": 0}
    return {"host": host, "src": src, "win": START + minute * MINUTE, "expected": seen + here + nowhere, **counts}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    root = tmp_path / "tables"
    put(root, "link_loss", [link("h1", "bad", 900, 50, 0), link("h1", "bad", 900, 50, 0, 1), link("h2", "bad", 1900)])
    silence = {"from_ts": START, "to_ts": START + 5 * MINUTE, "kind": "open", "basis": "heartbeat"}
    silences = [{"src": "gone"}, {"src": "gone", "host": "h1"}, {"src": "back", "kind": "gap"}]
    put(root, "liveness", [{**silence, **one} for one in silences], "2026-11-19")
    put(root, "epochs", [{"src": "mad", "cause": "restart", "first_ts": START + n * MINUTE} for n in range(4)])
    refusal = {"host": "h1", "claimed_src": "x", "n": 6, "first_ts": START, "last_ts": START + MINUTE}
    kinds = ("integrity_failed", "integrity_missing", "bad_body")
    put(root, "integrity", [{**refusal, "verdict": kind} for kind in kinds])
    put(root, "skew", [{"host": "h3", "ref_host": "h1", "p50_us": -2_500_000}, {"host": "h2", "p50_us": 900_000}])
    put(root, "channel_traffic", [{"win": START, "chan": "loud", "src": src, "msgs": 40_000} for src in "ab"])
    return root


def brief(found: Sequence[Finding]) -> list[tuple[str, str | None, str | None, str | None, float]]:
    return [(one.kind, one.host, one.src, one.chan, round(one.value, 4)) for one in found]


ALL = [
    ("loss", "h1", "bad", None, 0.0526),
    ("dead", None, "gone", None, 300.0),
    ("restarts", None, "mad", None, 4.0),
    ("integrity", "h1", "x", None, 12.0),
    ("skew", "h3", None, None, 2.5),
    ("flood", None, None, "loud", 1333.3333),
]


def test_every_kind_is_found_and_nothing_else(tables: Path) -> None:
    assert brief(findings(str(tables), {})) == ALL
    assert {kind for kind, *_ in ALL} | {"lost_everywhere"} == set(RULES)


def test_what_no_host_heard_is_the_senders_and_of_few_messages_no_share_is_taken(tmp_path: Path) -> None:
    put(tmp_path, "link_loss", [link(f"h{n}", "bad", 950, 0, 50 + n) for n in range(3)], int96=True)
    assert brief(findings(str(tmp_path), {})) == [("lost_everywhere", None, "bad", None, 0.0519)]
    put(tmp_path / "rare", "link_loss", [link("h1", "rare", 50, 10, 10)])
    assert findings(str(tmp_path / "rare"), {}) == []


def test_a_threshold_is_one_that_can_be_set(tables: Path) -> None:
    above = {"loss": 0.06, "dead": 301, "restarts": 4, "integrity": 12, "skew": 2.5, "flood": 1334}
    for name, threshold in above.items():
        assert brief(findings(str(tables), {name: threshold})) == [one for one in ALL if one[0] != name]


def test_the_latest_days_count(tables: Path) -> None:
    put(tables, "skew", [{"host": "h3", "p50_us": 0}], "2026-11-22")
    assert "skew" not in {one.kind for one in findings(str(tables), {})}
    assert "skew" in {one.kind for one in findings(str(tables), {}, 2)}


def test_a_message_fits_into_a_datagram_and_says_what_it_is_about() -> None:
    one = Finding("flood", 1234.5678901, 1000.0, "h" * 64, "s" * 128, "c" * 1024, 1_700_000_000_000_000, 0)
    said = json.loads(one.message())
    assert len(one.message()) < 1000
    assert (said["value"], said["threshold"], said["from"]) == (1234.56789, 1000.0, "2023-11-14T22:13:20Z")
    assert len(said["id"]) == 16


def test_where_there_are_no_tables_that_is_said(tmp_path: Path, tables: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "obs").mkdir(parents=True)
    for place in ("nowhere", "empty", "other"):
        with refused("no_tables", kind=PipelineError):
            findings(str(tmp_path / place), {})
    (tables / "skew/day=2026-11-21/part-00000.parquet").write_bytes(b"PAR1")
    with refused("bad_table", "skew/day=2026-11-21", kind=PipelineError):
        findings(str(tables), {})


def loss(value: float, src: str = "a") -> Finding:
    return Finding("loss", value, 0.01, "h", src)


def test_what_was_said_is_said_again_only_when_it_got_worse_or_came_back(tmp_path: Path) -> None:
    def run(*found: Finding) -> list[Finding]:
        published = Published(str(tmp_path))
        news = published.news(found)
        published.write(found, news)
        return news

    assert run(loss(0.1), loss(0.2, "b")) == [loss(0.1), loss(0.2, "b")]
    assert run(loss(0.1), loss(0.2, "b")) == []
    assert run(loss(0.14), loss(0.1, "b")) == []
    assert run(loss(0.16), loss(0.2, "b")) == [loss(0.16)]
    assert run(loss(0.2)) == []
    assert run(loss(0.2), loss(0.2, "b")) == [loss(0.2, "b")]
    dead = Finding("dead", 10.0, 0.0, None, "a")
    assert run(dead) == [dead]
    assert run(Finding("dead", 1000.0, 0.0, None, "a")) == []


def test_a_state_that_is_none_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "_state").mkdir()
    for broken in ("", "[]", "null", '{"said": 7}', '{"said": {"x": "y"}}'):
        (tmp_path / STATE).write_text(broken)
        with refused("bad_state", kind=PipelineError):
            Published(str(tmp_path))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "daemon") as one:
        yield one


def run(*arguments: str) -> Result:
    return CliRunner().invoke(publish, arguments)


def said(listener: bccnd.Connection) -> list[dict[str, Any]]:
    return [{"on": chan, **json.loads(payload)} for chan, payload in heard(listener)]


def test_findings_are_on_the_bus_once(tables: Path, daemon: Daemon) -> None:
    done = run(str(tables), "--channel", "x", "--socket", str(daemon.folder / "none"))
    assert (done.exit_code, "cannot reach the daemon" in done.stderr) == (1, True)
    assert not (tables / STATE).exists()
    with daemon.connect("") as listener:
        given = [str(tables), "--channel", "ops/findings", "--socket", str(daemon.bus)]
        dry = run(*given, "--dry-run")
        assert dry.exit_code == 0
        assert said(listener) == []
        assert not (tables / STATE).exists()
        done = run(*given)
        assert (done.exit_code, done.stderr) == (0, "bccn: 6 findings published on ops/findings, 0 were before\n")
        found = said(listener)
        assert [one["kind"] for one in found] == [kind for kind, *_ in ALL]
        assert {one.pop("on") for one in found} == {"ops/findings"}
        assert [json.loads(line) for line in dry.stdout.splitlines()] == found
        assert run(*given).stderr == "bccn: 0 findings published on ops/findings, 6 were before\n"
        assert said(listener) == []
        (tables / STATE).unlink()
        assert "6 findings published" in run(*given, "--local").stderr


def test_what_is_wrong_is_said(tables: Path) -> None:
    for given, said in (
        *((["--rule", "loss"], "NAME=NUMBER"), (["--rule", "lots=1"], "--rule lots")),
        *((["--channel", "two words"], "--channel two words"), (["--days", "0"], "--days")),
    ):
        done = run(str(tables), "--channel", "x", *given)
        assert (done.exit_code, said in done.stderr) == (2, True)


def test_a_run_says_no_more_than_it_may(tmp_path: Path) -> None:
    put(tmp_path, "skew", [{"host": f"h{n:05}", "p50_us": 2_000_000 + n} for n in range(MOST + 7)])
    done = run(str(tmp_path), "--channel", "x", "--dry-run")
    assert len(done.stdout.splitlines()) == MOST
    assert "7 more wait" in done.stderr
    assert json.loads(done.stdout.splitlines()[0])["host"] == f"h{MOST + 6:05}"
