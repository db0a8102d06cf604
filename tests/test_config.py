"""The configuration: the shipped sample shows every key, good values are read, and each fault has line and remedy."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd import config
from bccnd.config import RecorderSettings, SegmentSettings, Settings, load, read, read_recorder
from bccnd.core.bccn1 import build
from bccnd.core.integrity import MIN_KEY, make_checker
from bccnd.core.signatures import generate, public_of
from bccnd.errors import ConfigError, Fault
from docs.reference import keys as keys_of_the_schema
from tests.support import NOBODY, ROOT, examples, need_root, without_root

SAMPLE = ROOT / "etc/bccnd.yaml"
PLACE = "/etc/bccnd/bccnd.yaml"
KEY = b"0123456789abcdef0123456789abcdef"


def faults(text: str) -> list[Fault]:
    """What is wrong with a text; every fault names file, reason and remedy in plain words."""
    with pytest.raises(ConfigError) as caught:
        read(text, PLACE)
    for fault in caught.value.faults:
        assert fault.file == PLACE
        assert fault.reason
        assert fault.remedy
        assert str(fault).startswith(f"{PLACE}:{fault.line}: " if fault.line else f"{PLACE}: ")
        assert f"remedy: {fault.remedy}" in str(caught.value)
        # The names of Python's types and of its libraries are no help.
        assert not re.search(r"(?i)tuple|\bdict|pydantic|value error|type=|instance of|after validation", fault.reason)
    return caught.value.faults


def fault_of(text: str) -> Fault:
    """The only thing wrong with a text."""
    (fault,) = faults(text)
    return fault


def settings_of(text: str) -> Settings:
    return read(text, PLACE).settings


def value_of(text: str, where: str) -> Any:
    """One value of the settings, by its keys and positions."""
    value: Any = settings_of(text)
    for part in where.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


# -- the shipped sample


SAMPLE_TEXT = SAMPLE.read_text(encoding="utf-8")


def test_the_sample_is_valid_but_for_a_group_that_a_host_may_not_have() -> None:
    try:
        configuration = load(str(SAMPLE))
    except ConfigError as error:
        (fault,) = error.faults
        assert fault.path == "bus.group"
        assert "group: bccn" in SAMPLE_TEXT.splitlines()[fault.line - 1]
    else:
        assert configuration.gids == {"bccn": grp.getgrnam("bccn").gr_gid}


def test_the_sample_shows_the_defaults() -> None:
    text, removed = re.subn(r"(?m)^ *group:.*\n", "", SAMPLE_TEXT)
    assert removed == 1
    assert read(text, str(SAMPLE)) == config.Configuration(Settings())


def test_every_key_stands_in_the_sample() -> None:
    keys = {key.path.rpartition(".")[2] for key in keys_of_the_schema()}
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}:", SAMPLE_TEXT)] == []


def test_every_default_is_valid_itself() -> None:
    # Defaults are not validated when they are used, so they are here: written out and read again.
    defaults = Settings(host="here").model_dump()
    defaults["metrics"]["listen"] = "127.0.0.1:9540"
    defaults["segments"] = list(defaults["segments"])
    defaults["integrity"]["keys"] = list(defaults["integrity"]["keys"])
    del defaults["bus"]["group"]
    assert settings_of(yaml.safe_dump(defaults)) == Settings(host="here")
    assert Settings().host == socket.gethostname()
    with pytest.raises(ValueError, match="frozen"):
        Settings().host = "other"


def test_the_file_at_the_usual_place_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(config, "DEFAULT_PATH", str(tmp_path / "bccnd.yaml"))
    assert load(None).settings == Settings()
    (tmp_path / "bccnd.yaml").write_text("host: other\n")
    assert load(None).settings.host == "other"


# -- values

#: a template, the place of the value, and what is read there of which text
GOOD: list[tuple[str, str, dict[str, object]]] = [
    ("dedup: {expire: %s}", "dedup.expire", {"2": 2.0, "0.5": 0.5, "200ms": 0.2, "5s": 5.0, "1.5s": 1.5}),
    ("dedup: {expire: %s}", "dedup.expire", {"10m": 600.0, "24h": 86_400.0, "7d": 604_800.0, '"5s"': 5.0}),
    ("segments: [{receive_buffer: %s}]", "segments.0.receive_buffer", {"65536": 65_536, "65536B": 65_536}),
    ("segments: [{receive_buffer: %s}]", "segments.0.receive_buffer", {"4MiB": 4 << 20, "1GiB": 1 << 30}),
    ("max_datagram: %s", "max_datagram", {"64000B": 64_000, "63KiB": 63 << 10}),
    ("bus: {mode: %s}", "bus.mode", {"0660": 0o660, '"0660"': 0o660, '"660"': 0o660, "0600": 0o600, "'0666'": 0o666}),
    ("metrics: {listen: %s}", "metrics.listen", {"127.0.0.1:9540": ("127.0.0.1", 9540), '"[::1]:1"': ("::1", 1)}),
    ("metrics: {listen: %s}", "metrics.listen", {"0.0.0.0:65535": ("0.0.0.0", 65_535)}),
    ("metrics: {listen: %s}", "metrics.listen", {"off": None, '"off"': None, "false": None, "": None}),
    ("segments: [{address: %s}]", "segments.0.address", {"10.0.0.255": "10.0.0.255", "239.1.2.3": "239.1.2.3"}),
    ("segments: [{address: %s}]", "segments.0.address", {"'ff02::bcc'": "ff02::bcc", "'ff05::bcc'": "ff05::bcc"}),
    ("segments: [{address: %s}]", "segments.0.address", {"FF02:0:0:0:0:0:0:0BCC": "ff02::bcc"}),
    ("segments: [{address: 239.1.2.3, bind: %s}]", "segments.0.bind", {"239.1.2.3": "239.1.2.3"}),
    ("segments: [{bind: %s}]", "segments.0.bind", {"0.0.0.0": "0.0.0.0"}),
    ("segments: [{address: 'ff02::bcc', bind: %s}]", "segments.0.bind", {"'::'": "::", "'ff02::bcc'": "ff02::bcc"}),
    ("segments: [{hop_limit: %s}]", "segments.0.hop_limit", {"1": 1, "2": 2, "255": 255}),
    ("names: %s", "names", {"any": "any", "perl-safe": "perl-safe"}),
    ("repeat: %s", "repeat", {"": (), "[]": (), "{}": (), "null": ()}),
    ("access: %s", "access", {"": (), "[]": (), "{}": (), "null": ()}),
    ("bus: {sockets: %s}", "bus.sockets", {"": (), "[]": (), "{}": (), "null": ()}),
    ("gateways: %s", "gateways", dict.fromkeys(["", "[]", "{}", "null", "false"], config.GatewaySettings())),
    ("recorder: %s", "recorder", dict.fromkeys(["", "[]", "{}", "null", "false"], RecorderSettings())),
    ("recorder: {payload: true, rotate: %s}", "recorder", {"60s": RecorderSettings()}),
    ("bus: {patience: %s}", "bus.patience", {"0": 0.0, "200ms": 0.2, "1h": 3600.0}),
    ("bus: {user: {rate: %s}}", "bus.user.rate", {"100": 100, "0.5": 0.5, "0.001": 0.001}),
    (
        "bus: {user: %s}",
        "bus.user",
        {"{clients: 3, queue_bytes: 4KiB}": config.UserSettings(clients=3, queue_bytes=4096)},
    ),
    ("access: [{publish: %s}]", "access.0.publish", {"": None, "[]": (), "['']": ("",)}),
    ("access: [{tap: %s}]", "access.0.tap", {"": None, "false": False}),
    ("segments: %s", "segments", {"[]": (), "[{port: 7}]": (SegmentSettings(port=7),)}),
    ("heartbeat: {interval: %s}", "heartbeat.interval", {"0": 0.0, "100ms": 0.1}),
    ("%s", "host", dict.fromkeys(["", "# nothing\n", "---\n", "{}", "\ufeff"], socket.gethostname())),
]
#: a template, the place, part of the reason, and texts that are refused there
MALFORMED: list[tuple[str, str, str, list[str]]] = [
    ("dedup: {expire: %s}", "dedup.expire", "is no duration", ["soon", "5 s", "5S", "-1", ".inf", "1h30m", "s", "5x"]),
    ("dedup: {expire: %s}", "dedup.expire", "is no duration", ['""', '"5"', "5.s", ".5s", "1e3s", "true", "[5]"]),
    ("max_datagram: %s", "max_datagram", "is no size", ["big", "4 MiB", "4MB", "4M", "1.5MiB", "-1", "1.5", "true"]),
    ("max_datagram: %s", "max_datagram", "is no size", ['"65536"', '""', "[1]"]),
    ("bus: {mode: %s}", "bus.mode", "is no mode", ["660", "0460", '"0060"', "rw-rw----", '"1660"', "01660", "-1"]),
    ("bus: {mode: %s}", "bus.mode", "is no mode", ["true", '""', "[0660]", "0o660"]),
    ("metrics: {listen: %s}", "metrics.listen", "is no address", ["9540", '":9540"', "localhost:1", "127.0.0.1", "0"]),
    ("metrics: {listen: %s}", "metrics.listen", "is no address", ["127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:http"]),
    ("metrics: {listen: %s}", "metrics.listen", "is no address", ['"127.0.0.1:"', "127.0.0.256:1", "true", "[]"]),
    ("bus: {user: {rate: %s}}", "bus.user.rate", "too few", ["1.0e-7", "1.0e-300", "0.0009"]),
    ("dedup: {horizon: %s}", "dedup.horizon", "than", ["0", "2h"]),
    ("dedup: {sanity: %s}", "dedup.sanity", "must be", ["15", "65537", "1024.0"]),
    ("dedup: {late: %s}", "dedup.late", "'drop' or 'deliver'", ["sometimes"]),
    ("max_datagram: %s", "max_datagram", "equal to", ["1399", "1MiB"]),
    ("host: %s", "host", "", ["''", "a/b", "grün", "a*", "a" * 65]),
    ("names: %s", "names", "'any' or 'perl-safe'", ["perl"]),
    ("%s", "segments", "two segments are called", ["segments: [{}, {}]", "segments: [{name: a}, {name: a, port: 1}]"]),
    ("segments: [{name: %s}, {address: 'ff02::1'}]", "segments", "two segments are called", ["'ff02--1#5400'"]),
    ("segments: [{address: %s}]", "segments[0].address", "no address", ["10.0.0.256", "'ff02::bcc/64'"]),
    ("segments: [{address: %s}]", "segments[0].address", "IPv6 has no broadcast", ["'fe80::1'", "'::1'"]),
    ("segments: [{address: %s}]", "segments[0].address", "no multicast", ["'ff02::1%eth0'", "'::ffff:239.1.2.3'"]),
    ("segments: [{bind: %s}]", "segments[0].bind", "", ["'::'", "eth0"]),
    ("segments: [{%s}]", "segments[0].bind", "different families", ["address: 239.1.2.3, bind: '::'"]),
    ("segments: [{%s}]", "segments[0].bind", "different families", ["address: 'ff02::1', bind: 0.0.0.0"]),
    ("segments: [{hop_limit: %s}]", "segments[0].hop_limit", "equal to", ["0", "256"]),
    ("segments: [{port: %s}]", "segments[0].port", "must be", ["0", "65536", "'5400'"]),
    ("segments: [{interface: %s}]", "segments[0].interface", "", ["averylonginterface"]),
    ("segments: [{name: %s}]", "segments[0].name", "end a name in the tap", ["'a:b'", "'a|b'"]),
    ("integrity: {signers: %s}", "integrity.signers", "keys and values", ["[a]"]),
    ("integrity: {signers: {a: %s}}", "integrity.signers.a", "not []", ["[]"]),
    ("integrity: {keys: %s}", "integrity.keys", "must be a list", ["key"]),
    ("integrity: {required: %s}", "integrity.required", "true or false", ["perhaps"]),
    ("heartbeat: {interval: %s}", "heartbeat.interval", "", ["1ms", "0.0999", "2h"]),
    ("heartbeat: {dead_after: %s}", "heartbeat.dead_after", "must be", ["0", "1001", "1.5"]),
    ("bus: {path: %s}", "bus.path", "", ["''", "7", "'@'", "/dev/unix/abstract/0"]),
    ("bus: {path: %s}", "bus.path", "107 bytes", ["'@" + "x" * 108 + "'", "/" + "x" * 107]),
    ("bus: {sockets: [{path: %s}]}", "bus.sockets[0].path", "", ["''", "'@'"]),
    ("bus: {sockets: [{path: /a}, {path: /b, mode: %s}]}", "bus.sockets[1].mode", "is no mode", ["1", "660"]),
    ("bus: {sockets: [{path: /a, dialect: %s}]}", "bus.sockets[0].dialect", "'broker'", ["x"]),
    ("bus: {sockets: %s}", "bus.sockets", "must be a list", ["/a"]),
    ("bus: {sockets: [%s]}", "bus.sockets[0]", "keys and values", ["/a"]),
    ("bus: {%s}", "bus", "two sockets at", ["sockets: [{path: /a}, {path: /a}]"]),
    ("bus: {%s}", "bus", "two sockets at", ["path: '@a', sockets: [{path: '@a'}]"]),
    ("bus: {user: {clients: %s}}", "bus.user.clients", "equal to", ["0", "100001"]),
    ("bus: {user: {subscriptions: %s}}", "bus.user.subscriptions", "equal to", ["0", "10000001"]),
    ("bus: {user: {queue_bytes: %s}}", "bus.user.queue_bytes", "equal to", ["4095", "17GiB"]),
    ("bus: {user: {rate: %s}}", "bus.user.rate", "must be", ["-1", "1.0e+10", "10/s", ".nan"]),
    ("bus: {patience: %s}", "bus.patience", "equal to", ["2h"]),
    ("access: [{user: %s}]", "access[0].user", "must be text", ["-1", "true"]),
    ("access: [{program: %s}]", "access[0].program", "must", ["''", "7"]),
    ("access: [{publish: %s}]", "access[0].publish", "must be a list", ["a/"]),
    ("access: [{subscribe: [%s]}]", "access[0].subscribe[0]", "", ["7", '"a\\tb"']),
    ("access: [{tap: %s}]", "access[0].tap", "true or false", ["1", "perhaps"]),
    ("access: [%s]", "access[0]", "keys and values", ["root"]),
    ("repeat: [{%s}]", "repeat[0].channels", "", ["copies: 2", "channels: 7", 'channels: "a\\tb"']),
    ("repeat: [{channels: x, copies: %s}]", "repeat[0].copies", "equal to", ["1", "9"]),
    ("repeat: [{channels: x, spacing: %s}]", "repeat[0].spacing", "equal to", ["61s"]),
    ("recorder: {payload: [{%s}]}", "recorder.payload[0].payload", "", ["channels: x", "payload: x"]),
    ("recorder: {host: %s}", "recorder.host", "part of a path", ["a/b", "'..'"]),
    ("recorder: {rotate: %s}", "recorder.rotate", "equal to", ["0", "2d"]),
    # What the kernel or the bus cannot be asked for is refused here, on its line.
    ('bus: {path: "%s"}', "bus.path", "", ["a\\0b"]),
    ('segments: [{interface: "%s"}]', "segments[0].interface", "", ["lo\\0", "\\u00e9" * 9]),
    ('metrics: {groups: {a: "%s"}}', "metrics.groups.a", "", ["\\ud800"]),
]


@pytest.mark.parametrize(("template", "where", "values"), GOOD)
def test_good_values_are_read(template: str, where: str, values: dict[str, object]) -> None:
    assert {text: value_of(template % text, where) for text in values} == values


@pytest.mark.parametrize(("template", "path", "reason", "texts"), MALFORMED)
def test_malformed_values_are_refused(template: str, path: str, reason: str, texts: list[str]) -> None:
    for text in texts:
        fault = fault_of(template % text)
        assert (fault.line, fault.path, reason in fault.reason) == (1, path, True), text


def test_the_label_of_a_segment_is_its_name_or_made_of_interface_address_and_port() -> None:
    assert SegmentSettings(name="yard").label == "yard"
    assert SegmentSettings().label == "255.255.255.255#5400"
    assert SegmentSettings(interface="eth0", port=1).label == "eth0/255.255.255.255#1"
    assert SegmentSettings(address="ff02::bcc", interface="eth0").label == "eth0/ff02--bcc#5400"
    assert SegmentSettings(interface="eth0:1|x").label == "eth0-1-x/255.255.255.255#5400"
    assert SegmentSettings(name="yard", address="ff02::bcc", interface="eth0").label == "yard"
    assert len(settings_of(f"segments: [{', '.join(f'{{port: {port}}}' for port in range(1, 65))}]").segments) == 64
    fault = fault_of("segments: [{address: 'ff02::bcc'}, {address: 'FF02:0::BCC'}]")
    assert (fault.path, fault.reason) == ("segments", "two segments are called ff02--bcc#5400")


# -- faults

#: text, line, path, part of the reason, part of the remedy
BAD: list[tuple[str, int, str, str, str]] = [
    ("segment: []", 1, "segment", "unknown key", "did you mean segments?"),
    ("\n\nbus:\n  pth: /x\n", 4, "bus.pth", "unknown key", "did you mean path?"),
    ("bus:\n  queue:\n    message: 3\n", 3, "bus.queue.message", "unknown key", "did you mean messages?"),
    ("segments:\n  - port: 5401\n  - adress: x\n", 3, "segments[1].adress", "unknown key", "did you mean address?"),
    ("bus:\n  sockets:\n  - path: /a\n    pth: /b\n", 4, "bus.sockets[0].pth", "unknown key", "did you mean path?"),
    ("bus: {sockets: [{path: /a, user: {}}]}", 1, "bus.sockets[0].user", "unknown key", "known keys here: path"),
    ("access:\n- {}\n- zebra: 1\n", 3, "access[1].zebra", "unknown key", "user, group, program, publish, subscribe"),
    ("bus:\n", 1, "bus", "not ", "etc/bccnd.yaml"),
    ("bus:\n  user: 5\n", 2, "bus.user", "keys and values, not 5", "etc/bccnd.yaml"),
    ("bus:\n  dialect: regex\n", 2, "bus.dialect", "'sbus-dot'", "choose 'path'"),
    ("bus:\n  group: nosuchgroup\n", 2, "bus.group", "there is no group nosuchgroup", "groupadd --system nosuchgroup"),
    ("bus:\n  sockets:\n  - path: /a\n    group: nosuch\n", 4, "bus.sockets[0].group", "no group nosuch", "groupadd"),
    ("bus:\n  sockets:\n  - mode: 0600\n", 3, "bus.sockets[0].path", "must be there", "etc/bccnd.yaml"),
    ("segments: {port: 1}\n", 1, "segments", "not {'port': 1}", "etc/bccnd.yaml"),
    ("segments: [{name: nng}]\n", 1, "segments", "nng is what links are called", "give this segment another name"),
    ("integrity:\n  algorithm: hmac\n", 1, "integrity", "hmac needs a key", "bccn keygen"),
    ("integrity:\n  algorithm: sig\n", 1, "integrity", "sig needs a key", "--algorithm sig"),
    ("integrity:\n  algorithm: md5\n", 2, "integrity.algorithm", "not 'md5'", "choose 'none', 'hmac'"),
    ("dedup: {late: deliver, freshness: monotonic}", 1, "dedup", "contradict each other", "set late: drop"),
    ("metrics:\n  groups: {'a b': x}\n", 2, "metrics.groups", "'a b' is no name for a group", "letters, digits"),
    ("access: everybody\n", 1, "access", "must be a list, not 'everybody'", "etc/bccnd.yaml"),
    ("access:\n- user: nosuchuser\n", 2, "access[0].user", "there is no user nosuchuser", "useradd --system nosuch"),
    ("access:\n- group: nosuchgroup\n", 2, "access[0].group", "there is no group nosuchgroup", "groupadd"),
    ("access:\n- program: cardsys-collector\n", 2, "access[0].program", "'cardsys-collector'", "cardsys-collect,"),
    ("access:\n- publish:\n  - a\n  - 7\n", 4, "access[0].publish[1]", "must be text, not 7", "etc/bccnd.yaml"),
    ("repeat: [{channels: x, copies: 3, spacing: 1s}]\n", 0, "", "repeat[0]: the last copy", "dedup.horizon"),
    ("gateways: {nng: {}}\n", 1, "gateways.nng", "neither listens nor dials", "set listen or dial"),
    ("gateways: {nng: {listen: [x]}}\n", 1, "gateways.nng.listen[0]", "'x' is no place for a link", "tls+tcp://"),
    ("gateways: {nng: {dial: ['tcp://a']}}\n", 1, "gateways.nng.dial[0]", "'tcp://a' names no port", "tcp://host:port"),
    ("gateways: {nng: {dial: ['tls+tcp://a:1']}}\n", 1, "gateways.nng", "tls+tcp needs certificates", "set tls"),
    ("gateways: {nng: {dial: ['tcp://a:1', 'tcp://a:1']}}\n", 1, "gateways.nng", "stands there twice", "leave one"),
    ("gateways: {broker: {}}\n", 1, "gateways.broker", "a broker that listens nowhere", "set tcp or udp"),
    ("recorder: {payload: maybe}\n", 1, "recorder.payload", "does not say what is kept", "list of rules"),
    ("recorder: {rotate_size: 1GiB}\n", 1, "recorder", "does not hold two logs", "spool_size to twice rotate_size"),
    ("\nhost: a\nhost: b\n", 3, "", "the key host stands twice", "that line"),
    ("- a\n- b\n", 1, "", "not a list of keys and values", "etc/bccnd.yaml"),
]


@pytest.mark.parametrize(("text", "line", "path", "reason", "remedy"), BAD)
def test_a_fault_has_its_line_path_reason_and_remedy(text: str, line: int, path: str, reason: str, remedy: str) -> None:
    fault = fault_of(text)
    assert (fault.line, fault.path) == (line, path)
    assert reason in fault.reason
    assert remedy in fault.remedy


def test_lists_and_mappings_have_a_largest_length() -> None:
    many = {
        "bus.sockets": f"bus: {{sockets: [{', '.join(f'{{path: /s{number}}}' for number in range(17))}]}}",
        "access": f"access: [{', '.join(['{}'] * 1001)}]",
        "access[0].publish": f"access: [{{publish: [{', '.join('x' * 1001)}]}}]",
        "access[0].subscribe": f"access: [{{subscribe: [{', '.join('x' * 1001)}]}}]",
        "repeat": f"repeat: [{', '.join(['{channels: x}'] * 65)}]",
        "metrics.groups": f"metrics: {{groups: {{{', '.join(f'g{number}: x' for number in range(65))}}}}}",
    }
    for path, text in many.items():
        fault = fault_of(text)
        assert fault.path == path
        assert "at most" in fault.reason
    assert fault_of(f"access: [{{program: {'x' * 65}}}]").path == "access[0].program"


def test_all_faults_are_reported_at_once() -> None:
    lines = ["hots: a", "segments:", "  - port: 0", "    address: here", "  - interfce: eth0"]
    lines += ["bus:", "  mode: 1", "  queue: {bytes: some}", "gateways: {ngn: {}}"]
    assert sorted((fault.line, fault.path) for fault in faults("\n".join(lines))) == [
        *((1, "hots"), (3, "segments[0].port"), (4, "segments[0].address"), (5, "segments[1].interfce")),
        *((7, "bus.mode"), (8, "bus.queue.bytes"), (9, "gateways.ngn")),
    ]


# -- the recorder


def test_rules_for_payloads() -> None:
    rules = {
        "true": [("", "record")],
        "false": [("", "omit")],
        "hash": [("", "hash")],
        "[]": [],
        '[{channels: "door/", payload: hash}, {payload: omit}]': [("door/", "hash"), ("", "omit")],
    }
    for text, expected in rules.items():
        found = settings_of(f"recorder: {{payload: {text}}}").recorder.payload
        assert [(rule.channels, rule.payload) for rule in found] == expected


def test_programs_other_than_the_daemon_read_the_file_without_keys_and_groups(tmp_path: Path) -> None:
    file = tmp_path / "bccnd.yaml"
    file.write_text("integrity: {algorithm: hmac, keys: [secret]}\nbus: {group: nosuchgroup}\nrecorder: {rotate: 7}\n")
    assert load(str(file), resolve=False).settings.recorder.rotate == 7
    with pytest.raises(ConfigError):
        load(str(file))


def test_a_command_line_overrides_the_file() -> None:
    recorder = settings_of('recorder: {journal: /a, rotate: 5s, metrics: {listen: "127.0.0.1:9541"}}').recorder
    chosen = read_recorder(recorder, {"journal": "/b", "payload": "hash", "rotate": "7s"})
    assert (chosen.journal, chosen.rotate, chosen.metrics.listen) == ("/b", 7.0, ("127.0.0.1", 9541))
    assert [rule.payload for rule in chosen.payload] == ["hash"]
    with pytest.raises(ConfigError, match=r"command line: rotate: 'soon' is no duration\n  remedy: write a number"):
        read_recorder(recorder, {"rotate": "soon"})


# -- sockets, users, rules


def test_two_spellings_of_one_address_are_refused() -> None:
    spellings = {"@" + "a" * 107: "/dev/unix/abstract/00" + "61" * 107, "/dev/fd/3": "/dev/fd/03"}
    spellings["/dev/unix/abstract/00ab"] = "/dev/unix/abstract/00AB"
    for one, other in spellings.items():
        assert "two sockets" in fault_of(f"bus: {{path: '{one}', sockets: [{{path: '{other}'}}]}}").reason


def test_further_sockets_take_the_defaults_and_not_what_the_first_has() -> None:
    bus = settings_of(
        "bus: {path: /a, mode: 0600, dialect: broker, "
        "sockets: [{path: '@bccn'}, {path: /dev/fd/3, mode: 0666, dialect: sbus-dot, group: 0}]}"
    ).bus
    assert [(one.path, one.mode, one.group, one.dialect) for one in bus.all_sockets] == [
        ("/a", 0o600, None, "broker"),
        ("@bccn", 0o660, None, "path"),
        ("/dev/fd/3", 0o666, "0", "sbus-dot"),
    ]


def test_rules_keep_their_order() -> None:
    text = (
        "access:\n"
        "- {user: root, program: cardsys-relay, publish: [cardsys/, '!'], tap: true}\n"
        "- {group: 0, subscribe: [''], tag: false}\n"
        "- {}\n"
        "repeat:\n"
        "- {channels: a/b, copies: 3, spacing: 5ms}\n"
        "- channels: a/>\n"
        "- {channels: ''}\n"
    )
    assert settings_of(text).access == (
        config.AccessSettings(user="root", program="cardsys-relay", publish=("cardsys/", "!"), tap=True),
        config.AccessSettings(group="0", subscribe=("",), tag=False),
        config.AccessSettings(),
    )
    assert settings_of(text).repeat == (
        config.RepeatSettings(channels="a/b", copies=3, spacing=0.005),
        config.RepeatSettings(channels="a/>", copies=2, spacing=0.002),
        config.RepeatSettings(channels="", copies=2, spacing=0.002),
    )


def test_the_last_copy_must_come_within_the_horizon() -> None:
    text = "dedup: {horizon: %s}\nrepeat: [{channels: y, spacing: 0}, {channels: x, copies: %d, spacing: %s}]\n"
    for horizon, copies, spacing in (("2s", 2, "1999ms"), ("2s", 3, "999ms"), ("1h", 8, "60s"), ("1ms", 8, "0")):
        assert value_of(text % (horizon, copies, spacing), "repeat.1.copies") == copies
    for horizon, copies, spacing in (("2s", 2, "2s"), ("2s", 3, "1s"), ("1ms", 2, "2ms")):
        fault = fault_of(text % (horizon, copies, spacing))
        assert fault.reason.startswith("repeat[1]: ")
        assert "dedup.horizon" in fault.remedy


def test_users_and_groups_are_resolved_by_name_and_by_number_wherever_they_stand() -> None:
    group = grp.getgrgid(os.getegid())
    user = pwd.getpwuid(os.geteuid())
    text = (
        f"bus: {{group: {group.gr_name}, sockets: [{{path: /a, group: 4294967294}}]}}\n"
        f"access: [{{user: {user.pw_name}, group: '12345'}}, {{user: 54321}}, {{user: '0'}}]\n"
    )
    configuration = read(text, "x")
    assert configuration.uids == {user.pw_name: user.pw_uid, "54321": 54_321, "0": 0}
    assert configuration.gids == {group.gr_name: group.gr_gid, "4294967294": 4_294_967_294, "12345": 12_345}


def test_a_number_that_no_user_or_group_can_have_is_refused() -> None:
    # A superscript digit, the number that stands for none, and numbers that are too long.
    for number in ("'\u00b2'", "'4294967295'", "4294967295", "'" + "9" * 20 + "'", "'" + "9" * 5000 + "'"):
        assert fault_of(f"access: [{{user: {number}}}]").path == "access[0].user"
        assert fault_of(f"access: [{{group: {number}}}]").path == "access[0].group"
        assert fault_of(f"bus: {{group: {number}}}").path == "bus.group"


def load_fault(path: Path) -> Fault:
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    (fault,) = caught.value.faults
    assert (fault.file, fault.line) == (str(path), 0)
    return fault


def test_a_file_is_read_or_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "bccnd.yaml"
    fault = load_fault(path)
    assert "No such file" in fault.reason
    assert "--config" in fault.remedy
    assert "Is a directory" in load_fault(tmp_path).reason
    path.write_bytes(b"host: gr\xfcn\n")
    assert "not UTF-8 at byte 8" in load_fault(path).reason
    path.write_text("host: a\r\n# grün\r\nsegments: []\r\n", encoding="utf-8")
    assert load(str(path)).settings == Settings(host="a", segments=())


def test_a_file_that_this_user_may_not_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    need_root("the file of another user")
    with tempfile.TemporaryDirectory() as name, without_root(Path(name)):
        path = Path(name, "bccnd.yaml")
        path.touch(0)
        fault = load_fault(path)
    assert "Permission denied" in fault.reason
    assert "readable" in fault.remedy


# -- keys

PRIVATE = generate()
PUBLIC = public_of(PRIVATE)


def key_file(folder: Path, content: bytes = KEY, mode: int = 0o600, name: str = "key") -> Path:
    path = folder / name
    path.write_bytes(content)
    path.chmod(mode)
    return path


def private_file(folder: Path, content: bytes = PRIVATE, mode: int = 0o600, name: str = "sig.key") -> Path:
    return key_file(folder, content, mode, name)


def public_file(folder: Path, content: bytes = PUBLIC, mode: int = 0o644, name: str = "sig.key.pub") -> Path:
    return key_file(folder, content, mode, name)


def with_keys(*paths: Path | str) -> tuple[bytes, ...]:
    """The secrets for HMAC that are read of some files."""
    names = ", ".join(f"'{path}'" for path in paths)
    return read(f"integrity:\n  algorithm: hmac\n  keys: [{names}]\n", PLACE).keys


def signing(keys: Sequence[Path] = (), signers: Mapping[str, Sequence[Path]] | None = None, more: str = "") -> str:
    """A configuration for signatures; keys begin on line 4, the signers behind them."""
    lines = ["integrity:", "  algorithm: sig", "  keys:" + ("" if keys else " []")]
    lines += [f"  - '{path}'" for path in keys]
    if signers:
        lines.append("  signers:")
        for prefix, paths in signers.items():
            lines.append(f"    '{prefix}':")
            lines += [f"    - '{path}'" for path in paths]
    return "\n".join(lines) + "\n" + more


def key_fault(path: Path, kind: str = "hmac") -> Fault:
    """What is wrong with a file as a secret for HMAC, as a private key (``sig``) or as a public one (``pub``)."""
    if kind == "hmac":
        fault = fault_of(f"integrity:\n  algorithm: hmac\n  keys: ['{path}']\n")
        assert (fault.line, fault.path) == (3, "integrity.keys[0]")
    elif kind == "sig":
        fault = fault_of(signing([path]))
        assert (fault.line, fault.path) == (4, "integrity.keys[0]")
    else:
        fault = fault_of(signing(signers={"relay01": [path]}))
        assert (fault.line, fault.path) == (6, "integrity.signers.relay01[0]")
    assert str(path) in fault.reason
    assert KEY.decode() not in str(fault)
    assert "PRIVATE" not in str(fault)
    return fault


def test_keys_keep_their_order_because_the_first_one_signs(tmp_path: Path) -> None:
    binary = b"\x00\xff \n" * 5 + b"x"
    contents = [b"c" * 32, b"a" * 32 + b"\n", binary + b"\r\n", b"x" * MIN_KEY]
    paths = [key_file(tmp_path, content, name=f"key{number}") for number, content in enumerate(contents)]
    assert with_keys(*paths) == (b"c" * 32, b"a" * 32, binary, b"x" * MIN_KEY)


def test_a_relative_name_begins_at_the_folder_of_the_configuration(tmp_path: Path) -> None:
    key_file(tmp_path)
    public_file(tmp_path, name="relay02.pub")
    path = tmp_path / "bccnd.yaml"
    path.write_text("integrity: {algorithm: hmac, keys: [key]}\n")
    assert load(str(path)).keys == (KEY,)
    path.write_text("integrity: {algorithm: sig, signers: {relay02: [relay02.pub]}}\n")
    assert load(str(path)).signers == {b"relay02": [PUBLIC.rstrip(b"\n")]}


def test_a_key_that_others_can_read_or_replace_is_refused(tmp_path: Path) -> None:
    for mode in (0o600, 0o400, 0o700):
        assert with_keys(key_file(tmp_path, mode=mode)) == (KEY,)
    for mode in (0o644, 0o600, 0o444, 0o604, 0o640, 0o755):
        assert read(signing(signers={"relay01": [public_file(tmp_path, mode=mode)]}), "x").signers
    for kind, content in (("hmac", KEY), ("sig", PRIVATE)):
        for mode in (0o644, 0o640, 0o604, 0o660, 0o610, 0o444, 0o441):
            path = key_file(tmp_path, content, mode)
            fault = key_fault(path, kind)
            assert f"mode {mode:04o}: others can read it" in fault.reason
            assert fault.remedy == f"chmod 600 {path}"
    for mode in (0o664, 0o646, 0o666, 0o620, 0o602, 0o777):
        path = key_file(tmp_path, PUBLIC, mode)
        fault = key_fault(path, "pub")
        assert f"mode {mode:04o}: others can replace it" in fault.reason
        assert fault.remedy == f"chmod 644 {path}"


@pytest.mark.root
def test_files_of_root_and_of_other_users(tmp_path: Path) -> None:
    need_root("only root can give a file away")
    # A credential of systemd belongs to root.
    credential = key_file(tmp_path, mode=0o440)
    assert with_keys(credential) == (KEY,)
    os.chown(credential, NOBODY, -1)
    assert "mode 0440" in key_fault(credential).reason
    for kind, path in (("hmac", key_file(tmp_path, name="other")), ("pub", public_file(tmp_path))):
        os.chown(path, NOBODY, -1)
        fault = key_fault(path, kind)
        assert f"belongs to uid {NOBODY}" in fault.reason
        assert fault.remedy == f"chown {os.geteuid()} {path}"


#: what a file holds, part of the reason and of the remedy; as a secret for HMAC, a private key and a public one
WRONG: dict[str, list[tuple[bytes, str, str]]] = {
    "hmac": [
        (b"\n", "holds 0 bytes", "keygen"),
        (b"x" * (MIN_KEY - 1) + b"\n", f"holds {MIN_KEY - 1} bytes", "keygen"),
        (b"x" * 100_000, "more than 4096 bytes", "name the file"),
        *((content, "is a key for signatures", "set algorithm: sig") for content in (PRIVATE, PUBLIC)),
    ],
    # core/test_signatures.py tries other kinds of keys, and damaged ones.
    "sig": [(content, "no private key", "--algorithm sig") for content in (KEY, PUBLIC, PRIVATE[:80])],
    "pub": [(content, "no public key", "--algorithm sig") for content in (KEY, PRIVATE, PUBLIC[:60])],
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_a_file_holds_must_be_a_key_of_the_right_kind(tmp_path: Path, kind: str) -> None:
    for content, reason, remedy in WRONG[kind]:
        fault = key_fault(key_file(tmp_path, content), kind)
        assert reason in fault.reason
        assert remedy in fault.remedy


def test_what_is_no_file_is_no_key(tmp_path: Path) -> None:
    for kind in ("hmac", "sig", "pub"):
        fault = key_fault(tmp_path / "nowhere", kind)
        assert "No such file" in fault.reason
        assert "keygen" in fault.remedy
        assert "directory" in key_fault(tmp_path, kind).reason
        assert "no regular file" in key_fault(Path("/dev/zero"), kind).reason


def test_every_bad_key_is_named(tmp_path: Path) -> None:
    good, nowhere = public_file(tmp_path), tmp_path / "nowhere"
    writable = public_file(tmp_path, mode=0o666, name="writable.pub")
    found = {fault.path: fault.line for fault in faults(signing([nowhere], {"a": [good, nowhere], "b": [writable]}))}
    assert found == {"integrity.keys[0]": 4, "integrity.signers.a[1]": 8, "integrity.signers.b[0]": 10}


def test_a_private_key_and_public_ones_by_prefix_are_read(tmp_path: Path) -> None:
    other = public_of(generate())
    mine, theirs = public_file(tmp_path), public_file(tmp_path, other, name="other.pub")
    text = signing([private_file(tmp_path)], {"relay01": [mine, theirs], "relay02/cardsys": [theirs], "": [mine]})
    configuration = read(text, PLACE)
    ours, others = PUBLIC.rstrip(b"\n"), other.rstrip(b"\n")
    assert configuration.keys == (PRIVATE.rstrip(b"\n"),)
    assert configuration.signers == {b"relay01": [ours, others], b"relay02/cardsys": [others], b"": [ours]}
    door = make_checker("sig", configuration.keys, configuration.signers)
    assert door.verified_body(build(b"relay01:1:c|x", door.sign(b"relay01:1:c|x"))) == b"relay01:1:c|x"
    # Either half may be missing.
    assert read(signing(signers={"relay01": [mine]}), "x").keys == ()
    assert read(signing([private_file(tmp_path)]), "x").signers == {}
    # A program that makes its settings itself has no file opened.
    assert config.IntegritySettings(algorithm="sig", keys=("/nowhere",), signers={"a": ("/nowhere",)}).keys == (
        "/nowhere",
    )


def test_keys_must_fit_the_algorithm(tmp_path: Path) -> None:
    secret, public = key_file(tmp_path), public_file(tmp_path)
    for algorithm in ("none", "crc32"):
        fault = fault_of(f"integrity: {{algorithm: {algorithm}, keys: ['{secret}']}}")
        assert (fault.path, fault.reason) == ("integrity", f"algorithm {algorithm} takes no keys")
    for algorithm, keys in {"none": "", "crc32": "", "hmac": f"keys: ['{secret}'], "}.items():
        fault = fault_of(f"integrity: {{algorithm: {algorithm}, {keys}signers: {{a: ['{public}']}}}}")
        assert (fault.path, fault.reason) == ("integrity", f"algorithm {algorithm} takes no signers")
    fault = fault_of(signing([private_file(tmp_path), private_file(tmp_path, generate(), name="second.key")]))
    assert (fault.path, fault.reason) == ("integrity", "sig signs with one key")


def test_a_prefix_is_the_beginning_of_a_src(tmp_path: Path) -> None:
    public = public_file(tmp_path)
    for prefix in ("relay01", "relay01/cardsys", "relay01/cardsys/7", "", "?", "!", "x" * 128):
        assert list(read(signing(signers={prefix: [public]}), "x").signers) == [prefix.encode()]
    for prefix in ("relay01/", "relay01/*", "*", "a b", "a:b", "a|b", "gr\u00fcn", "x" * 129, "/"):
        fault = fault_of(signing(signers={prefix: [public]}))
        assert (fault.line, fault.path) == (5, f"integrity.signers.{prefix}")


def test_heartbeats_need_a_key_to_sign_them(tmp_path: Path) -> None:
    signers = {"relay01": [public_file(tmp_path)]}
    fault = fault_of(signing(signers=signers, more="heartbeat: {interval: 5s}\n"))
    assert fault.reason == "heartbeats cannot be signed without a key"
    assert "integrity.keys" in fault.remedy
    assert read(signing(signers=signers, more="heartbeat: {interval: 0}\n"), "x").signers
    assert read(signing([private_file(tmp_path)], signers, "heartbeat: {interval: 5s}\n"), "x").signers


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of credentials of this service."""
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    return folder


def test_a_key_is_taken_from_the_credentials_wherever_it_is_configured(tmp_path: Path, credentials: Path) -> None:
    key_file(credentials, b"k" * 32, 0o400, "keys_hmac.key")
    key_file(credentials, b"o" * 32, 0o400, "old.key")
    here = key_file(tmp_path, b"h" * 32, name="here.key")
    assert with_keys("/etc/bccnd/keys/hmac.key", "/nowhere/old.key", here) == (b"k" * 32, b"o" * 32, b"h" * 32)
    private_file(credentials, mode=0o400, name="keys_sig.key")
    public_file(credentials, mode=0o400, name="keys_fleet_relay01.pub")
    text = signing([Path("/etc/bccnd/keys/sig.key")], {"relay01": [Path("/etc/bccnd/keys/fleet/relay01.pub")]})
    found = read(text, PLACE)
    assert found.keys == (PRIVATE.rstrip(),)
    assert found.signers == {b"relay01": [PUBLIC.rstrip()]}


def test_a_key_that_was_not_passed_or_is_bad_needs_a_restart(tmp_path: Path, credentials: Path) -> None:
    for kind in ("hmac", "sig", "pub"):
        fault = key_fault(Path("/etc/bccnd/keys/new.key"), kind)
        assert "put new.key into /etc/bccnd/keys" in fault.remedy
        assert "systemctl restart bccnd" in fault.remedy
    key_file(credentials, b"short", 0o400, "keys_hmac.key")
    # The file itself may have been mended since.
    fault = key_fault(Path("/etc/bccnd/keys/hmac.key"))
    assert "key /etc/bccnd/keys/hmac.key, as systemd has passed it, holds 5 bytes" in fault.reason
    assert "bccn keygen" in fault.remedy
    assert "systemctl restart bccnd" in fault.remedy
    path = key_file(tmp_path, KEY, 0o644)
    assert key_fault(path).remedy == f"chmod 600 {path}"


#: the names of keys, and values of many kinds
WORDS = sorted({*re.findall(r"([a-z_]+):", SAMPLE_TEXT)})
WORDS += ["hmac", "none", "off", "127.0.0.1:1", "5s", "4MiB", "0660", "root"]
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats() | st.dates()
SCALARS = NUMBERS | st.binary(max_size=8) | st.text(max_size=8) | st.sampled_from(WORDS)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | SCALARS.filter(lambda key: key == key), inner, max_size=4)
    ),
    max_leaves=12,
)
#: text out of the pieces that YAML is made of
YAML_ISH = st.lists(
    st.sampled_from([*"{}[]:,-?&*!|>'\"%@#~=<.0123456789_abxo+\n \t", "\n  ", ": ", "- ", "!!", "<<", *WORDS]),
    max_size=40,
).map("".join)
#: documents, and values of each key at the top
DUMPED = (DOCUMENTS | st.dictionaries(st.sampled_from(sorted(Settings.model_fields)), DOCUMENTS, min_size=1)).map(
    lambda document: yaml.safe_dump(document, allow_unicode=True)
)


def reads_or_refuses(text: str) -> None:
    """A text is a configuration or it has faults that can be shown; nothing else comes of it."""
    with suppress(ConfigError):
        read(text, PLACE)
        return
    faults(text)


@settings(max_examples=examples(600))
@given(st.text() | YAML_ISH | DUMPED)
def test_any_text_is_read_or_refused(text: str) -> None:
    reads_or_refuses(text)


#: large numbers, half a character, and NULs; test_document.py has what is no YAML
NASTY = [
    *("a: 0x" + "f" * 5000, "segments: [{port: 0x" + "f" * 5000 + "}]", "segments: [{port: 1" + "0" * 5000 + "}]"),
    *("dedup: {horizon: 1" + "0" * 400 + "}", "dedup: {expire: 1" + "0" * 400 + "s}"),
    *("max_datagram: 1" + "0" * 5000 + "KiB", '"\\ud800": 1', 'host: "\\ud800"', 'bus: {group: "\\0"}'),
    *('integrity: {algorithm: hmac, keys: ["\\0"]}', 'integrity: {algorithm: hmac, keys: ["\\ud800"]}'),
]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_what_is_known_to_be_nasty_is_read_or_refused(text: str) -> None:
    reads_or_refuses(text)
