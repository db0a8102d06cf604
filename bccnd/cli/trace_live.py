"""`bccn trace --live`: one message followed across what this host sees of it.

Law: what is shown was seen, with its time; of a message that does not come it is said what is known, and since when.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from bccnd.cli.show import fail, the_bus, visible
from bccnd.cli.watch import KIND_OF, refuse_to_tap
from bccnd.client.bus import Connection
from bccnd.core import frames
from bccnd.core.follow import AWAITED
from bccnd.errors import BusError, JournalError

if TYPE_CHECKING:
    from bccnd.cli.trace_journal import Record

#: seconds between two questions whether something was seen
_ASK: Final = 0.05
#: seconds without anything new after which all copies have come: repeats and other segments are milliseconds apart
_SETTLE: Final = 1.0
_REFUSALS: Final = {
    "bad_trace": "this is no sender and seq: write relay02/sensor/77:5, or relay02/sensor/77:* for its next message",
    "too_many_traces": "the daemon follows as many messages as it may; try again later",
}


def read_wanted(text: str | None, src: str | None, seq: str | None) -> tuple[str, int | None]:
    """Sender and seq, of ``SRC:SEQ`` or given one by one; ``*`` or nothing as seq is the next one. Raises
    click.UsageError."""
    if text is not None:
        if src is not None or seq is not None:
            raise click.UsageError("name the message once: SRC:SEQ, or --src and --seq")
        src, colon, seq = text.rpartition(":")
        if not colon:
            src, seq = text, None
    if not src:
        raise click.UsageError("whose message? bccn trace --live SRC:SEQ, or SRC:* for the next one of SRC")
    if seq in (None, "*", ""):
        return src, None
    if not seq or not seq.isascii() or not seq.isdigit() or int(seq) >= 1 << 64:
        raise click.UsageError(f"{seq!r} is no seq: a number below 2^64, or * for the next one")
    return src, int(seq)


def live(
    path: str, src: str, seq: int | None, *, wait: float, patient: bool, journal: str | None, as_json: bool
) -> bool:
    """Follow a message and show it; whether it was seen. ``patient``: wait also for what is not to be expected."""
    seen = False
    last: dict[str, Any] = {}
    shown = 0
    with the_bus(path) as bus:
        try:
            for answer in _answers(bus, src, seq, wait, patient):
                if not last:
                    _show_known(answer, seq, as_json=as_json)
                for event in answer["events"]:
                    seen = seen or event["kind"] in ("copy", "published")
                    shown += 1
                    click.echo(json.dumps(event)) if as_json else _print_event(event)
                last = answer
        except KeyboardInterrupt:
            pass
    records: list[Record] = []
    if journal is not None and last.get("seq") is not None:
        records = _records(journal, last["src"], last["seq"])
    _end(last, records, seen=seen, journal=journal, as_json=as_json)
    state = last.get("known", {}).get("state", "")
    return seen or bool(records) or state in ("heard", "ours")


def _answers(bus: Connection, src: str, seq: int | None, wait: float, patient: bool) -> Iterator[dict[str, Any]]:
    """What the daemon tells, the first answer at once, until all is known."""
    request = {"src": src, "seq": seq, "seconds": wait + _SETTLE + 1}
    answer = _ask(bus, json.dumps(request).encode())
    yield answer
    if seq is not None and not patient and answer["known"]["state"] not in AWAITED:
        return  # it came, or will not come any more
    deadline = time.monotonic() + wait
    settled = None
    while time.monotonic() < (settled or deadline):
        time.sleep(_ASK)
        answer = _ask(bus, None)
        if answer["events"]:
            settled = time.monotonic() + _SETTLE
        elif answer["queued"] and settled is not None:
            settled = deadline
        yield answer


def _ask(bus: Connection, payload: bytes | None) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(bus.ask(frames.TRACE_LIVE, payload))
    except BusError as error:
        if error.reason == "not_permitted":
            refuse_to_tap("you may not trace: it shows who listens to what")
        raise
    if "error" in answer:
        fail(_REFUSALS.get(answer["error"], f"the daemon does not follow it: {visible(answer['error'])}"))
    return answer


def _records(journal: str, src: str, seq: int) -> list[Record]:
    from bccnd.cli.ingest import RECORDER_EXTRA, need

    need(("pyarrow",), RECORDER_EXTRA)
    from bccnd.cli.trace_journal import find_records

    try:
        return find_records(journal, src, seq)
    except JournalError as error:
        fail(str(error))


# -- for people


def _show_known(answer: dict[str, Any], seq: int | None, *, as_json: bool) -> None:
    """What is known before the trace has seen anything; from now on it sees everything."""
    if as_json:
        told = {name: answer[name] for name in ("src", "seq", "known", "neighbours") if name in answer}
        click.echo(json.dumps({"kind": "begin", **told}))
        sys.stdout.flush()
        return
    which = "the next message" if seq is None else f"message {seq}"
    click.echo(f"{which} of {visible(answer['src'])}")
    if "known" in answer and seq is not None:
        click.echo(f"  known: {visible(answer['known']['finding'])}")
        for one, state in answer["neighbours"].items():
            click.echo(f"  seq {one}: {_STATES.get(state, state)}")
    sys.stdout.flush()


_STATES: Final = {
    "ahead": "not come yet",
    "heard": "has come",
    "missing": "missing",
    "lost": "lost",
    "before": "from before the first that was heard",
    "old": "too far behind to be remembered",
}


def _print_event(event: dict[str, Any]) -> None:
    at = _clock(event["at_ns"])
    if event["kind"] == "copy":
        what = f"{event['chan']}, {event['bytes']} bytes"
        click.echo(
            f"{at} a copy of {event['src']}:{event['seq']} ({visible(what)}) on {visible(event['segment'])} from "
            f"{visible(event['peer'])}: {event['verdict']}"
        )
        click.echo(f"  before: {visible(event['before'])}")
        for stage in event["stages"]:
            click.echo(f"  {stage['stage']}: {visible(str(stage['finding']))}")
        _print_receivers(event, delivered=KIND_OF.get(event["verdict"]) == "delivered")
    elif event["kind"] == "published":
        click.echo(
            f"{at} {event['src']} has published {event['seq'] or 'a message without a seq'} here "
            f"({visible(event['chan'])}, {event['payload_bytes']} bytes of payload): {_went(event)}"
        )
        _print_receivers(event, delivered=True)
    elif event["kind"] == "taken":
        click.echo(f"{at} {visible(event['identity'])} has taken it, {event['after']:.3f} s after it was queued")
    else:
        click.echo(f"{at} {visible(event['identity'])} has left with it in its queue")
    sys.stdout.flush()


def _went(event: dict[str, Any]) -> str:
    if event["sent_on"]:
        failed = f", and failed elsewhere ({event['refused']})" if event["refused"] else ""
        return f"sent on {visible(', '.join(event['sent_on']))}{failed}"
    if event["local"]:
        return "not broadcast, as this program speaks to this host only"
    return f"not broadcast ({visible(event['refused'] or 'this host has no segment')})"


def _print_receivers(event: dict[str, Any], *, delivered: bool) -> None:
    for one in event["receivers"]:
        by = " ".join(repr(text) for text in one["patterns"])
        how = f" by {visible(by)}" if by else ""
        click.echo(f"  to {visible(one['identity'])}{how}: {_fate(one)}")
    if event["more_receivers"]:
        click.echo(f"  and {event['more_receivers']} more")
    for one in event["links"]:
        click.echo(f"  on to {visible(one['identity'])}, a gateway: {_fate(one)}")
    if delivered and not event["receivers"]:
        click.echo("  to nobody here: no pattern of a program of this host fits")


def _fate(one: dict[str, Any]) -> str:
    fate = one["fate"]
    if fate == "dropped":
        return f"dropped ({visible(one['reason'])}), it does not read fast enough"
    if fate == "queued":
        return f"queued behind {one['behind']}, its socket is full"
    return {"sent": "handed over", "ended": "ended for not reading"}.get(fate, "it was leaving")


def _clock(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1_000_000:03d}"


def _end(last: dict[str, Any], records: list[Record], *, seen: bool, journal: str | None, as_json: bool) -> None:
    if as_json:
        for one in records:
            click.echo(json.dumps({"kind": "record", **one._asdict()}))
        rest = {name: last[name] for name in ("src", "seq", "known", "neighbours", "left_out") if name in last}
        click.echo(json.dumps({"kind": "end", "seen": seen, **rest}))
        return
    for one in records:
        day = time.strftime("%Y-%m-%d", time.localtime(one.ts // 1_000_000))
        click.echo(
            f"{day} {_clock(one.ts * 1000)} recorded by {visible(one.host)} on {visible(one.segment)} from "
            f"{visible(one.peer)}: {visible(one.verdict)}"
        )
    if journal is not None and not records and last.get("seq") is not None:
        click.echo(f"{visible(journal)}: nothing is recorded of it")
    if last.get("left_out"):
        click.echo(f"and {last['left_out']} more events")
    if not seen and last:
        finding = last.get("known", {}).get("finding", "nothing that fits has come")
        click.echo(f"not seen by this trace: {visible(finding)}")
