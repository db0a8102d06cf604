"""Secret keys on a bus, in each dialect; which clients they reach is in test_model.py, too."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from bccnd.bus.clients.access_rules import admit_all
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire import frames
from tests.support import ANN, BOB, Hub, Who, messages, refusals

#: of Ann's group, but not Ann
CID = Who(4003, ANN.gid, program=b"cid")
#: patterns that might match other clients' keys; ``%b`` stands for the credentials of one
PATTERNS = [
    *(b"", b">", b"*", b"!", b"!*", b"!/", b"!/>", b"!/*/", b"!*/*/", b"!/cred*", b"!/c*/*/", b"!/cred/", b"!/cred/>"),
    *(b"!/cred///", b"!/cred/*/*/*/", b"!/cred/*/*/*/*", b"!/cred/+/+/+/x", b"!.cred.", b"!/cred.%b.x", b"!//cred/"),
    *(b"!/*/%b/x", b"!/cred/%b", b"!/cred/0%b/x", b"!/cred/%b/x", b"!/cred/%b/", b"!/cred/%b/>", b"!/cred/%b/*"),
]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_pattern_matches_keys_that_name_another_client(tmp_path: Path, dialect: str) -> None:
    with Hub(tmp_path, dialect=dialect, others=[(dialect, admit_all)]) as hub:
        ann, bob, cid = hub.connect(b"!/cred////x", who=ANN), hub.connect(who=BOB), hub.connect(who=CID)
        root, publisher = hub.connect(), hub.connect()
        peer = ann.client.peer
        # Each key has some of Ann's credentials, and the other fields empty.
        named = list(product(*((b"", b"%d" % own) for own in (peer.gid, peer.uid, peer.pid))))[1:]
        whose = [b"/".join(fields) for fields in named]
        for spy in (bob, cid, root):
            spy.send(frames.request(frames.META_ON))
            for text in PATTERNS:
                spy.send(*{frames.subscribe(text.replace(b"%b", fields)) for fields in whose})
            assert refusals(spy.all())
        for fields in whose:
            key = b"!/cred/%b/x" % fields
            publisher.publish(key, b"secret")
            assert publisher.all() == []
            assert messages(ann.all(), key) == [b"secret"]
            assert bob.all() == root.all() == []
            # Cid gets the messages for the whole group.
            assert messages(cid.all(), key) == [b"secret"] * (fields == b"%d//" % ANN.gid)
        assert hub.sent == []
