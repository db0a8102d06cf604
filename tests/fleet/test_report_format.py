"""The text of reports: what is written is read, and nothing that is not a report is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.fleet.report_format import (
    BadReport,
    HeardHost,
    SentRun,
    head_line,
    heard_line,
    keys_line,
    read_report,
    reporting_host,
    sent_line,
)

HEAD = b"report 1 1.0.0 10000 1 2\n"


def refusal(call: Callable[..., object], *args: str | bytes) -> str:
    with pytest.raises(BadReport) as refused:
        call(*args)
    return refused.value.reason


def test_what_is_written_is_read() -> None:
    run = SentRun("relay01/app/7", 5, 1 << 63)
    heard = HeardHost("relay02", 1_700_000_000_000, 9, 2, 1, 3)
    text = head_line("1.0.0", 10_000, 1, 2) + keys_line("hmac", ["aa", "bb"]) + sent_line(run) + heard_line(heard)
    report = read_report("relay01", text)
    assert report[:4] == ("1.0.0", 10_000, 1, 2)
    assert (report.keys, report.sent, report.heard.rows) == (("hmac", ("aa", "bb")), [run], [heard])


def test_lines_and_fields_of_later_versions_are_ignored() -> None:
    report = read_report(
        "a", HEAD.replace(b" 2\n", b" 2 x y\n") + b"weather fine\nsent a 1 2 extra\nheard b 1 2 3 4 5 6 7\n"
    )
    assert (report.sent, report.heard.rows) == ([SentRun("a", 1, 2)], [HeardHost("b", 1, 2, 3, 4, 5)])


#: no heads, and lines that are none
BAD_HEADS = [b"", b"hello", b"report 2 1.0.0 10000 1 2\n", b"report 1 1.0.0 10000 3 2\n", b"report 1 1.0.0 10000 1\n"]
BAD_SENT = [b"a 1", b"a 1 -2", b"a 1 2_0", b"a 1  2", b"a 1 18446744073709551616"]
BAD_HEARD = [b"b 1 2 3 4", b"\x1b[1m 1 2 3 4 5", b"x" * 200 + b" 1 2 3 4 5", b"\xff 1 2 3 4 5"]
BAD_LINES = [*(b"sent " + line for line in BAD_SENT), *(b"heard " + line for line in BAD_HEARD)]


@pytest.mark.parametrize("payload", [*BAD_HEADS, *(HEAD + line + b"\n" for line in BAD_LINES)])
def test_what_is_no_report_is_refused(payload: bytes) -> None:
    assert refusal(read_report, "a", payload) == "bad_format"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    for text in (payload, HEAD + payload, HEAD + b"heard " + payload, HEAD + b"sent " + payload):
        with suppress(BadReport):
            read_report("a", text)


def test_a_host_reports_for_itself_and_by_its_daemon_only() -> None:
    assert read_report("a", HEAD + b"sent a/app/7 1 9\nsent a 1 9\nheard b 1 2 3 4 5\n").sent
    for src in (b"b/app/7", b"b", b"aa/app/7", b"?"):
        assert refusal(read_report, "a", HEAD + b"sent a/app/7 1 9\nsent %b 1 9\n" % src) == "wrong_sender"
    assert reporting_host(b"relay01/bccnd/77", b"bccn/report/relay01") == "relay01"
    for src in (b"relay02/bccnd/77", b"relay01/app/77", b"relay01", b"?"):
        assert refusal(reporting_host, src, b"bccn/report/relay01") == "wrong_sender"
