"""Lines from standard input, and reports about them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.cli.messages.publish_lines import LineSplitter, RefusalReports
from bccnd.client.event_queues import Refusal
from bccnd.core.wire.frames import MAX_PACKET
from tests.refusals import refused


@given(st.lists(st.binary(min_size=1).map(lambda data: data.replace(b"\r", b"\n"))))
def test_lines_are_the_same_however_they_come_in_pieces(pieces: list[bytes]) -> None:
    lines = LineSplitter()
    found = [line for piece in [*pieces, b""] for line in lines.feed(piece)]
    whole = b"".join(pieces).split(b"\n")
    assert found == (whole if whole[-1] else whole[:-1])


def test_a_line_is_there_as_soon_as_it_ends() -> None:
    lines = LineSplitter()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"o") == []
    assert lines.feed(b"\n\n") == [b"two", b""]
    assert lines.feed(b"") == []
    assert lines.feed(b"last") == []
    assert lines.feed(b"") == [b"last"]


def test_a_line_without_an_end_is_refused() -> None:
    lines = LineSplitter()
    assert lines.feed(b"x" * MAX_PACKET) == []
    with refused("too_long"):
        lines.feed(b"x")


def test_reports_come_at_once_and_then_with_a_count() -> None:
    output: list[str] = []
    now = [0.0]
    reports = RefusalReports(output.append, lambda: now[0])
    for _ in range(1000):
        reports.add(Refusal("too_long", "a"))
    assert len(output) == 1
    assert output[0].startswith("'a'")
    assert not output[0].endswith(" messages)")
    reports.add(Refusal("send_failed", "a"))
    assert len(output) == 2
    for moment, count in ((4.9, 2), (5.0, 3)):
        now[0] = moment
        reports.add(Refusal("too_long", "a"))
        assert len(output) == count
    assert "1001 more" in output[2]
    reports.add(Refusal("too_long", "a"))
    assert len(output) == 3
    reports.write_due(everything=True)
    assert "1 more" in output[3]
    reports.write_due(everything=True)
    assert (len(output), reports.total) == (4, 1004)
