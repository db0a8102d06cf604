"""Explains stage by stage which verdict a datagram would get, without counting or delivering it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from bccnd.core.matching.routes import Routes
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import Judgement
from bccnd.core.wire import bccn1, directed_targets
from bccnd.core.wire.verdicts import LAST_ACCEPTED, LOOPED, NAMES, NOT_ADDRESSED
from bccnd.errors import BadDatagram

R = TypeVar("R")

#: the stages, in the order of `Ingress`
_STAGES: Final = ("size", "envelope", "check", "body", "dedup", "match")
#: the stage at which a datagram is refused for a reason, except those of the check
_REFUSED_AT: Final = {
    "oversize": 0,
    **dict.fromkeys(("bad_envelope", "length_mismatch"), 1),
    **dict.fromkeys(("bad_body", "bad_src", "bad_seq", "bad_channel", "bad_target"), 3),
}
_CHECK: Final = 2


class Stage(NamedTuple):
    """One step: its name, whether the datagram passes it, and a finding about the datagram."""

    name: str
    passed: bool
    finding: str


class Trace(NamedTuple, Generic[R]):
    """The stages, up to the one that refuses the datagram; the verdict and the receivers."""

    stages: list[Stage]
    verdict: str
    receivers: tuple[R, ...]


def trace(raw: bytes, peer: str, now: float, *, ingress: Ingress, routes: Routes[R]) -> Trace[R]:
    """Trace a datagram from ``peer`` (``address:port``); ``now`` is monotonic, in seconds."""
    receivers: tuple[R, ...] = ()
    envelope = _describe_envelope(raw, ingress.ceiling)
    try:
        judgement = ingress.predict(raw, peer, now)
    except BadDatagram as bad:
        passed = islice(envelope, _REFUSED_AT.get(bad.reason, _CHECK))
        return _end([*passed, bad.detail], bad.reason, False, receivers)
    verdict, route = judgement.verdict, judgement.route
    findings = [*envelope, _describe_body(raw, judgement), _describe_source(raw, judgement)]
    if verdict <= LAST_ACCEPTED and route.unaddressed:
        verdict = NOT_ADDRESSED
        findings.append("it is addressed to no program of this host")
    elif verdict <= LAST_ACCEPTED:
        receivers = routes.present(route.plain.all + route.meta.all)
        findings.append("1 client" if len(receivers) == 1 else f"{len(receivers)} clients")
    return _end(findings, NAMES[verdict], verdict <= LAST_ACCEPTED, receivers)


def _end(findings: list[str], verdict: str, accepted: bool, receivers: tuple[R, ...]) -> Trace[R]:
    """Return a trace whose last stage decides."""
    last = len(findings) - 1
    stages = [Stage(_STAGES[number], number < last or accepted, text) for number, text in enumerate(findings)]
    return Trace(stages, verdict, receivers)


def _describe_envelope(raw: bytes, ceiling: int) -> Iterator[str]:
    """Yield the findings of the stages before the body of a datagram that passes them."""
    yield f"{len(raw)} bytes, at most {ceiling} are accepted"
    magic, check, body = bccn1.split_envelope(raw)
    yield f"magic {magic.decode('ascii')}, a body of {len(body)} bytes"
    yield check.decode("ascii") or "none, and none is required"


def _describe_body(raw: bytes, judgement: Judgement) -> str:
    header = judgement.header
    chan = raw[header.chan : header.bar]
    form = directed_targets.FORM_NAMES[directed_targets.form_of(chan)]
    channel = f"{form} channel {chan.decode('ascii')}, a payload of {len(raw) - header.bar - 1} bytes"
    return f"src {header.src_of(raw).decode('ascii')}, seq {header.seq}, {channel}"


def _describe_source(raw: bytes, judgement: Judgement) -> str:
    verdict, source = judgement.verdict, judgement.source
    if verdict == LOOPED:
        return "the sender is a program of this host"
    if source is not None:
        return f"{NAMES[verdict]}: the last seq was {source.last}, in epoch {source.epoch}"
    return NAMES[verdict] if judgement.header.src_of(raw) == bccn1.UNKNOWN_SRC else f"{NAMES[verdict]}: a new source"
