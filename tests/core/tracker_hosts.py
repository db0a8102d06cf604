"""Hosts with trackers, whose sources send, fall silent and die, and whose successors go on with them."""

from __future__ import annotations

from typing import Final

from bccnd.core.formats.image_sections import Section, pack_section, unpack_sections
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import STATE_NAMES, TICK, HeartbeatRules, Liveness
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_image import identity_section, resume_identities, resume_trackers, tracker_sections
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import UNKNOWN_SRC
from bccnd.core.wire.verdicts import DUPLICATE, LAST_ACCEPTED, LOOPED

SRC: Final = b"host/program/1"
#: silent after 6 s, dead after 14
WATCH: Final = HeartbeatRules(interval=4.0, dead_after=3)
#: the wall clock in microseconds at the monotonic clock's zero
EPOCH_US: Final = 1_700_000_000_000_000


def receive(sources: TrackerTable, src: bytes, seq: int, now: float, from_link: bool = False) -> int:
    """Return the verdict as `Ingress` does for a well-formed datagram."""
    verdict = sources.judge(src, seq, now, from_link)
    if verdict == DUPLICATE:
        sources.count_duplicate(src)
    return verdict


class Host:
    """The trackers of a host, with all that changes them, and a clock that the test sets."""

    def __init__(self, sources: TrackerTable, watch: HeartbeatRules = WATCH, now: float = 0.0) -> None:
        self.sources = sources
        self.anonymous = AnonymousDedup(sources.limits)
        self.liveness = Liveness(sources, watch, now)
        self.builder = DatagramBuilder(IntegrityChecker(), sources)
        self.now = now
        #: the last seq of each source
        self.last: dict[bytes, int] = {}
        #: local identities in use, and the seqs that were sent under them
        self.open: set[bytes] = set()
        self.sent: list[tuple[bytes, int]] = []

    def receive(self, src: bytes, seq: int, *, beat: bool = False, from_link: bool = False) -> int:
        """Receive a datagram, perhaps a heartbeat; return its verdict."""
        if src == UNKNOWN_SRC:
            return self.anonymous.judge("", b"%d" % seq, self.now)
        self.last[src] = seq
        verdict = receive(self.sources, src, seq, self.now, from_link)
        if verdict == LOOPED:
            self.sources.local.check_conflict(src, seq)
        if beat and verdict <= LAST_ACCEPTED:
            self.liveness.on_heartbeat(src, self.now)
        return verdict

    def hear(self, *srcs: bytes, beat: bool = False) -> None:
        """Receive the next message or heartbeat of each source, by default of SRC."""
        for src in srcs or (SRC,):
            assert self.receive(src, self.last.get(src, 0) + 1, beat=beat) <= LAST_ACCEPTED

    def claim(self, src: bytes) -> None:
        if src not in self.open:
            self.open.add(src)
            self.builder.open(src)

    def release(self, src: bytes) -> None:
        if src in self.open:
            self.open.discard(src)
            self.builder.close(src, self.now)

    def send(self, src: bytes) -> None:
        """Send a message; its seq must be above all before."""
        self.builder.build(src, frames.message(b"c/1", b"x"), EPOCH_US + int(self.now * 1e6))
        assert all(self.builder.seq > seq for sender, seq in self.sent if sender == src)
        self.sent.append((src, self.builder.seq))

    def sweep(self) -> None:
        """Do all that is due now."""
        while self.sources.sweep(self.now):
            pass
        while self.liveness.sweep(self.now):
            pass

    def until(self, then: float) -> None:
        """Let time pass with a sweep at every tick, as the daemon does."""
        while self.now < then:
            self.now += TICK
            self.sweep()

    def changes(self) -> list[tuple[bytes, str]]:
        """Return the changes of states since the last call, oldest first."""
        taken, self.liveness.changes = self.liveness.changes, []
        return [(src, STATE_NAMES[state]) for src, state in taken]

    def source(self, src: bytes = SRC) -> Source:
        found = self.sources.get(src)
        assert found is not None
        return found

    # -- over restarts

    def image(self) -> bytes:
        """Return the image of all trackers."""
        return b"".join(map(pack_section, tracker_sections(self.sources, self.anonymous, self.liveness)))

    def resume(self, image: bytes, *, ordered: bool = True) -> None:
        """Go on with an image."""
        left: dict[str, list[Section]] = {}
        for section in unpack_sections(image):
            left.setdefault(section.kind, []).append(section)
        resume_trackers(left, self.sources, self.anonymous, self.liveness, self.now, ordered=ordered)

    def successor(self, sources: TrackerTable | None = None) -> Host:
        """Return a host that goes on with what this one leaves, at the same time."""
        if sources is None:
            sources = TrackerTable(self.sources.limits)
        heir = Host(sources, self.liveness.rules, self.now)
        heir.resume(self.image())
        for src in self.open:
            heir.claim(src)
        identities = list(unpack_sections(pack_section(identity_section(self.sources))))
        resume_identities({"identities": identities}, heir.sources, heir.now)
        heir.last, heir.sent = dict(self.last), self.sent
        return heir
