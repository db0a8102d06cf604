"""All checks of a host that is well, and of one with a check that fails."""

from __future__ import annotations

from bccnd.doctor import runner
from bccnd.doctor.result import Result, exit_status, summary
from tests.doctor.probes import probe


def test_on_a_host_that_is_well_everything_is_ok() -> None:
    results = list(runner.run_checks(probe({"integrity": {"algorithm": "hmac", "keys": ["keys/hmac.key"]}})))
    assert {one.state for one in results} == {"ok"}, results
    assert [name for name in runner.CHECKS if name != "certificates"] == list(
        dict.fromkeys(one.check for one in results)
    )


def test_a_check_that_fails_ends_alone() -> None:
    results = list(runner.run_checks(probe(run=ZeroDivisionError("a bug"))))
    assert [(one.check, one.finding) for one in results if one.state != "ok"] == [
        ("clock", "this check failed: ZeroDivisionError('a bug')")
    ]


def test_only_what_is_wrong_makes_it_fail() -> None:
    results = [Result("a", "ok", "", ""), Result("b", "look", "", "c"), Result("d", "not checked", "", "")]
    assert exit_status(results) == 0
    assert exit_status([*results, Result("a", "wrong", "", "b")]) == 1
    assert summary(results) == "1 to look at, 1 ok, 1 not checked"
