"""Which of the messages that come `bccn sub -n` prints and counts."""

from __future__ import annotations

import pytest

from bccnd.cli.messages.sub import asked_for
from bccnd.client.message import Message

#: a plain message, one to every program, and one to this program
MESSAGES = [
    Message("h/p/1", 1, chan, b"", form, "local", 1)
    for chan, form in (("x", "plain"), ("!", "all"), ("!me", "directed"))
]


@pytest.mark.parametrize(
    ("patterns", "chans"),
    [([""], ["x", "!", "!me"]), (["x"], ["x"]), (["x", "!"], ["x", "!"]), (["!me"], ["x", "!me"])],
)
def test_messages_to_programs_count_only_where_asked_for(patterns: list[str], chans: list[str]) -> None:
    assert [message.chan for message in filter(asked_for(patterns), MESSAGES)] == chans
