"""Reports of recorders: read as they were written, with known names only."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st

from bccnd.bus.clients.access_rules import Rule, admit_all
from bccnd.bus.requests.recorder_reports import MAX_REPORT, RECORDED, RecorderReports, report_of
from bccnd.core.observing.counters import MAX_COUNT
from bccnd.core.wire import frames
from tests.support import ANN, BOB, Hub, refusals


@given(st.dictionaries(st.sampled_from(RECORDED), st.integers(0, MAX_COUNT)))
def test_a_report_is_read_as_it_was_written(counts: dict[tuple[str, str], int]) -> None:
    recorders = RecorderReports()
    assert recorders.report(Mock(open=True), report_of(counts))
    for family, name in RECORDED:
        assert recorders.count(family, name) == counts.get((family, name), 0)


def test_an_ended_recorder_counts_until_the_next_report() -> None:
    recorders, one, two = RecorderReports(), Mock(open=True), Mock(open=True)
    named = RECORDED[0]
    recorders.report(one, report_of({named: 3}))
    recorders.report(two, report_of({named: 4}))
    assert recorders.count(*named) == 7
    recorders.report(one, report_of({named: 5}))
    assert recorders.count(*named) == 9
    one.open = False
    assert recorders.count(*named) == 9
    recorders.report(two, report_of({named: 4}))
    assert recorders.count(*named) == 4


def test_a_malformed_report_is_refused() -> None:
    recorders = RecorderReports()
    malformed = [b"", b"nothing", b"7", b'"x"', b'{"recorder_dropped_records/disk": "many"}', b"[" * 4000]
    malformed += [b'{"recorder_dropped_records/disk": %b}' % number for number in (b"Infinity", b"1e999", b"9" * 400)]
    malformed.append(b'{"recorder_dropped_records/disk": %d}' % (MAX_COUNT + 1))
    for text in (*malformed, b'{"x": "' + b"y" * MAX_REPORT + b'"}'):
        assert not recorders.report(Mock(open=True), text)
    assert recorders.report(Mock(open=True), b'{"made/up": 3, "recorder_dropped_records/disk": -1}')
    assert {recorders.count(*named) for named in RECORDED} == {0}


def test_a_report_takes_the_right_to_tap(tmp_path: Path) -> None:
    recorders, named = RecorderReports(), RECORDED[0]
    rules = [Rule(uid=ANN.uid, tap=True), Rule(uid=BOB.uid, tap=False)]
    with Hub(tmp_path, rules=rules, others=[("path", admit_all)], recorders=recorders) as hub:
        ann, bob = hub.connect(who=ANN), hub.connect(who=BOB)
        for peer in (ann, bob):
            peer.send(frames.control(frames.RECORDER, report_of({named: peer.client.number})))
        ann.send(frames.control(frames.RECORDER, b"x"))
        assert refusals(ann.all()) == [(b"bad_report", frames.RECORDER)]
        assert refusals(bob.all()) == [(b"not_permitted", frames.RECORDER)]
        assert recorders.count(*named) == ann.client.number
