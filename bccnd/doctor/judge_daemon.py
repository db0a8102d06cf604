"""What a daemon's answers mean, and what became of a message to oneself.

Law: the findings follow from the facts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bccnd.doctor.facts import DaemonAnswer, Metrics, Trip
from bccnd.doctor.finding import Finding, look, not_checked, ok, wrong

#: seconds from which on an answer took long
SLOW: Final = 0.5
#: verdicts that stand for a wrong key, a missing one or a forger: what it may be, and what helps
_REFUSED: Final = {
    "integrity_failed": (
        "their check does not fit: signed with another key, damaged, or forged",
        "bccn tap -v integrity shows from where; give hosts of ours the same key, and find out who the others are",
    ),
    "integrity_missing": (
        "they carry no check, and one is required",
        "bccn tap -v integrity shows from where; sign there too, or integrity.required: false until all do",
    ),
    "integrity_unknown": (
        "their check is of another algorithm, or nobody has told us the sender's key",
        "bccn tap -v integrity shows from where; set the same integrity on all hosts",
    ),
    "replayed": (
        "their numbers were used before",
        "bccn tap -v replayed shows from where: a program that counts anew, or somebody who repeats what he has heard",
    ),
    "bad_envelope": (
        "they are no BCCN at all",
        "bccn tap -v bad shows from where: something else uses this port",
    ),
    "internal_error": ("they have met a bug in the daemon", "please report it, with what the daemon's log says"),
}


def judge_answer(facts: DaemonAnswer, version: str) -> Iterator[Finding]:
    """Whether the daemon answers, and whether it is the one that is installed."""
    check, error = "daemon", facts.error
    if error == "no_daemon":
        yield wrong(check, f"no daemon answers: {facts.detail}", "systemctl start bccnd, or name its socket: --socket")
    elif error == "no_answer":
        how = {
            "T": ("it is stopped (SIGSTOP)", "kill -CONT {pid}"),
            "t": ("a debugger holds it", "end the debugger"),
        }.get(facts.state)
        what, remedy = how or (
            "it hangs, or is busy beyond measure",
            "systemctl restart bccnd (clients stay connected); kill -ABRT leaves a trace of where it stood",
        )
        yield wrong(
            check,
            f"a daemon listens and has not answered within {facts.seconds:.0f} s: {what}",
            remedy.format(pid=facts.said.get("pid", "PID")),
        )
    elif error == "not_permitted":
        yield not_checked(check, facts.detail, "adduser USER bccn, and log in anew; or run this as root")
    elif error:
        yield wrong(check, f"the daemon does not serve us: {facts.detail}", "systemctl status bccnd; bccn clients")
    else:
        yield from _running(check, facts, version)


def _running(check: str, facts: DaemonAnswer, version: str) -> Iterator[Finding]:
    said = facts.said
    if not said:
        yield look(
            check,
            f"a bus answers, after {facts.seconds * 1000:.1f} ms, that knows no segments (bccn-sbusd)",
            "name the daemon's socket with --socket",
        )
        return
    running = str(said.get("version", "?"))
    what = f"answers after {facts.seconds * 1000:.1f} ms: version {running}, pid {said.get('pid')}, {said.get('host')}"
    if running != version:
        yield look(check, f"{what}; {version} is installed", "systemctl restart bccnd (clients stay connected)")
    elif facts.seconds > SLOW:
        yield look(check, f"{what}; that is slow", "bccn top shows what keeps it busy")
    else:
        yield ok(check, what)


def judge_traffic(said: dict[str, Any]) -> Iterator[Finding]:
    """What the daemon has counted since its start."""
    check = "traffic"
    if not said:
        yield not_checked(check, "no daemon has told what it has counted")
        return
    verdicts: dict[str, int] = said.get("verdicts", {})
    received = int(said.get("received", 0))
    troubled = False
    for name, (finding, remedy) in _REFUSED.items():
        count = int(verdicts.get(name, 0))
        if count:
            troubled = True
            yield look(check, f"{count:,} of {received:,} datagrams were refused ({name}): {finding}", remedy)
    lost, dropped = int(said.get("lost", 0)), _dropped(said.get("dropped", {}))
    if lost:
        troubled = True
        yield look(
            check,
            f"{lost:,} messages were lost on their way to this host",
            "bccn sources shows whose; see receive buffer, and 'repeat' for what must not be lost",
        )
    if dropped:
        troubled = True
        yield look(
            check,
            f"{sum(dropped.values()):,} messages were dropped for programs of this host ("
            f"{', '.join(f'{reason} {count:,}' for reason, count in dropped.items())})",
            "bccn clients shows for whom; docs/runbook.md says of each reason what to do",
        )
    if not troubled:
        yield ok(check, f"{received:,} datagrams since the start, none of them lost or refused by their check")


def _dropped(dropped: Any) -> dict[str, int]:
    """What was dropped for programs that are here, by reason; who has gone wants nothing."""
    if not isinstance(dropped, dict):
        return {}
    return {str(reason): int(count) for reason, count in dropped.items() if count and reason != "client_gone"}


def judge_gateways(configured: Sequence[str], answer: DaemonAnswer, dials: int) -> Iterator[Finding]:
    """The gateways; ``dials`` is how many other ends the links are to reach."""
    check = "gateways"
    if not configured:
        yield ok(check, "none are configured")
        return
    if answer.error or not answer.said:
        yield not_checked(check, "no daemon has told how they are")
        return
    found = {str(row.get("gateway")): row for row in answer.gateways}
    for name in configured:
        row = found.get(name, {})
        peers = int(row.get("peers_connected", 0))
        if not row.get("up"):
            yield wrong(
                check,
                f"{name} is configured, and does not run",
                f"systemctl status bccnd-{name}; systemctl enable --now bccnd-{name}; the log says why",
            )
        elif name == "nng" and peers < dials:
            yield look(
                check,
                f"nng: {peers} of {dials} other ends that are dialled are connected",
                "bccn gateways; there: does it listen, and do the certificates fit? docs/links.md",
            )
        else:
            yield ok(check, f"{name} runs, with {peers} at its other end{'' if peers == 1 else 's'}")


def judge_metrics(facts: Metrics) -> Iterator[Finding]:
    check = "metrics"
    if not facts.where:
        yield ok(check, "off (metrics.listen)")
        return
    if facts.trouble:
        yield wrong(
            check,
            f"http://{facts.where}/metrics does not answer: {facts.trouble}",
            "see daemon; with a socket unit: systemctl status bccnd-metrics.socket",
        )
    elif facts.status != 200:
        yield wrong(
            check,
            f"http://{facts.where}/metrics answers with status {facts.status}",
            "see whether something else listens there: ss -tlnp",
        )
    elif facts.exposed:
        yield look(
            check,
            f"http://{facts.where}/metrics answers, and can be reached from elsewhere: it shows names and figures to "
            "everybody, without a password",
            "metrics.listen: 127.0.0.1:9540, or a firewall rule for who scrapes it",
        )
    else:
        yield ok(check, f"http://{facts.where}/metrics answers")


def judge_trip(facts: Trip) -> Iterator[Finding]:
    """What became of a message to ourselves."""
    check = "round trip"
    if facts.skipped:
        yield not_checked(check, facts.skipped, facts.remedy)
        return
    if facts.failed:
        yield wrong(check, facts.failed, facts.remedy or "see daemon, interface, route and firewall")
        return
    if facts.seconds is not None:
        yield ok(check, f"a message to ourselves came over the bus after {facts.seconds * 1000:.1f} ms")
    yield from _wire(check, facts)


def _wire(check: str, facts: Trip) -> Iterator[Finding]:
    came = dict(facts.back)
    refused = {segment: verdict for segment, verdict in facts.back if verdict not in ("looped", "back")}
    for segment, verdict in refused.items():
        yield wrong(
            check,
            f"segment {segment}: our own broadcast came back as {verdict}: others will refuse it too",
            "bccn trace --live says why; see keys",
        )
    silent = [name for name in facts.segments if name not in came]
    if silent and facts.seen_by != "counters":
        yield wrong(
            check,
            f"our own broadcast did not come back from {', '.join(silent)} within a second: it does not leave this "
            "host, or does not come in",
            "see interface and firewall; tcpdump -ni INTERFACE udp port PORT shows whether it was sent",
        )
    elif facts.seen_by == "counters" and facts.segments and not facts.back:
        yield wrong(
            check,
            "the daemon has counted no broadcast of its own that came back within a second",
            "see interface and firewall; with the right to tap, this says from which segment",
        )
    elif len(came) > len(refused):
        after = "" if facts.wire_seconds is None else f" after {facts.wire_seconds * 1000:.1f} ms"
        told = {"counters": ", by the daemon's counters", "own": ", through a socket of our own"}.get(facts.seen_by, "")
        where = ", ".join(segment for segment in came if segment not in refused)
        yield ok(check, f"its broadcast came back from {where}{after}{told}")
