"""The report's findings as messages: each once, and again when it became worse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import bccnd
from bccnd.cli.main import main
from bccnd.errors import PipelineError
from bccnd.pipeline.report.findings import LOOK, NOTE, URGENT, ReportFinding
from bccnd.pipeline.report.publish_findings import MOST, PUBLISHED, Published, look, message
from tests.e2e.harness import Daemon
from tests.pipeline.journals import heard
from tests.pipeline.reporting import EVIL, MINUTE, START, full, put, write
from tests.refusals import refused

HOSTS = ("h01", "h02", "h03")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    root = tmp_path / "tables"
    write(root, HOSTS, [f"{host}/app/7" for host in HOSTS], missed=lambda host, *_: 9 if host == "h02" else 0)
    restarts = [{"program": "h03/app", "cause": "restart", "first_ts": START + n * MINUTE} for n in range(4)]
    put(root, "epochs", restarts)
    put(root, "skew", [{"host": "h03", "ref_host": "h01", "p50_us": 500_000, "n": 9}])
    return root


def test_the_latest_days_count(tables: Path) -> None:
    later = {"host": "h01", "src": "h02/app/7", "win": START + 24 * 60 * MINUTE}
    put(tables, "link_loss", [later | dict.fromkeys(("expected", "any_seen", "seen"), 9)], "2026-11-22")
    assert look(str(tables), NOTE, 1)[1] == []
    assert len(look(str(tables), NOTE, 2)[1]) == 3


@pytest.mark.parametrize("name", ["h", EVIL * 50, "\N{SNOWMAN}" * 1000])
def test_a_message_fits_into_a_datagram(name: str) -> None:
    facts = full()
    long = ReportFinding("twice", LOOK, (name,) * 99, name, name, name, name, 1.0, START + MINUTE)
    text = message(long, facts)
    assert len(text) <= 1200
    fields = json.loads(text)
    assert (fields["kind"], fields["severity"], len(fields["about"])) == ("twice", "look", 4)
    assert (fields["from"], fields["at"]) == ("2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z")
    assert fields["id"] != json.loads(message(long._replace(about=("x",)), facts))["id"]


def finding(weight: float, about: str = "a", severity: int = LOOK) -> ReportFinding:
    return ReportFinding("receiver", severity, (about,), "", "", "", "", weight)


def test_a_finding_is_published_again_when_worse_or_back(tmp_path: Path) -> None:
    def run(*ranked: ReportFinding) -> list[ReportFinding]:
        published = Published(str(tmp_path))
        news = published.news(ranked)
        published.write(ranked, news)
        return news

    assert run(finding(0.1), finding(0.2, "b")) == [finding(0.1), finding(0.2, "b")]
    assert run(finding(0.1), finding(0.2, "b")) == []
    assert run(finding(0.14), finding(0.1, "b")) == []
    assert run(finding(0.16), finding(0.2, "b")) == [finding(0.16)]
    assert run(finding(0.17, severity=URGENT)) == [finding(0.17, severity=URGENT)]
    assert run(finding(0.2), finding(0.2, "b")) == [finding(0.2, "b")]
    died = ReportFinding("died", URGENT, ("a",), "", "", "", "", 0.0, START)
    assert (run(died), run(died), run(died._replace(at=START + 1))) == ([died], [], [died._replace(at=START + 1)])


def test_a_joined_finding_is_published_again_when_it_has_grown(tmp_path: Path) -> None:
    several = ReportFinding("clock", LOOK, ("a", "b", "c", "d"), "", "", "", "", 4, members=("a", "b", "c", "d"))
    changed = several._replace(about=("a", "x", "y", "z", "w"), weight=5)
    published = Published(str(tmp_path))
    published.write([several], [several])
    assert published.news([changed]) == []
    assert published.news([changed._replace(weight=7)])
    assert published.news([several._replace(shared="h1")])


def test_a_damaged_state_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "_state").mkdir()
    extreme = "[" * 100_000, '{"published": {"x": [1e999, 1]}}', f'{{"published": {{"x": [1, {"9" * 400}]}}}}'
    for broken in ("{", "[]", "null", '{"published": 7}', '{"published": {"x": "y"}}', *extreme):
        (tmp_path / PUBLISHED).write_text(f"{broken}\n")
        with refused("bad_state", kind=PipelineError):
            Published(str(tmp_path))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "daemon") as started:
        yield started


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ("pipeline", "publish", *arguments))


def received(listener: bccnd.Connection) -> list[dict[str, Any]]:
    return [{"on": chan, **json.loads(payload)} for chan, payload in heard(listener)]


def test_findings_are_on_the_bus_once(tables: Path, daemon: Daemon) -> None:
    done = run(str(tables), "--channel", "x", "--socket", str(daemon.folder / "none"))
    assert (done.exit_code, str(daemon.folder) in done.stderr) == (4, True)
    assert not (tables / PUBLISHED).exists()
    with daemon.connect("") as listener:
        given = [str(tables), "--channel", "ops/findings", "--socket", str(daemon.bus)]
        dry = run(*given, "--dry-run")
        assert dry.exit_code == 0
        assert received(listener) == []
        assert not (tables / PUBLISHED).exists()
        done = run(*given)
        assert (done.exit_code, done.stderr) == (0, "bccn: 2 findings published on ops/findings, 0 were before\n")
        messages = received(listener)
        assert [(message["kind"], message["severity"]) for message in messages] == [
            ("receiver", "urgent"),
            ("restarts", "look"),
        ]
        assert {message.pop("on") for message in messages} == {"ops/findings"}
        assert [json.loads(line) for line in dry.stdout.splitlines()] == messages
        assert run(*given).stderr == "bccn: 0 findings published on ops/findings, 2 were before\n"
        assert received(listener) == []
        assert "1 findings published" in run(*given, "--local", "--severity", "note").stderr


def test_what_is_wrong_is_reported(tables: Path, tmp_path: Path) -> None:
    for given, status, reason in (
        ([str(tables), "--channel", "two words"], 2, "--channel two words"),
        ([str(tables), "--channel", "x", "--days", "0"], 2, "--days"),
        ([str(tmp_path / "nowhere"), "--channel", "x"], 1, "no such folder"),
    ):
        done = run(*given)
        assert (done.exit_code, reason in done.stderr) == (status, True), done.stderr


def test_a_run_publishes_no_more_than_it_may(tables: Path) -> None:
    put(tables, "link_loss", [{"host": "h01", "src": "h02/app/7", "win": START + 13 * 60 * MINUTE}])
    silent = {"kind": "gap", "basis": "heartbeat"}
    times = [START + n // 2 * 61_000_000 for n in range(MOST + 500)]
    rows = [{"src": f"x{n}/app/7", "from_ts": time, "to_ts": time + 9, **silent} for n, time in enumerate(times)]
    put(tables, "liveness", rows)
    done = run(str(tables), "--channel", "x", "--dry-run")
    assert len(done.stdout.splitlines()) == MOST
    assert "more wait" in done.stderr
