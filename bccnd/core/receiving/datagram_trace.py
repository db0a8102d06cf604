"""Explains stage by stage which verdict a datagram would get, without counting or delivering it.

Invariant: the stages are those of `Ingress.feed`, in its order, with the same parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from bccnd.core.matching.routes import Routes
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import UNKNOWN_SENDER, TrackerTable
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import bccn1, directed_targets
from bccnd.core.wire.verdicts import LAST_ACCEPTED, LOOPED, NAMES, NOT_ADDRESSED, NUMBERS
from bccnd.errors import BadDatagram

R = TypeVar("R")


class Stage(NamedTuple):
    """One step: its name, whether the datagram passes it, and what was found."""

    name: str
    passed: bool
    finding: str


@dataclass
class Trace(Generic[R]):
    """The stages, up to the one that refuses the datagram; the verdict and the receivers."""

    stages: list[Stage] = field(default_factory=list)
    verdict: str = ""
    receivers: tuple[R, ...] = ()

    def add_passed(self, name: str, finding: str) -> None:
        self.stages.append(Stage(name, True, finding))

    def end(self, name: str, verdict: int, finding: str) -> Trace[R]:
        self.stages.append(Stage(name, verdict <= LAST_ACCEPTED, finding))
        self.verdict = NAMES[verdict]
        return self


def trace(
    raw: bytes,
    peer: str,
    now: float,
    *,
    ceiling: int,
    checker: IntegrityChecker,
    sources: TrackerTable,
    anonymous: AnonymousDedup,
    routes: Routes[R],
) -> Trace[R]:
    """Trace a datagram from ``peer`` (``address:port``); ``now`` is monotonic, in seconds."""
    found: Trace[R] = Trace()
    stage = "size"
    try:
        if len(raw) > ceiling:
            raise BadDatagram("oversize", f"{len(raw)} bytes, at most {ceiling} are accepted")
        found.add_passed(stage, f"{len(raw)} bytes, at most {ceiling} are accepted")
        stage = "envelope"
        magic, check, body = bccn1.split_envelope(raw)
        found.add_passed(stage, f"magic {magic.decode('ascii')}, a body of {len(body)} bytes")
        stage = "check"
        checker.inspect(raw)
        found.add_passed(stage, check.decode("ascii") or "none, and none is required")
        stage = "body"
        src, seq, chan, payload = bccn1.read_body(body)
        route = routes.find(chan)
    except BadDatagram as bad:
        return found.end(stage, NUMBERS[bad.reason], bad.detail)
    form = directed_targets.FORM_NAMES[directed_targets.form_of(chan)]
    channel = f"{form} channel {chan.decode('ascii')}, a payload of {len(payload)} bytes"
    found.add_passed(stage, f"src {src.decode('ascii')}, seq {seq}, {channel}")
    verdict = sources.predict(src, seq, now)
    if verdict == UNKNOWN_SENDER:
        verdict = anonymous.predict(peer, body, now)
    if verdict > LAST_ACCEPTED:
        return found.end("dedup", verdict, _why(verdict, sources, src))
    found.add_passed("dedup", _why(verdict, sources, src))
    if route.unaddressed:
        return found.end("match", NOT_ADDRESSED, "it is addressed to no program of this host")
    found.receivers = routes.present(route.plain.all + route.meta.all)
    count = len(found.receivers)
    return found.end("match", verdict, "1 client" if count == 1 else f"{count} clients")


def _why(verdict: int, sources: TrackerTable, src: bytes) -> str:
    if verdict == LOOPED:
        return "the sender is a program of this host"
    source = sources.get(src)
    if source is None:
        return f"{NAMES[verdict]}: a new source" if src != bccn1.UNKNOWN_SRC else NAMES[verdict]
    return f"{NAMES[verdict]}: the last seq was {source.last}, in epoch {source.epoch}"
