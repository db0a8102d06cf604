"""Both builds agree on every input: what the compiled modules make of it, the plain ones make of it, byte for byte.

The plain build runs in a process of its own and answers with the texts of outcomes: verdicts, deliveries, frames,
records, counters. Inputs are the corpus, the findings and what hypothesis makes up.
"""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.wire import frames
from bccnd.native.buffers import scan
from tests.core import naive, world
from tests.core.material import examples
from tests.support import ROOT
from tools.fuzz.replay import LENGTH, kept, outcome
from tools.fuzz.targets import TARGETS
from tools.fuzz.targets.bus import SPLIT

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(not scan.COMPILED, reason="there is only the plain build to look at")

#: what nothing that is compiled has a part in
ALIKE = {"http", "publication", "configuration", "sessions", "image", "record"}
COMPARED = [name for name in TARGETS if name not in ALIKE]


class Builds:
    """Targets in both builds; the plain one in a process of its own."""

    def __init__(self, plain: subprocess.Popen[bytes]) -> None:
        self.plain = plain
        self.load = cache(lambda name: TARGETS[name].load())

    def agree(self, name: str, data: bytes) -> bytes:
        """The outcome in both."""
        asked, answered = self.plain.stdin, self.plain.stdout
        assert asked is not None
        assert answered is not None
        asked.write(name.encode() + b"\n" + LENGTH.pack(len(data)) + data)
        asked.flush()
        ours = outcome(self.load(name), data)
        head = answered.read(LENGTH.size)
        assert len(head) == LENGTH.size, f"the plain build has ended: {self.plain.wait()}"
        theirs = answered.read(int(LENGTH.unpack(head)[0]))
        assert ours == theirs, f"{name} of {data[:200]!r}"
        assert not ours.startswith(b"raised "), ours
        return ours


@pytest.fixture(scope="module")
def builds() -> Iterator[Builds]:
    logging.disable()
    command = [sys.executable, "-m", "tools.fuzz.replay", "--plain", "--outcomes"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as plain:
        both = Builds(plain)
        # What targets open when they are first used, they keep until their process ends.
        for name in COMPARED:
            both.agree(name, kept(name)[0].read_bytes())
        yield both
    logging.disable(logging.NOTSET)


def test_the_plain_build_is_plain_and_ours_is_not() -> None:
    code = "from tools.fuzz import plain; plain.use(); "
    code += "import bccnd.core.tracking.dedup as m, bccnd.native.buffers.scan as c; "
    code += "print(m.__file__, c.COMPILED)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(ROOT / "bccnd/core/tracking/dedup.py"), "False"]
    assert scan.COMPILED


@pytest.mark.parametrize("name", COMPARED)
def test_they_agree_on_all_that_was_kept_and_found(builds: Builds, name: str) -> None:
    for path in kept(name):
        builds.agree(name, path.read_bytes())


STEPS = st.lists(st.binary(min_size=4, max_size=4), max_size=80).map(b"".join)
#: steps that are mostly in order: near numbers, few sources
NEAR = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.sampled_from([0, 1, 1, 1, 2, 3, 17, 65_535, 65_530])),
    max_size=80,
).map(lambda steps: b"".join(bytes([who, how]) + far.to_bytes(2, "little") for who, how, far in steps))
PACKETS = st.lists(
    st.one_of(
        st.sampled_from([path.read_bytes() for path in kept("frames")]),
        st.builds(frames.subscribe, naive.texts("path", (b"a", b"b", b"*", b">", b""))),
        st.builds(frames.unsubscribe, naive.texts("path", (b"a", b"b", b"*", b">", b""))),
        st.builds(frames.message, naive.texts("path", (b"a", b"b", b"!")), st.binary(max_size=30)),
        st.binary(max_size=40),
    ).filter(lambda packet: SPLIT not in packet),
    max_size=12,
).map(SPLIT.join)


@st.composite
def patterns(draw: st.DrawFn) -> bytes:
    dialect = draw(st.integers(0, 3))
    texts = naive.texts(naive.DIALECT_NAMES[dialect], (b"a", b"b", b"ab", b"*", b"a*", b"+", b">", b""))
    return bytes([dialect]) + b"\n".join(draw(texts) for _ in range(3))


INPUTS = {
    "datagram": world.ANY_BYTES,
    "stream": st.tuples(st.sampled_from([b"\0", b"\1", b"\2", b"\3"]), STEPS | NEAR).map(b"".join),
    "frames": PACKETS,
    "patterns": patterns(),
}


@pytest.mark.parametrize("name", INPUTS)
@examples(120)
@given(data=st.data())
def test_they_agree_on_every_input(builds: Builds, name: str, data: st.DataObject) -> None:
    builds.agree(name, data.draw(INPUTS[name]))


@pytest.mark.parametrize("rules", range(4))
def test_they_agree_over_thousands_of_steps(builds: Builds, rules: int) -> None:
    chance = random.Random(rules)
    steps = bytearray([rules])
    for _ in range(4000):
        far = chance.choice((1, 1, 1, 1, 0, 2, 5, 20, 65_535, 65_533, chance.randrange(65_536)))
        steps += bytes([chance.randrange(256), chance.randrange(256)]) + far.to_bytes(2, "little")
    output = builds.agree("stream", bytes(steps))
    for verdict in (b"accepted", b"duplicate", b"not_addressed", b"looped"):
        assert verdict in output


@pytest.mark.parametrize("name", ["client", "link", "line", "trackers", "rows", "capture"])
def test_they_agree_on_what_is_damaged(builds: Builds, name: str) -> None:
    chance = random.Random(name)
    seeds = [path.read_bytes() for path in kept(name)]
    for _ in range(80):
        data = bytearray(chance.choice(seeds)[:1500])
        for _ in range(chance.randrange(1, 4)):
            if data:
                data[chance.randrange(len(data))] = chance.choice((0, 1, 0x20, 0x3A, 0x7C, 0xFF, chance.randrange(256)))
        builds.agree(name, bytes(data[: chance.choice((len(data), len(data) - 1, 1500))]))
