"""Which verdicts let a datagram on to other segments."""

from __future__ import annotations

from bccnd.core.wire.verdicts import NAMES, was_accepted


def test_accepted_datagrams_go_to_other_segments() -> None:
    passed = [name for number, name in enumerate(NAMES) if was_accepted(number)]
    assert passed == ["accepted", "reordered", "restart", "not_addressed"]
