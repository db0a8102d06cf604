"""Events of the log: valid names and ids, explained in the catalog, logged with the fields that the table lists."""

from __future__ import annotations

import ast
import logging
import re
from functools import cache
from pathlib import Path

from bccnd.log.events import EVENTS
from tests.support import ROOT

PROGRAM = {"uid", "pid", "program"}


def test_names_ids_and_fields_are_sound() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in EVENTS)
    assert all(re.fullmatch(r"[0-9a-f]{32}", event.id) for event in EVENTS.values())
    assert len({event.id for event in EVENTS.values()}) == len(EVENTS) >= 20
    assert {event.level for event in EVENTS.values()} <= {logging.INFO, logging.WARNING, logging.ERROR}
    names = {field for _, _, fields in logged() for field in fields}
    names |= {field for event in EVENTS.values() for field in event.fields}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{0,50}", name) for name in names)


def test_ids_have_not_changed() -> None:
    """Operators and their tools search for these."""
    known = {"ready": "5a9a553dfb5e49f7bc41421f1b95b4d9", "kernel_drops": "1173a348475248939e0a40b114a49ae9"}
    known |= {"start_refused": "7c6a2ad07e03478db77efa0592059d53", "client_slow": "9417fdf862004f55a7c3a57e757b41fe"}
    assert {name: EVENTS[name].id for name in known} == known


def test_the_catalog_explains_every_event() -> None:
    text = "\n\n" + re.sub(r"^[#;].*\n", "", (ROOT / "systemd/bccnd.catalog").read_text(), flags=re.MULTILINE)
    _, *parts = re.split(r"(?<=\n\n)-- ([0-9a-f]{32})\n", text)
    entries = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(parts) == 2 * len(entries)
    assert set(entries) == {event.id for event in EVENTS.values()}
    for name, event in EVENTS.items():
        head, _, body = entries[event.id].partition("\n\n")
        headers = dict(line.split(": ", 1) for line in head.split("\n"))
        assert headers["Defined-By"] == "bccnd", name
        assert headers["Subject"], name
        assert body.strip(), name
        assert not re.search(r"^-- ", body, re.MULTILINE), name
        used = set(re.findall(r"@([^@\s]+)@", entries[event.id]))
        assert used <= {f"BCCND_{field.upper()}" for field in event.fields}, name


def fields_of(path: Path, call: ast.Call) -> tuple[str, str, set[str]]:
    """The place of a call that logs an event, the event, and its fields."""
    event, known = str(ast.literal_eval(call.args[0])), set()
    if any(keyword.arg == "about" for keyword in call.keywords):
        known.add("count")
    for keyword in call.keywords:
        if keyword.arg is not None:
            known |= {keyword.arg} - {"about"}
        elif isinstance(keyword.value, ast.Call):
            assert ast.unparse(keyword.value.func) == "log.peer_fields"
            known |= PROGRAM | ({"identity"} if len(keyword.value.args) > 1 else set())
        else:
            known |= set(EVENTS[event].fields)
    return f"{path.name}:{call.lineno}", event, known


@cache
def logged() -> list[tuple[str, str, set[str]]]:
    """Every call that logs an event that it names; `gateways.base.log_peer` gets its event from its callers."""
    return [
        fields_of(path, call)
        for path in sorted((ROOT / "bccnd").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "log.event"
        and isinstance(call.args[0], ast.Constant)
    ]


def test_every_event_is_logged_with_its_fields() -> None:
    peers = {"peer_connected", "peer_gone", "peer_refused", "peer_ended"}
    assert {event for _, event, _ in logged()} | {"lines_lost", *peers} == set(EVENTS)
    wrong = [
        f"{where}: {event} without {field}"
        for where, event, fields in logged()
        for field in EVENTS[event].fields
        if field not in fields
    ]
    assert wrong == []


def test_the_page_of_the_log_has_every_event_and_field() -> None:
    page = (ROOT / "docs/log.md").read_text()
    assert [name for name in EVENTS if f"`{name}`" not in page] == []
    fields = {field for _, _, names in logged() for field in names} - {"trace"}
    assert [name for name in fields if f"BCCND_{name.upper()}" not in page] == []
