"""Messages to credentials reach no other client; which clients they reach is in test_model.py."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from bccnd.bus.clients.access_rules import admit_all
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire import frames
from tests.rules import bus_limits
from tests.support import ANN, BOB, Hub, Peer, Who, messages, refusals

#: of Ann's group, but not Ann
CID = Who(4003, ANN.gid, program=b"cid")


def credentials_of(peer: Peer) -> tuple[bytes, bytes, bytes]:
    """Group, user and process, as they stand in a key."""
    who = peer.client.peer
    return b"%d" % who.gid, b"%d" % who.uid, b"%d" % who.pid


def key(gid: bytes = b"", uid: bytes = b"", pid: bytes = b"", rest: bytes = b"x") -> bytes:
    return b"!/cred/%b/%b/%b/%b" % (gid, uid, pid, rest)


def keys_naming(peer: Peer, rest: bytes = b"x") -> list[bytes]:
    """Return all keys with a credential of a client in some fields, and empty others."""
    choices = [(b"", own) for own in credentials_of(peer)]
    return [key(gid, uid, pid, rest) for gid, uid, pid in product(*choices) if gid or uid or pid]


def everything(victim: Peer) -> list[bytes]:
    """Patterns that might take messages to another client; those of the core are in its test_credential_keys.py."""
    gid, uid, pid = credentials_of(victim)
    whole = b"%b/%b/%b" % (gid, uid, pid)
    return [
        *(
            b"",
            b">",
            b"*",
            b"!",
            b"!*",
            b"!/",
            b"!/>",
            b"!/*/",
            b"!*/*/",
            b"!/cred*",
            b"!/c*/*/",
            b"!/cred/",
            b"!/cred/>",
        ),
        *(b"!/cred///", b"!/cred/*/*/*/", b"!/cred/*/*/*/*", b"!/cred/+/+/+/x", b"!//cred/", b"!/*/%b/x" % whole),
        *(b"!/cred/0%b///x" % gid, b"!/cred/%b" % whole, b"!/cred/%b.x" % whole.replace(b"/", b"."), b"!.cred."),
        *keys_naming(victim),
        *keys_naming(victim, b">"),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_pattern_takes_what_names_another_client(tmp_path: Path, dialect: str) -> None:
    with Hub(tmp_path, limits=bus_limits(), others=[(dialect, admit_all)]) as hub:
        ann, bob, cid = hub.connect(key(), key(rest=b""), who=ANN), hub.connect(who=BOB), hub.connect(who=CID)
        root, publisher = hub.connect(), hub.connect()
        for spy in (bob, cid, root):
            spy.send(frames.request(frames.META_ON))
            for pattern in everything(ann):
                spy.send(frames.subscribe(pattern))
            assert refusals(spy.all())
        gid = credentials_of(ann)[0]
        for name in keys_naming(ann):
            publisher.publish(name, b"secret")
            publisher.all()
            assert messages(ann.all(), name)
            assert bob.all() == []
            assert messages(root.all(), name) == []
            # Cid is in Ann's group, and gets what is for the group.
            assert bool(messages(cid.all(), name)) is (name == key(gid))
        assert hub.sent == []


def test_a_client_without_a_pid_is_named_by_no_pid(hub: Hub) -> None:
    one, other = hub.connect(), hub.connect()
    hub.bus.registry.by_pid.remove(one.client)
    one.client.peer = one.client.peer._replace(pid=0, started=0)
    hub.bus.registry.by_pid.add(one.client)
    one.send(frames.subscribe(key()))
    one.all()
    other.publish(key(pid=b"%d" % os.getpid()), b"secret")
    other.all()
    assert one.all() == []
