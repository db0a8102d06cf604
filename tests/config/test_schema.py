"""The configuration: the shipped sample shows every key, good values are read, and each fault has line and remedy."""

from __future__ import annotations

import re
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.config import Configuration, RecorderSettings, SegmentSettings, Settings, load, read, read_recorder
from bccnd.config.gateway_schema import GatewaySettings
from bccnd.errors import ConfigError, Fault
from docs.reference import keys as keys_of_the_schema
from tests.config.texts import PLACE, fault_of, faults, settings_of, value_of
from tests.support import ROOT, examples, need_root, without_root

SAMPLE = ROOT / "etc/bccnd.yaml"
SAMPLE_TEXT = SAMPLE.read_text(encoding="utf-8")


def test_the_sample_shows_the_defaults() -> None:
    text, removed = re.subn(r"(?m)^ *group:.*\n", "", SAMPLE_TEXT)
    assert removed == 1
    assert read(text, str(SAMPLE)) == Configuration(Settings())


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
    monkeypatch.setattr("bccnd.config.loading.DEFAULT_PATH", str(tmp_path / "bccnd.yaml"))
    assert load(None).settings == Settings()
    (tmp_path / "bccnd.yaml").write_text("host: other\n")
    assert load(None).settings.host == "other"


# -- values

#: a template, the place of the value, and what is read there of which text
GOOD: list[tuple[str, str, dict[str, object]]] = [
    ("dedup: {expire: %s}", "dedup.expire", {"2": 2.0, "0.5": 0.5, "200ms": 0.2, '"5s"': 5.0}),
    ("max_datagram: %s", "max_datagram", {"65507": 65_507, "64000B": 64_000, "63KiB": 63 << 10}),
    ("bus: {mode: %s}", "bus.mode", {"0660": 0o660, '"0660"': 0o660, '"660"': 0o660, "0600": 0o600, "'0666'": 0o666}),
    ("metrics: {listen: %s}", "metrics.listen", {"0.0.0.0:65535": ("0.0.0.0", 65_535), '"[::1]:1"': ("::1", 1)}),
    ("metrics: {listen: %s}", "metrics.listen", {'"[fe80::1%eth0]:1"': ("fe80::1%eth0", 1)}),
    ("metrics: {listen: %s}", "metrics.listen", {"off": None, '"off"': None, "false": None, "": None}),
    ("segments: [{address: %s}]", "segments.0.address", {"10.0.0.255": "10.0.0.255", "239.1.2.3": "239.1.2.3"}),
    ("segments: [{address: %s}]", "segments.0.address", {"FF02:0:0:0:0:0:0:0BCC": "ff02::bcc"}),
    ("segments: [{bind: %s}]", "segments.0.bind", {"0.0.0.0": "0.0.0.0"}),
    ("segments: [{address: 'ff02::bcc', bind: %s}]", "segments.0.bind", {"'::'": "::", "'ff02::bcc'": "ff02::bcc"}),
    ("repeat: %s", "repeat", {"": (), "[]": (), "{}": (), "null": ()}),
    ("gateways: %s", "gateways", dict.fromkeys(["", "[]", "{}", "null", "false"], GatewaySettings())),
    ("recorder: %s", "recorder", dict.fromkeys(["", "[]", "{}", "null", "false"], RecorderSettings())),
    ("bus: {user: {rate: %s}}", "bus.user.rate", {"100": 100, "0": 0, "0.001": 0.001}),
    ("access: [{publish: %s}]", "access.0.publish", {"": None, "[]": (), "['']": ("",)}),
    ("segments: %s", "segments", {"[]": (), "[{port: 7}]": (SegmentSettings(port=7),)}),
    ("heartbeat: {interval: %s}", "heartbeat.interval", {"0": 0.0, "100ms": 0.1}),
]
#: a template, the place, part of the reason, and texts that are refused there; docs/configuration.md has the bounds
MALFORMED: list[tuple[str, str, str, list[str]]] = [
    ("dedup: {expire: %s}", "dedup.expire", "is not a duration", ["soon", "-1", ".inf", '"5"', "true", "[5]"]),
    ("max_datagram: %s", "max_datagram", "is not a size", ["big", "-1", "1.5", "true", '"65536"', "[1]"]),
    ("bus: {mode: %s}", "bus.mode", "is not a mode", ["660", "0460", '"0060"', "rw-rw----", '"1660"', "01660", "-1"]),
    ("bus: {mode: %s}", "bus.mode", "is not a mode", ["true", '""', "[0660]", "0o660"]),
    (
        "metrics: {listen: %s}",
        "metrics.listen",
        "not an address",
        ["9540", '":9540"', "localhost:1", "127.0.0.1", "[]"],
    ),
    ("metrics: {listen: %s}", "metrics.listen", "not an address", ["127.0.0.1:65536", "127.0.0.1:-1", '"127.0.0.1:"']),
    (
        "metrics: {listen: %s}",
        "metrics.listen",
        "not an address",
        ['"[fe80::1%a b]:1"', '"::1:9540"', '"[127.0.0.1]:1"'],
    ),
    (
        "gateways: {nng: {dial: ['%s']}}",
        "gateways.nng.dial[0]",
        "",
        ["tcp://[::1:1", "tcp://::1:1", "tcp://*:1", "tcp://a b:1", "tcp://u@a:1", "tcp://256.1.1.1:1", "tcp://-:1"],
    ),
    (
        "gateways: {nng: {dial: ['%s']}}",
        "gateways.nng.dial[0]",
        "",
        ["ipc:///" + "x" * 120, "abstract://" + "x" * 120, f"tcp://{'a' * 64}.b:1", "tcp://a:1/x", "tcp://a:65536"],
    ),
    (
        "gateways: {nng: {dial: ['tls+tcp://a:1'], tls: {ca: a, certificate: a, key: a, server_name: '%s'}}}",
        "gateways.nng.tls.server_name",
        "neither the name nor the address",
        ["", ".a", "a..b"],
    ),
    ("bus: {user: {rate: %s}}", "bus.user.rate", "too few", ["1.0e-300", "0.0009"]),
    ("host: %s", "host", "", ["''", "a/b", "grün", "a*"]),
    ("segments: [%s]", "segments", "two segments have", ["{}, {}", "{name: a}, {name: a, port: 1}"]),
    ("segments: [{name: %s}, {address: 'ff02::1'}]", "segments", "two segments have", ["'ff02--1#5400'"]),
    ("segments: [{address: %s}]", "segments[0].address", "not an address", ["10.0.0.256", "'ff02::bcc/64'"]),
    ("segments: [{address: %s}]", "segments[0].address", "IPv6 has no broadcast", ["'fe80::1'", "'::1'"]),
    ("segments: [{address: %s}]", "segments[0].address", "not a multicast", ["'ff02::1%eth0'", "'::ffff:239.1.2.3'"]),
    ("segments: [{bind: %s}]", "segments[0].bind", "", ["'::'", "eth0"]),
    ("segments: [{address: 'ff02::1', bind: %s}]", "segments[0].bind", "different address families", ["0.0.0.0"]),
    ("segments: [{port: %s}]", "segments[0].port", "must be", ["0", "'5400'"]),
    # What the kernel or the bus cannot be asked for is refused here, on its line.
    ('segments: [{interface: "%s"}]', "segments[0].interface", "", ["averylonginterface", "lo\\0", "\\u00e9" * 9]),
    ("segments: [{name: %s}]", "segments[0].name", "end a name in the tap", ["'a:b'", "'a|b'"]),
    ("integrity: {signers: %s}", "integrity.signers", "keys and values", ["[a]"]),
    ("integrity: {signers: {a: %s}}", "integrity.signers.a", "not []", ["[]"]),
    ("integrity: {required: %s}", "integrity.required", "true or false", ["1", "perhaps"]),
    ("heartbeat: {interval: %s}", "heartbeat.interval", "too often", ["1ms", "0.0999"]),
    ("reports: {interval: %s}", "reports.interval", "too often", ["0.1999"]),
    ('bus: {path: "%s"}', "bus.path", "", ["", "@", "a\\0b", "/" + "x" * 107]),
    (
        "bus: {%s}",
        "bus",
        "two sockets at",
        ["sockets: [{path: /a}, {path: /a}]", "path: '@a', sockets: [{path: '@a'}]"],
    ),
    ("access: [{user: %s}]", "access[0].user", "must be text", ["-1", "true"]),
    ("access: [{subscribe: [%s]}]", "access[0].subscribe[0]", "", ["7", '"a\\tb"']),
    ("recorder: {host: %s}", "recorder.host", "part of a path", ["a/b", "'..'"]),
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
    assert SegmentSettings(name="yard", address="ff02::bcc", interface="eth0").label == "yard"
    assert SegmentSettings().label == "255.255.255.255#5400"
    assert SegmentSettings(address="ff02::bcc", interface="eth0").label == "eth0/ff02--bcc#5400"
    assert SegmentSettings(interface="eth0:1|x").label == "eth0-1-x/255.255.255.255#5400"
    fault = fault_of("segments: [{address: 'ff02::bcc'}, {address: 'FF02:0::BCC'}]")
    assert (fault.path, fault.reason) == ("segments", "two segments have the name ff02--bcc#5400")


# -- faults

#: text, line, path, part of the reason, part of the remedy
BAD: list[tuple[str, int, str, str, str]] = [
    ("segment: []", 1, "segment", "unknown key", "did you mean segments?"),
    ("bus:\n  queue:\n    message: 3\n", 3, "bus.queue.message", "unknown key", "did you mean messages?"),
    ("segments:\n  - port: 5401\n  - adress: x\n", 3, "segments[1].adress", "unknown key", "did you mean address?"),
    ("access:\n- {}\n- zebra: 1\n", 3, "access[1].zebra", "unknown key", "user, group, program, publish, subscribe"),
    ("bus:\n", 1, "bus", "not ", "etc/bccnd.yaml"),
    ("bus:\n  user: 5\n", 2, "bus.user", "keys and values, not 5", "etc/bccnd.yaml"),
    ("bus:\n  group: nosuchgroup\n", 2, "bus.group", "no group is named nosuchgroup", "groupadd --system nosuchgroup"),
    ("bus:\n  sockets:\n  - mode: 0600\n", 3, "bus.sockets[0].path", "is missing", "etc/bccnd.yaml"),
    ("segments: [{name: nng}]\n", 1, "segments", "nng is the name of a link", "give this segment another name"),
    ("integrity:\n  algorithm: hmac\n", 1, "integrity", "hmac needs a key", "bccn keygen"),
    ("integrity:\n  algorithm: sig\n", 1, "integrity", "sig needs a key", "--algorithm sig"),
    ("integrity:\n  algorithm: md5\n", 2, "integrity.algorithm", "not 'md5'", "choose 'none', 'hmac'"),
    ("dedup: {late: deliver, freshness: monotonic}", 1, "dedup", "contradict each other", "set late: drop"),
    ("metrics:\n  groups: {'a b': x}\n", 2, "metrics.groups", "'a b' is not a name for a group", "letters, digits"),
    ("access: everybody\n", 1, "access", "must be a list, not 'everybody'", "etc/bccnd.yaml"),
    ("access:\n- user: nosuchuser\n", 2, "access[0].user", "no user is named nosuchuser", "useradd --system nosuch"),
    ("access:\n- program: cardsys-collector\n", 2, "access[0].program", "'cardsys-collector'", "cardsys-collect,"),
    ("access:\n- publish:\n  - a\n  - 7\n", 4, "access[0].publish[1]", "must be text, not 7", "etc/bccnd.yaml"),
    ("repeat: [{channels: x, copies: 3, spacing: 1s}]\n", 0, "", "repeat[0]: the last copy", "dedup.horizon"),
    ("gateways: {nng: {}}\n", 1, "gateways.nng", "neither listens nor dials", "set listen or dial"),
    ("gateways: {nng: {listen: [x]}}\n", 1, "gateways.nng.listen[0]", "'x' is not the URL of a link", "tls+tcp://"),
    ("gateways: {nng: {dial: ['tcp://a']}}\n", 1, "gateways.nng.dial[0]", "'tcp://a' has no port", "tcp://host:port"),
    ("gateways: {nng: {dial: ['tcp://a..b:1']}}\n", 1, "gateways.nng.dial[0]", "nor the address of a host", "relay01"),
    ("gateways: {nng: {dial: ['tcp://:1']}}\n", 1, "gateways.nng.dial[0]", "names no host to dial", "like relay01"),
    ("gateways: {nng: {dial: ['tcp://a:0']}}\n", 1, "gateways.nng.dial[0]", "names no port to dial", "like relay01"),
    ("gateways: {nng: {listen: ['tcp://[fe80::1]:1']}}\n", 1, "gateways.nng.listen[0]", "each interface", "%eth0"),
    ("gateways: {nng: {listen: ['ipc:///dev/fd/3']}}\n", 1, "gateways.nng.listen[0]", "is a descriptor", "ipc:///path"),
    ("metrics: {listen: '[fe80::1]:1'}\n", 1, "metrics.listen", "different host on each interface", "%eth0"),
    ("gateways: {nng: {dial: ['tls+tcp://a:1']}}\n", 1, "gateways.nng", "tls+tcp needs certificates", "set tls"),
    ("gateways: {nng: {dial: ['tcp://a:1', 'tcp://a:1']}}\n", 1, "gateways.nng", "is listed twice", "remove one"),
    ("gateways: {broker: {}}\n", 1, "gateways.broker", "a broker that listens nowhere", "set tcp or udp"),
    (
        "bus: {path: /dev/fd/3}\ngateways: {broker: {tcp: '127.0.0.1:1'}}\n",
        *(0, "", "/dev/fd/3 is a descriptor of the daemon alone", "list /dev/fd/3 under bus.sockets"),
    ),
    ("bus: {path: /proc/self/fd/3}\n", 1, "bus.path", "no socket can be made", "/dev/fd/3"),
    ("bus: {sockets: [{path: /dev/stdin}]}\n", 1, "bus.sockets[0].path", "no socket can be made", "/dev/fd/3"),
    ("gateways: {broker: {state: /dev/fd/3}}\n", 1, "gateways.broker.state", "/dev/fd/3 is a descriptor", "a file"),
    ("recorder: {journal: /proc/self/fd/3}\n", 1, "recorder.journal", "is a descriptor", "name a file"),
    ("recorder: {payload: maybe}\n", 1, "recorder.payload", "is not a rule for payloads", "list of rules"),
    ("recorder: {rotate_size: 1GiB}\n", 1, "recorder", "is too small for two logs", "spool_size to at least twice"),
]


@pytest.mark.parametrize(("text", "line", "path", "reason", "remedy"), BAD)
def test_a_fault_has_its_line_path_reason_and_remedy(text: str, line: int, path: str, reason: str, remedy: str) -> None:
    fault = fault_of(text)
    assert (fault.line, fault.path) == (line, path)
    assert reason in fault.reason
    assert remedy in fault.remedy


def test_lists_have_a_largest_length() -> None:
    fault = fault_of(f"repeat: [{', '.join(['{channels: x}'] * 65)}]")
    assert (fault.path, fault.reason) == ("repeat", "must have at most 64 entries or characters")


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
    with pytest.raises(ConfigError, match=r"command line: rotate: 'soon' is not a duration\n  remedy: write a number"):
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


def test_the_last_copy_must_come_within_the_horizon() -> None:
    text = "dedup: {horizon: %s}\nrepeat: [{channels: y, spacing: 0}, {channels: x, copies: %d, spacing: %s}]\n"
    for horizon, copies, spacing in (("2s", 2, "1999ms"), ("2s", 3, "999ms"), ("1h", 8, "60s"), ("1ms", 8, "0")):
        assert value_of(text % (horizon, copies, spacing), "repeat.1.copies") == copies
    for horizon, copies, spacing in (("2s", 2, "2s"), ("2s", 3, "1s"), ("1ms", 2, "2ms")):
        fault = fault_of(text % (horizon, copies, spacing))
        assert fault.reason.startswith("repeat[1]: ")
        assert "dedup.horizon" in fault.remedy


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
