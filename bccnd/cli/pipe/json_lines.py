"""The lines of `bccn pipe`: reads those that come in, and formats those that go out."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, NamedTuple

from bccnd.cli.messages.sub import message_fields
from bccnd.cli.shared.output import text_fields
from bccnd.client.event_queues import Away, Event, Gap, Reconnected, Refusal
from bccnd.client.message import Message, to_bytes
from bccnd.core.formats.strict_json import nested_deeper, parse_json

#: bytes of a line
MAX_LINE: Final = 1 << 20
#: levels of lists and objects in an id
MAX_LEVELS: Final = 64

_PAYLOAD: Final = ("payload", "payload_base64")
#: the fields that each operation must have, and those that it may have; every one may have an id
_OPERATIONS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "subscribe": (("pattern",), ()),
    "unsubscribe": (("pattern",), ()),
    "publish": (("chan",), _PAYLOAD),
    "send_to": (("to",), _PAYLOAD),
    "send_all": ((), _PAYLOAD),
    "sync": ((), ()),
    "whoami": ((), ()),
}


class BadLineError(Exception):
    """A line that is no operation, and why."""


class Operation(NamedTuple):
    """What a line asks for. ``target`` is the pattern, the channel or the target; ``answers`` holds the id, if there is
    one, as it comes back in the answer."""

    name: str
    target: bytes
    payload: bytes
    answers: dict[str, Any]


def read_operation(line: bytes) -> Operation:
    """Read a line. Raises BadLineError."""
    if len(line) > MAX_LINE:
        raise BadLineError(f"a line has at most {MAX_LINE} bytes")
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise BadLineError(f"the line is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLineError("a line must be a JSON object")
    name = fields.pop("op", None)
    known = _OPERATIONS.get(name) if isinstance(name, str) else None
    if known is None:
        raise BadLineError(f"op must be one of {', '.join(_OPERATIONS)}")
    answers = {"id": fields.pop("id")} if "id" in fields else {}
    if nested_deeper(answers.get("id"), MAX_LEVELS):
        raise BadLineError(f"an id has at most {MAX_LEVELS} levels")
    required, optional = known
    for field in required:
        if field not in fields:
            raise BadLineError(f"{name} needs {field}")
    for field, value in fields.items():
        if field not in required and field not in optional:
            raise BadLineError(f"{name} has no {field}")
        if not isinstance(value, str):
            raise BadLineError(f"{field} is text")
        if field in required and "\0" in value:
            raise BadLineError(f"{field} holds a NUL, where it would end")
    return Operation(name, to_bytes(fields.get(required[0], "") if required else ""), _payload(fields), answers)


def _payload(fields: dict[str, str]) -> bytes:
    if len([name for name in _PAYLOAD if name in fields]) > 1:
        raise BadLineError("use either payload or payload_base64")
    try:
        encoded = base64.b64decode(fields.get("payload_base64", ""), validate=True)
    except (binascii.Error, ValueError):
        raise BadLineError("payload_base64 is not base64") from None
    return encoded or to_bytes(fields.get("payload", ""))


def write_line(event: str, fields: dict[str, Any]) -> bytes:
    return json.dumps({"event": event, **fields}).encode("ascii") + b"\n"


def write_event(event: Event) -> bytes:
    """A line for what has come."""
    match event:
        case Message():
            fields = message_fields(event)
            fields |= {"seq": str(event.seq), "received_ns": str(event.received_ns)}
            return write_line("message", fields)
        case Gap(lost=lost):
            return write_line("gap", {"lost": lost})
        case Away():
            return write_line("away", {})
        case Reconnected():
            return write_line("back", {})
    return write_refused({}, event)


def write_refused(answers: dict[str, Any], refusal: Refusal) -> bytes:
    return write_line("refused", {**answers, "reason": refusal.reason, **text_fields("about", refusal.key)})


def write_bad_line(number: int, why: str) -> bytes:
    return write_line("error", {"reason": "bad_line", "line": number, "text": why})
