"""The configuration: the shipped sample shows every key, good values are read, and each fault has line and remedy."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bccnd.config import Configuration, RecorderSettings, SegmentSettings, Settings, load, read, read_recorder
from bccnd.config.gateway_schema import GatewaySettings
from bccnd.errors import ConfigError
from docs.reference import keys as keys_of_the_schema
from tests.config.texts import PLACE, fault_of, faults, settings_of, value_of
from tests.support import ROOT, examples

SAMPLE = ROOT / "etc/bccnd.yaml"
SAMPLE_TEXT = SAMPLE.read_text(encoding="utf-8")


def test_the_sample_shows_the_defaults() -> None:
    text, removed = re.subn(r"(?m)^ *group:.*\n", "", SAMPLE_TEXT)
    assert removed == 1
    assert read(text, str(SAMPLE)) == Configuration(Settings())


def test_every_key_stands_in_the_sample() -> None:
    keys = {key.path.rpartition(".")[2] for key in keys_of_the_schema()}
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}:", SAMPLE_TEXT)] == []


def test_the_file_at_the_usual_place_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bccnd.config.loading.DEFAULT_PATH", str(tmp_path / "bccnd.yaml"))
    assert load(None).settings == Settings(host=socket.gethostname())
    (tmp_path / "bccnd.yaml").write_text("host: other\n")
    assert load(None).settings.host == "other"


# -- values

#: a place, and what is read there of which text
GOOD: list[tuple[str, dict[str, object]]] = [
    ("dedup.expire", {"2": 2.0, "0.5": 0.5, "200ms": 0.2, '"5s"': 5.0}),
    ("max_datagram", {"65507": 65_507, "64000B": 64_000, "63KiB": 63 << 10}),
    ("bus.mode", {"0660": 0o660, '"0660"': 0o660, '"660"': 0o660, "0600": 0o600, "'0666'": 0o666}),
    ("metrics.listen", {"0.0.0.0:65535": ("0.0.0.0", 65_535), '"[fe80::1%eth0]:1"': ("fe80::1%eth0", 1)}),
    ("metrics.listen", dict.fromkeys(["off", '"off"', "false", ""])),
    ("segments[0].address", {"10.0.0.255": "10.0.0.255", "FF02:0:0:0:0:0:0:0BCC": "ff02::bcc"}),
    ("segments[0].bind", {"0.0.0.0": "0.0.0.0"}),
    ("repeat", dict.fromkeys(["", "[]", "{}", "null"], ())),
    ("gateways", dict.fromkeys(["", "[]", "{}", "null", "false"], GatewaySettings())),
    ("recorder", dict.fromkeys(["", "[]", "{}", "null", "false"], RecorderSettings())),
    ("bus.user.rate", {"100": 100, "0": 0, "0.001": 0.001}),
    ("access[0].publish", {"": None, "[]": (), "['']": ("",)}),
    ("segments", {"[]": (), "[{port: 7}]": (SegmentSettings(port=7),)}),
    ("heartbeat.interval", {"0": 0.0, "100ms": 0.1}),
]
#: places, each with values that are refused there; docs/configuration.md has the bounds
MALFORMED = r"""
dedup.expire                soon  -1  .inf  "5"  true  [5]
max_datagram                big  -1  1.5  true  "65536"  [1]
bus.mode                    660  0460  "0060"  rw-rw----  "1660"  01660  -1  true  ""  [0660]  0o660
metrics.listen              9540  ":9540"  localhost:1  127.0.0.1  []  127.0.0.1:65536  127.0.0.1:-1  "127.0.0.1:"
metrics.listen              "[fe80::1%a b]:1"  "::1:9540"  "[127.0.0.1]:1"  '[fe80::1]:1'
gateways.nng.dial[0]        'tcp://[::1:1'  'tcp://::1:1'  'tcp://*:1'  'tcp://a b:1'  'tcp://u@a:1'  'tcp://256.1.1.1:1'
gateways.nng.dial[0]        'tcp://-:1'  'tcp://a:1/x'  'tcp://a:65536'  tcp://a  tcp://a..b:1  tcp://:1  tcp://a:0
gateways.nng.listen[0]      x  'tcp://[fe80::1]:1'  ipc:///dev/fd/3
gateways.nng                {}  {dial: ['tls+tcp://a:1']}  {dial: ['tcp://a:1', 'tcp://a:1']}
gateways.broker             {}
gateways.broker.state       /dev/fd/3
bus.user.rate               1.0e-300  0.0009
host                        ''  a/b  grün  a*
segments                    [{}, {}]  [{name: a}, {name: a, port: 1}]  [{name: nng}]
segments                    [{name: 'ff02--1#5400'}, {address: 'ff02::1'}]
segments[0].address         10.0.0.256  'ff02::bcc/64'  'fe80::1'  '::1'  'ff02::1%eth0'  '::ffff:239.1.2.3'
segments[0].bind            '::'  eth0
segments[0].port            0  '5400'
segments[0].interface       averylonginterface  "lo\0"  ééééééééé
segments[0].name            'a:b'  'a|b'
integrity                   {algorithm: hmac}  {algorithm: sig}
integrity.algorithm         md5
integrity.signers           [a]
integrity.signers.a         []
integrity.required          1  perhaps
dedup                       {late: deliver, freshness: monotonic}
heartbeat.interval          1ms  0.0999
reports.interval            0.1999
bus                         {sockets: [{path: /a}, {path: /a}]}  {path: '@a', sockets: [{path: '@a'}]}
bus.user                    5
bus.group                   nosuchgroup
bus.path                    ""  "@"  "a\0b"  /proc/self/fd/3
bus.sockets[0].path         /dev/stdin
metrics.groups              {'a b': x}
metrics.groups.a            "\ud800"
access                      everybody
access[0].user              -1  true  nosuchuser
access[0].program           cardsys-collector
access[0].subscribe[0]      7  "a\tb"
recorder                    {rotate_size: 1GiB}
recorder.host               a/b  '..'
recorder.journal            /proc/self/fd/3
recorder.payload            maybe
"""
LONG_ONES = {
    "gateways.nng.dial[0]": ["'ipc:///" + "x" * 120 + "'", "'abstract://" + "x" * 120 + "'", f"'tcp://{'a' * 64}.b:1'"],
    "bus.path": ["/" + "x" * 107],
    "repeat": [f"[{', '.join(['{channels: x}'] * 65)}]"],
    # two spellings of one address
    "bus": [
        f"{{path: '{one}', sockets: [{{path: '{other}'}}]}}"
        for one, other in (
            ("@" + "a" * 107, "/dev/unix/abstract/00" + "61" * 107),
            ("/dev/fd/3", "/dev/fd/03"),
            ("/dev/unix/abstract/00ab", "/dev/unix/abstract/00AB"),
        )
    ],
}


def text_at(path: str, value: str) -> str:
    """A configuration with one value at a place."""
    for name, in_list in reversed(re.findall(r"([a-z_]+)(\[0\])?", path)):
        value = f"{{{name}: [{value}]}}" if in_list else f"{{{name}: {value}}}"
    return value


def malformed() -> Iterator[tuple[str, str]]:
    for line in MALFORMED.strip().splitlines():
        path, *values = re.split(r" {2,}", line)
        yield from ((path, value) for value in values)
    for path, long in LONG_ONES.items():
        yield from ((path, value) for value in long)


@pytest.mark.parametrize(("path", "values"), GOOD)
def test_good_values_are_read(path: str, values: dict[str, object]) -> None:
    assert {text: value_of(text_at(path, text), path.replace("[0]", ".0")) for text in values} == values


@pytest.mark.parametrize(("path", "value"), list(malformed()), ids=lambda text: text[:40])
def test_a_malformed_value_is_refused_at_its_place(path: str, value: str) -> None:
    fault = fault_of(text_at(path, value))
    assert (fault.line, fault.path) == (1, path)


def test_the_label_of_a_segment_is_its_name_or_its_place() -> None:
    assert SegmentSettings(name="yard", address="ff02::bcc", interface="eth0").label == "yard"
    assert SegmentSettings().label == "255.255.255.255#5400"
    assert SegmentSettings(address="ff02::bcc", interface="eth0").label == "eth0/ff02--bcc#5400"
    assert SegmentSettings(interface="eth0:1|x").label == "eth0-1-x/255.255.255.255#5400"
    assert fault_of("segments: [{address: 'ff02::bcc'}, {address: 'FF02:0::BCC'}]").path == "segments"


# -- faults

TLS_TO = "gateways: {nng: {dial: ['tls+tcp://a:1'], tls: {ca: a, certificate: a, key: a, server_name: "
#: text, line, path
BAD: list[tuple[str, int, str]] = [
    ("bus:\n  queue:\n    message: 3\n", 3, "bus.queue.message"),
    ("segments:\n  - port: 5401\n  - adress: x\n", 3, "segments[1].adress"),
    ("access:\n- {}\n- zebra: 1\n", 3, "access[1].zebra"),
    ("bus:\n", 1, "bus"),
    ("bus:\n  sockets:\n  - mode: 0600\n", 3, "bus.sockets[0].path"),
    ("access:\n- publish:\n  - a\n  - 7\n", 4, "access[0].publish[1]"),
    ("segments: [{address: 'ff02::1', bind: 0.0.0.0}]", 1, "segments[0].bind"),
    ("repeat: [{channels: x, copies: 3, spacing: 1s}]\n", 0, ""),
    ("bus: {path: /dev/fd/3}\ngateways: {broker: {tcp: '127.0.0.1:1'}}\n", 0, ""),
    *((f"{TLS_TO}'{name}'}}}}}}", 1, "gateways.nng.tls.server_name") for name in ("", ".a", "a..b")),
]


@pytest.mark.parametrize(("text", "line", "path"), BAD)
def test_a_fault_has_its_line_and_path(text: str, line: int, path: str) -> None:
    fault = fault_of(text)
    assert (fault.line, fault.path) == (line, path)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("segment: []", "segments"), ("bus: {queue: {message: 3}}", "messages"), ("segments: [{adress: x}]", "address")],
)
def test_an_unknown_key_is_refused_with_the_likely_one(text: str, wanted: str) -> None:
    assert f"{wanted}?" in fault_of(text).remedy


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


def test_other_programs_read_the_file_without_keys_and_groups(tmp_path: Path) -> None:
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
    with pytest.raises(ConfigError, match="command line: rotate"):
        read_recorder(recorder, {"rotate": "soon"})


# -- sockets, users, rules


def test_further_sockets_take_the_defaults() -> None:
    bus = settings_of(
        "bus: {path: /a, mode: 0600, dialect: broker, "
        "sockets: [{path: '@bccn'}, {path: /dev/fd/3, mode: 0666, dialect: sbus-dot, group: 0}]}"
    ).bus
    assert [(one.path, one.mode, one.group, one.dialect) for one in bus.all_sockets] == [
        ("/a", 0o600, None, "broker"),
        ("@bccn", 0o660, None, "path"),
        ("/dev/fd/3", 0o666, "0", "sbus-dot"),
    ]


def test_the_last_copy_must_come_within_the_horizon() -> None:
    text = "dedup: {horizon: %s}\nrepeat: [{channels: y, spacing: 0}, {channels: x, copies: %d, spacing: %s}]\n"
    for horizon, copies, spacing in (("2s", 2, "1999ms"), ("2s", 3, "999ms"), ("1h", 8, "60s"), ("1ms", 8, "0")):
        assert value_of(text % (horizon, copies, spacing), "repeat.1.copies") == copies
    for horizon, copies, spacing in (("2s", 2, "2s"), ("2s", 3, "1s"), ("1ms", 2, "2ms")):
        assert "repeat[1]" in fault_of(text % (horizon, copies, spacing)).reason


def load_fault(path: Path) -> None:
    """Check that a file has one fault, as a whole."""
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    (fault,) = caught.value.faults
    assert (fault.file, fault.line) == (str(path), 0)
    assert fault.remedy


def test_a_file_is_read_or_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "bccnd.yaml"
    load_fault(path)
    load_fault(tmp_path)
    path.write_bytes(b"host: gr\xfcn\n")
    load_fault(path)
    path.write_text("host: a\r\n# grün\r\nsegments: []\r\n", encoding="utf-8")
    assert load(str(path)).settings == Settings(host="a", segments=())


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


@settings(max_examples=examples(600))
@given(st.text() | YAML_ISH | DUMPED)
@example('"\\ud800": 1')
@example("a: 0x" + "f" * 5000)
@example("segments: [{port: 0x" + "f" * 5000 + "}]")
@example('integrity: {algorithm: hmac, keys: ["\\0", "\\ud800"]}')
def test_any_text_is_read_or_has_faults_that_can_be_shown(text: str) -> None:
    with suppress(ConfigError):
        read(text, PLACE)
        return
    faults(text)


# -- every number, duration and size refuses what is none, or is out of range


#: as they are written in the file
EXTREMES = (
    *(".inf", "-.inf", ".nan", "-1", "1e308", "1.0e+308", "inf", "nan", "-1s", "1e308s", "infs", "0x8000000000000000"),
    *("9" * 23, "9" * 400, "9" * 5000, f"{'9' * 23}d", f"{'9' * 400}d", f"1{'0' * 23}ms", f"{'9' * 12}GiB"),
    *("\u0663", "\u0663s", "\u0663KiB", "\u00b2", "\uff15", "[]", "{}", "''", "true"),
)


#: keys of sections and of lists of sections
NUMBER_KEYS = [
    re.sub(r"^(segments|repeat)", r"\1[0]", key.path)
    for key in keys_of_the_schema()
    if key.type in ("whole number", "number", "duration", "size")
]


@pytest.mark.parametrize("path", NUMBER_KEYS)
def test_an_extreme_value_is_a_fault_of_its_key(path: str) -> None:
    for value in EXTREMES:
        # A number that Python does not read at all is a fault of its line.
        found = faults(text_at(path, value))
        assert any(fault.path == path or (len(value) == 5000 and fault.line) for fault in found), value[:40]
        assert all(len(fault.reason) < 300 for fault in found), value[:40]
