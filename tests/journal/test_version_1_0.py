"""A journal that version 1.0.0 has written of real datagrams: `tests/golden/version_1_0/README.md` says how."""

from __future__ import annotations

from bccnd.core.wire.verdicts import NAMES
from bccnd.journal.capture_import import CaptureSettings
from bccnd.journal.reader import Wanted, find, open_place, rows
from bccnd.journal.replay import Choice, Counts, read_messages
from tests.support import ROOT

JOURNAL = ROOT / "tests/golden/version_1_0/journal"


def test_it_is_replayed() -> None:
    counts = Counts()
    messages = list(read_messages(str(JOURNAL), Choice(), counts, CaptureSettings("")))
    assert [(message.src, message.seq, message.chan, message.payload) for message in messages] == [
        *(("far/app/1", seq, "demo/x", b"payload %d" % seq) for seq in (1, 2, 3, 5, 6, 9)),
        ("?", 0, "demo/y", b"nameless"),
        ("near/cafe/2", 7, "demo/cafe", b"\0\xff"),
    ]
    assert (counts.replayed, counts.not_accepted) == (8, 3)


def test_its_verdicts_are_known() -> None:
    place = open_place(str(JOURNAL))
    batches = [batch for file in find(place, Wanted()) for batch in rows(place, file.name, 0, file.end, ["verdict"])]
    verdicts = [verdict for batch in batches for verdict in batch.column("verdict").to_pylist()]
    assert verdicts.count("accepted") == 8
    assert sorted(set(verdicts) - {"accepted"}) == ["bad_envelope", "duplicate", "stale"]
    assert set(verdicts) <= set(NAMES)
