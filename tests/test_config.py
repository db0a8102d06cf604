"""The configuration: the shipped sample is the documentation of every key, and every fault is told with its remedy."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from bccnd import config
from bccnd.config import (
    AccessSettings,
    BusSettings,
    Configuration,
    GatewaySettings,
    IntegritySettings,
    MetricsSettings,
    RecorderSettings,
    RepeatSettings,
    SegmentSettings,
    Settings,
    SocketSettings,
    UserSettings,
    load,
    read,
    read_recorder,
)
from bccnd.core.bccn1 import build
from bccnd.core.integrity import MIN_KEY, make_door
from bccnd.core.patterns import DIALECTS
from bccnd.core.signatures import generate, public_of
from bccnd.errors import ConfigError, Fault
from tests.support import NOBODY, ROOT, need_root, without_root

SAMPLE = ROOT / "etc/bccnd.yaml"
KEY = b"0123456789abcdef0123456789abcdef"


def faults(text: str, path: str = "/etc/bccnd/bccnd.yaml") -> list[Fault]:
    """What is wrong with a text; every fault says where, what and what to do."""
    with pytest.raises(ConfigError) as caught:
        read(text, path)
    for fault in caught.value.faults:
        assert fault.file == path
        assert fault.reason
        assert fault.remedy
        where = f"{path}:{fault.line}: " if fault.line else f"{path}: "
        assert str(fault).startswith(where)
        assert f"remedy: {fault.remedy}" in str(caught.value)
    return caught.value.faults


def fault_of(text: str) -> Fault:
    """The only thing wrong with a text."""
    (fault,) = faults(text)
    return fault


def settings_of(text: str) -> Settings:
    return read(text, "/etc/bccnd/bccnd.yaml").settings


# -- the shipped sample


def sample() -> str:
    return SAMPLE.read_text(encoding="utf-8")


def sample_without_group() -> str:
    lines = [line for line in sample().splitlines(keepends=True) if not re.match(r" *group:", line)]
    assert len(lines) == len(sample().splitlines()) - 1
    return "".join(lines)


def test_the_sample_is_in_order_but_for_a_group_that_a_host_may_not_have() -> None:
    try:
        configuration = load(str(SAMPLE))
    except ConfigError as error:
        (fault,) = error.faults
        assert (fault.path, fault.reason) == ("bus.group", "there is no group bccn")
        assert "groupadd" in fault.remedy
        assert "group: bccn" in sample().splitlines()[fault.line - 1]
    else:
        assert configuration.gids == {"bccn": grp.getgrnam("bccn").gr_gid}


def test_the_sample_says_what_the_daemon_does_without_a_file() -> None:
    configuration = read(sample_without_group(), str(SAMPLE))
    assert configuration.settings == Settings()
    assert configuration == Configuration(Settings())


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, by itself or as a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = model_in(inner)
        if found is not None:
            return found
    return None


def option_names(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every option, by its path."""
    for name, field in model.model_fields.items():
        inner = model_in(field.annotation)
        if inner is None:
            yield path + name
        else:
            yield from option_names(inner, f"{path}{name}.")


def missing_in(model: type[BaseModel], stands: Any, path: str = "") -> list[str]:
    """The keys of a section, and of those below it, that do not stand in a document."""
    missing: list[str] = []
    for name, field in model.model_fields.items():
        if name not in stands:
            missing.append(path + name)
            continue
        inner = model_in(field.annotation)
        value = stands[name]
        if inner is not None and (value in (None, []) or value is True):
            # an example of it stands there as a comment
            missing += [f"{path}{name}.{key}" for key in inner.model_fields if not re.search(rf"# .*{key}: ", sample())]
        elif inner is not None:
            missing += missing_in(inner, value[0] if isinstance(value, list) else value, f"{path}{name}.")
    return missing


def test_every_key_stands_in_the_sample() -> None:
    assert missing_in(Settings, yaml.safe_load(sample())) == ["host"]
    # The default of this one depends on the host, so it stands there as an example.
    (line,) = re.findall(r"(?m)^#host: (\S+)$", sample())
    assert settings_of(f"host: {line}").host == line


def test_this_walk_would_find_a_key_that_is_missing() -> None:
    document = yaml.safe_load(sample())
    del document["segments"][0]["port"], document["bus"]["queue"]["bytes"], document["dedup"]
    assert missing_in(Settings, document) == ["host", "segments.port", "dedup", "bus.queue.bytes"]


def test_every_key_of_the_sample_is_preceded_by_a_comment() -> None:
    lines = sample().splitlines()
    for number, line in enumerate(lines):
        if re.match(r" *-? *#?[a-z_]+:( |$)", line) and not line.lstrip().startswith("# "):
            assert "#" in lines[number - 1], f"line {number + 1} says nothing: {line}"


def test_every_default_is_in_order_itself() -> None:
    # Defaults are not validated when they are used, so they are here: written out and read again.
    defaults = Settings(host="here").model_dump()
    defaults["metrics"]["listen"] = "127.0.0.1:9540"
    defaults["segments"] = list(defaults["segments"])
    defaults["integrity"]["keys"] = list(defaults["integrity"]["keys"])
    del defaults["bus"]["group"]
    assert settings_of(yaml.safe_dump(defaults)) == Settings(host="here")


def test_an_empty_file_is_the_defaults() -> None:
    for text in ("", "# nothing\n", "---\n", "{}", "\ufeff"):
        assert settings_of(text) == Settings()


def test_without_a_file_the_defaults_are_used_and_with_one_at_the_usual_place_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(config, "DEFAULT_PATH", str(tmp_path / "bccnd.yaml"))
    assert load(None).settings == Settings()
    (tmp_path / "bccnd.yaml").write_text("host: other\n")
    assert load(None).settings.host == "other"


def test_the_first_part_of_every_name_is_the_hosts() -> None:
    assert Settings().host == socket.gethostname()


def test_the_dialects_are_those_that_there_are() -> None:
    assert set(get_args(BusSettings.model_fields["dialect"].annotation)) == set(DIALECTS)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().host = "other"


# -- values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("200ms", 0.2),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("10m", 600.0),
        ("24h", 86_400.0),
        ("7d", 604_800.0),
        ('"5s"', 5.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert settings_of(f"dedup: {{expire: {text}}}").dedup.expire == seconds


@pytest.mark.parametrize(
    "text",
    ["soon", "5 s", "5S", "-1", "-1s", "1h30m", "s", "5x", '""', '"5"', "5.s", ".5s", "1e3s", "true", "[5]", ".inf"],
)
def test_what_is_no_duration(text: str) -> None:
    fault = fault_of(f"dedup: {{expire: {text}}}")
    assert fault.path == "dedup.expire"
    assert "is no duration" in fault.reason
    assert "ms, s, m, h or d" in fault.remedy


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65_536), ("65536B", 65_536), ("64KiB", 65_536), ("4MiB", 4 << 20), ("1GiB", 1 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert settings_of(f"segments: [{{receive_buffer: {text}}}]").segments[0].receive_buffer == size


@pytest.mark.parametrize("text", ["big", "4 MiB", "4MB", "4M", "1.5MiB", "-1", "1.5", '"65536"', "true", '""', "[1]"])
def test_what_is_no_size(text: str) -> None:
    fault = fault_of(f"segments: [{{receive_buffer: {text}}}]")
    assert fault.path == "segments[0].receive_buffer"
    assert "is no size" in fault.reason
    assert "MiB" in fault.remedy


@pytest.mark.parametrize(
    ("text", "mode"),
    [("0660", 0o660), ('"0660"', 0o660), ('"660"', 0o660), ("0600", 0o600), ("'0666'", 0o666), ("0o660", None)],
)
def test_a_mode_means_the_same_with_and_without_quotes(text: str, mode: int | None) -> None:
    if mode is None:  # an octal number only in YAML 1.2; ours takes it for text
        assert fault_of(f"bus: {{mode: {text}}}").path == "bus.mode"
    else:
        assert settings_of(f"bus: {{mode: {text}}}").bus.mode == mode


@pytest.mark.parametrize(
    "text", ["660", "0460", '"0060"', "rw-rw----", '"1660"', "01660", "-1", "true", '""', "[0660]"]
)
def test_what_is_no_mode(text: str) -> None:
    fault = fault_of(f"bus: {{mode: {text}}}")
    assert fault.path == "bus.mode"
    assert "is no mode" in fault.reason
    assert '"0660"' in fault.remedy


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:9540", ("127.0.0.1", 9540)),
        ("0.0.0.0:65535", ("0.0.0.0", 65_535)),
        ('"[::1]:9540"', ("::1", 9540)),
        ("off", None),
        ('"off"', None),
        ("false", None),
        ("", None),
    ],
)
def test_metrics_can_be_listened_for_anywhere_or_not_at_all(text: str, listen: tuple[str, int] | None) -> None:
    assert settings_of(f"metrics:\n  listen: {text}\n").metrics.listen == listen


@pytest.mark.parametrize(
    "text",
    [
        "9540",
        '":9540"',
        "localhost:9540",
        "127.0.0.1",
        '"127.0.0.1:"',
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:http",
        "127.0.0.256:1",
        "true",
        "[]",
        "0",
    ],
)
def test_what_is_no_address_to_listen_on(text: str) -> None:
    fault = fault_of(f"metrics: {{listen: {text}}}")
    assert fault.path == "metrics.listen"
    assert "no address to listen on" in fault.reason
    assert "off" in fault.remedy


def test_a_segment_is_called_by_its_name_or_by_what_tells_it_from_others() -> None:
    assert SegmentSettings(name="yard").label == "yard"
    assert SegmentSettings().label == "255.255.255.255#5400"
    assert SegmentSettings(interface="eth0", port=1).label == "eth0/255.255.255.255#1"
    assert SegmentSettings(address="239.1.2.3").label == "239.1.2.3#5400"
    assert SegmentSettings(address="ff02::bcc").label == "ff02--bcc#5400"
    assert SegmentSettings(address="ff02::bcc", interface="eth0").label == "eth0/ff02--bcc#5400"
    assert SegmentSettings(interface="eth0:1|x").label == "eth0-1-x/255.255.255.255#5400"
    assert SegmentSettings(name="yard", address="ff02::bcc", interface="eth0").label == "yard"


def test_a_host_may_have_no_segment_and_many() -> None:
    assert settings_of("segments: []").segments == ()
    many = ", ".join(f"{{port: {port}}}" for port in range(1, 65))
    assert len(settings_of(f"segments: [{many}]").segments) == 64


# -- faults

BAD: list[tuple[str, int, str, str, str]] = [
    # text, line, path, part of the reason, part of the remedy
    ("segment: []", 1, "segment", "unknown key", "did you mean segments?"),
    ("\n\nbus:\n  pth: /x\n", 4, "bus.pth", "unknown key", "did you mean path?"),
    ("bus:\n  queue:\n    message: 3\n", 3, "bus.queue.message", "unknown key", "did you mean messages?"),
    ("segments:\n  - port: 5401\n  - adress: x\n", 3, "segments[1].adress", "unknown key", "did you mean address?"),
    ("metrics:\n  zebra: 1\n", 2, "metrics.zebra", "unknown key", "known keys here: listen, groups"),
    ("dedup:\n  horizon: soon\n", 2, "dedup.horizon", "'soon' is no duration", "ms, s, m, h or d"),
    ("dedup:\n  horizon: 0\n", 2, "dedup.horizon", "greater than 0", "etc/bccnd.yaml"),
    ("dedup:\n  horizon: 2h\n", 2, "dedup.horizon", "less than or equal to 3600", "etc/bccnd.yaml"),
    ("dedup:\n  sanity: 15\n", 2, "dedup.sanity", "greater than or equal to 16, not 15", "etc/bccnd.yaml"),
    ("dedup:\n  sanity: 1024.0\n", 2, "dedup.sanity", "a whole number, not 1024.0", "etc/bccnd.yaml"),
    ("dedup:\n  late: sometimes\n", 2, "dedup.late", "'drop' or 'deliver', not 'sometimes'", "choose 'drop'"),
    ("max_datagram: lots\n", 1, "max_datagram", "'lots' is no size", "KiB"),
    ("max_datagram: 1399\n", 1, "max_datagram", "1400", "etc/bccnd.yaml"),
    ("max_datagram: 1MiB\n", 1, "max_datagram", "65507", "etc/bccnd.yaml"),
    ("bus:\n  mode: 660\n", 2, "bus.mode", "660 is no mode", '"0660"'),
    ("bus:\n  path: ''\n", 2, "bus.path", "at least 1 character", "etc/bccnd.yaml"),
    ("bus:\n  path: 7\n", 2, "bus.path", "must be text, not 7", "etc/bccnd.yaml"),
    ("bus:\n  dialect: regex\n", 2, "bus.dialect", "'sbus-dot'", "choose 'path'"),
    ("bus: []\n", 1, "bus", "not []", "etc/bccnd.yaml"),
    ("bus:\n", 1, "bus", "not ", "etc/bccnd.yaml"),
    ("bus:\n  group: nosuchgroup\n", 2, "bus.group", "there is no group nosuchgroup", "groupadd --system nosuchgroup"),
    ("segments:\n- {address: 10.0.0.256}\n", 2, "segments[0].address", "no address", "255.255.255.255"),
    ("segments:\n- {address: localhost}\n", 2, "segments[0].address", "no address", "255.255.255.255"),
    ("segments:\n- {bind: '::'}\n", 2, "segments[0].bind", "of different families", "leave out 'bind'"),
    ("segments:\n- {bind: eth0}\n", 2, "segments[0].bind", "no address", "255.255.255.255"),
    ("segments:\n- {address: 'fe80::1'}\n", 2, "segments[0].address", "IPv6 has no broadcast", "ff02::bcc"),
    ("segments:\n- {address: 'ff02::1%eth0'}\n", 2, "segments[0].address", "no multicast group", "'interface'"),
    ("segments:\n- {address: '::'}\n", 2, "segments[0].address", "IPv6 has no broadcast", "ff02::bcc"),
    ("segments:\n- {address: '::1'}\n", 2, "segments[0].address", "IPv6 has no broadcast", "ff02::bcc"),
    ("segments:\n- {address: '::ffff:239.1.2.3'}\n", 2, "segments[0].address", "no multicast group", "ff02::bcc"),
    ("segments:\n- {address: 'ff02::bcc/64'}\n", 2, "segments[0].address", "no address", "ff02::bcc"),
    ("segments:\n- {address: '[ff02::bcc]'}\n", 2, "segments[0].address", "no address", "ff02::bcc"),
    ("segments:\n- {address: 239.1.2.3, bind: '::'}\n", 2, "segments[0].bind", "different families", "leave out"),
    ("segments:\n- {address: 'ff02::1', bind: 0.0.0.0}\n", 2, "segments[0].bind", "different families", "leave out"),
    ("segments:\n- {hop_limit: 256}\n", 2, "segments[0].hop_limit", "less than or equal to 255", "etc/bccnd.yaml"),
    ("segments:\n- {hop_limit: 0}\n", 2, "segments[0].hop_limit", "greater than or equal to 1", "etc/bccnd.yaml"),
    ("names: perl\n", 1, "names", "'any' or 'perl-safe', not 'perl'", "choose 'any'"),
    ("segments:\n- port: 0\n", 2, "segments[0].port", "greater than or equal to 1, not 0", "etc/bccnd.yaml"),
    ("segments:\n- port: 65536\n", 2, "segments[0].port", "65535, not 65536", "etc/bccnd.yaml"),
    ("segments:\n- port: '5400'\n", 2, "segments[0].port", "a whole number, not '5400'", "etc/bccnd.yaml"),
    ("segments:\n- interface: averylonginterface\n", 2, "segments[0].interface", "averylonginterface", ""),
    ("segments: {port: 1}\n", 1, "segments", "not {'port': 1}", "etc/bccnd.yaml"),
    ("segments:\n- {}\n- {}\n", 1, "segments", "two segments are called 255.255.255.255#5400", "a name"),
    ("segments: [{name: a}, {name: a, port: 1}]\n", 1, "segments", "two segments are called a", "of its own"),
    ("host: a/b\n", 1, "host", "'a/b' cannot be part of a name", "letters, digits"),
    ("host: ''\n", 1, "host", "at least 1 character", "etc/bccnd.yaml"),
    ("host: grün\n", 1, "host", "cannot be part of a name", "letters, digits"),
    ("host: 'a b'\n", 1, "host", "cannot be part of a name", "letters, digits"),
    ("host: a*\n", 1, "host", "cannot be part of a name", "letters, digits"),
    ("host: " + "a" * 65, 1, "host", "at most 64 characters", "etc/bccnd.yaml"),
    ("integrity:\n  algorithm: hmac\n", 1, "integrity", "hmac needs a key", "bccn keygen"),
    ("integrity:\n  algorithm: sig\n", 1, "integrity", "sig needs a key", "--algorithm sig"),
    ("integrity:\n  algorithm: md5\n", 2, "integrity.algorithm", "not 'md5'", "choose 'none', 'hmac'"),
    ("integrity:\n  signers: {a: []}\n", 2, "integrity.signers.a", "not []", "etc/bccnd.yaml"),
    ("integrity:\n  signers: [a]\n", 2, "integrity.signers", "keys and values, not ['a']", "etc/bccnd.yaml"),
    ("integrity:\n  keys: key\n", 2, "integrity.keys", "not 'key'", "etc/bccnd.yaml"),
    ("integrity:\n  required: perhaps\n", 2, "integrity.required", "true or false", "etc/bccnd.yaml"),
    ("dedup: {late: deliver, freshness: monotonic}", 1, "dedup", "contradict each other", "set late: drop"),
    ("metrics:\n  listen: here\n", 2, "metrics.listen", "'here' is no address to listen on", "127.0.0.1:9540, or off"),
    ("metrics:\n  groups: {'a b': x}\n", 2, "metrics.groups", "'a b' is no name for a group", "letters, digits"),
    ("heartbeat:\n  interval: 1ms\n", 2, "heartbeat.interval", "every 0.001 s is too often", "0 for none"),
    ("heartbeat:\n  interval: 2h\n", 2, "heartbeat.interval", "less than or equal to 3600", "etc/bccnd.yaml"),
    ("heartbeat:\n  interval: often\n", 2, "heartbeat.interval", "'often' is no duration", "ms, s, m, h or d"),
    ("heartbeat:\n  dead_after: 1001\n", 2, "heartbeat.dead_after", "less than or equal to 1000", "etc/bccnd.yaml"),
    ("heartbeat:\n  dead_after: 1.5\n", 2, "heartbeat.dead_after", "a whole number, not 1.5", "etc/bccnd.yaml"),
    ("heartbeat:\n  every: 5s\n", 2, "heartbeat.every", "unknown key", "known keys here: interval, dead_after"),
    ("heartbeat: 5s\n", 1, "heartbeat", "keys and values, not '5s'", "etc/bccnd.yaml"),
    ("heartbeat:\n  dead_after: 0\n", 2, "heartbeat.dead_after", "greater than or equal to 1", "etc/bccnd.yaml"),
    ("segments:\n- name: 'a:b'\n", 2, "segments[0].name", "'a:b' holds : or |", "use other characters"),
    ("segments:\n- {name: 'a|b'}\n", 2, "segments[0].name", "end a name in the tap", "use other characters"),
    ("segments: [{name: 'ff02--1#5400'}, {address: 'ff02::1'}]\n", 1, "segments", "two segments are called", "a name"),
    ("bus:\n  path: '@'\n", 2, "bus.path", "an abstract address needs a name", "@name"),
    ("bus:\n  path: '@" + "x" * 108 + "'\n", 2, "bus.path", "at most 107 bytes", "@name"),
    ("bus:\n  path: /" + "x" * 107 + "\n", 2, "bus.path", "longer than 107 bytes", "/run/bccnd/bus.sock"),
    ("bus:\n  path: /dev/unix/abstract/0\n", 2, "bus.path", "'0' are no hexadecimal digits", "/dev/fd/3"),
    ("bus:\n  sockets:\n  - mode: 0600\n", 3, "bus.sockets[0].path", "must be there", "etc/bccnd.yaml"),
    ("bus:\n  sockets:\n  - path: ''\n", 3, "bus.sockets[0].path", "at least 1 character", "etc/bccnd.yaml"),
    ("bus:\n  sockets:\n  - path: '@'\n", 3, "bus.sockets[0].path", "needs a name", "@name"),
    ("bus:\n  sockets:\n  - path: 3\n", 3, "bus.sockets[0].path", "must be text, not 3", "etc/bccnd.yaml"),
    ("bus:\n  sockets:\n  - path: /a\n    pth: /b\n", 4, "bus.sockets[0].pth", "unknown key", "did you mean path?"),
    ("bus:\n  sockets:\n  - path: /a\n    mode: 660\n", 4, "bus.sockets[0].mode", "660 is no mode", '"0660"'),
    ("bus:\n  sockets:\n  - path: /a\n    group: nosuch\n", 4, "bus.sockets[0].group", "no group nosuch", "groupadd"),
    ("bus:\n  sockets:\n  - path: /a\n    dialect: x\n", 4, "bus.sockets[0].dialect", "'broker', not 'x'", "choose"),
    (
        "bus:\n  sockets:\n  - path: /a\n    user: {}\n",
        4,
        "bus.sockets[0].user",
        "unknown key",
        "known keys here: path",
    ),
    ("bus:\n  sockets:\n  - path: /a\n  - {path: /b, mode: 1}\n", 4, "bus.sockets[1].mode", "1 is no mode", '"0660"'),
    ("bus:\n  sockets: /a\n", 2, "bus.sockets", "must be a list, not '/a'", "etc/bccnd.yaml"),
    ("bus:\n  sockets: {path: /a}\n", 2, "bus.sockets", "must be a list", "etc/bccnd.yaml"),
    ("bus:\n  sockets: [/a]\n", 2, "bus.sockets[0]", "keys and values, not '/a'", "etc/bccnd.yaml"),
    ("bus:\n  sockets: [{path: /a}, {path: /a}]\n", 1, "bus", "two sockets at /a", "a path of its own"),
    ("bus:\n  path: '@a'\n  sockets: [{path: '@a'}]\n", 1, "bus", "two sockets at @a", "a path of its own"),
    ("bus:\n  user: 5\n", 2, "bus.user", "keys and values, not 5", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    clients: 0\n", 3, "bus.user.clients", "greater than or equal to 1", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    clients: 100001\n", 3, "bus.user.clients", "equal to 100000", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    clinets: 1\n", 3, "bus.user.clinets", "unknown key", "did you mean clients?"),
    ("bus:\n  user:\n    subscriptions: 0\n", 3, "bus.user.subscriptions", "or equal to 1", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    subscriptions: many\n", 3, "bus.user.subscriptions", "a whole number", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    queue_bytes: 4095\n", 3, "bus.user.queue_bytes", "equal to 4096", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    queue_bytes: 17GiB\n", 3, "bus.user.queue_bytes", "17179869184", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    queue_bytes: much\n", 3, "bus.user.queue_bytes", "'much' is no size", "KiB"),
    ("bus:\n  user:\n    rate: -1\n", 3, "bus.user.rate", "not -1", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    rate: 1.0e+10\n", 3, "bus.user.rate", "less than or equal to 1000000000", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    rate: 10/s\n", 3, "bus.user.rate", "a valid number, not '10/s'", "etc/bccnd.yaml"),
    ("bus:\n  user:\n    rate: .nan\n", 3, "bus.user.rate", "not nan", "etc/bccnd.yaml"),
    ("bus:\n  patience: 2h\n", 2, "bus.patience", "less than or equal to 3600", "etc/bccnd.yaml"),
    ("bus:\n  patience: long\n", 2, "bus.patience", "'long' is no duration", "ms, s, m, h or d"),
    ("bus:\n  patience: -1\n", 2, "bus.patience", "-1 is no duration", "ms, s, m, h or d"),
    ("access: {user: root}\n", 1, "access", "must be a list", "etc/bccnd.yaml"),
    ("access: everybody\n", 1, "access", "must be a list, not 'everybody'", "etc/bccnd.yaml"),
    ("access: [root]\n", 1, "access[0]", "keys and values, not 'root'", "etc/bccnd.yaml"),
    ("access:\n- usr: root\n", 2, "access[0].usr", "unknown key", "did you mean user?"),
    ("access:\n- {}\n- zebra: 1\n", 3, "access[1].zebra", "unknown key", "user, group, program, publish, subscribe"),
    ("access:\n- user: nosuchuser\n", 2, "access[0].user", "there is no user nosuchuser", "useradd --system nosuch"),
    ("access:\n- user: -1\n", 2, "access[0].user", "not -1", "etc/bccnd.yaml"),
    ("access:\n- user: true\n", 2, "access[0].user", "not True", "etc/bccnd.yaml"),
    ("access:\n- group: nosuchgroup\n", 2, "access[0].group", "there is no group nosuchgroup", "groupadd"),
    ("access:\n- program: ''\n", 2, "access[0].program", "must not be empty", "etc/bccnd.yaml"),
    (
        "access:\n- program: cardsys-collector\n",
        2,
        "access[0].program",
        "at most, and 'cardsys-col",
        "write cardsys-collect",
    ),
    ("access:\n- program: 7\n", 2, "access[0].program", "must be text, not 7", "etc/bccnd.yaml"),
    ("access:\n- publish: a/\n", 2, "access[0].publish", "must be a list, not 'a/'", "etc/bccnd.yaml"),
    ("access:\n- publish: {a: b}\n", 2, "access[0].publish", "must be a list", "etc/bccnd.yaml"),
    ("access:\n- publish:\n  - a\n  - 7\n", 4, "access[0].publish[1]", "must be text, not 7", "etc/bccnd.yaml"),
    ("access:\n- subscribe: [7]\n", 2, "access[0].subscribe[0]", "must be text, not 7", "etc/bccnd.yaml"),
    ('access:\n- subscribe: ["a\\tb"]\n', 2, "access[0].subscribe[0]", "cannot be printed", "plain text"),
    ("access:\n- tap: 1\n", 2, "access[0].tap", "true or false, not 1", "etc/bccnd.yaml"),
    ("access:\n- tag: perhaps\n", 2, "access[0].tag", "true or false, not 'perhaps'", "etc/bccnd.yaml"),
    ("repeat: [{copies: 2}]\n", 1, "repeat[0].channels", "must be there", "etc/bccnd.yaml"),
    ("repeat: [{channels: x, copies: 1}]\n", 1, "repeat[0].copies", "greater than or equal to 2", "etc/bccnd.yaml"),
    ("repeat: [{channels: x, copies: 9}]\n", 1, "repeat[0].copies", "less than or equal to 8", "etc/bccnd.yaml"),
    ("repeat: [{channels: x, spacing: 61s}]\n", 1, "repeat[0].spacing", "less than or equal to 60", "etc/bccnd.yaml"),
    ("repeat: [{channels: 7}]\n", 1, "repeat[0].channels", "must be text, not 7", "etc/bccnd.yaml"),
    ('repeat: [{channels: "a\\tb"}]\n', 1, "repeat[0].channels", "cannot be printed", "plain text"),
    ("repeat: {channels: x}\n", 1, "repeat", "must be a list", "etc/bccnd.yaml"),
    ("repeat: [{channels: x, chanels: y}]\n", 1, "repeat[0].chanels", "unknown key", "did you mean channels?"),
    ("repeat: [{channels: x, copies: 3, spacing: 1s}]\n", 0, "", "repeat[0]: the last copy", "dedup.horizon"),
    ("gateways: {nng: {}}\n", 1, "gateways.nng", "a link that neither listens nor dials", "set listen or dial"),
    ("gateways: {nng: {listen: [x]}}\n", 1, "gateways.nng.listen[0]", "'x' is no place for a link", "tls+tcp://"),
    ("gateways: {nng: {dial: ['tcp://a']}}\n", 1, "gateways.nng.dial[0]", "'tcp://a' names no port", "tcp://host:port"),
    ("gateways: {nng: {dial: ['tls+tcp://a:1']}}\n", 1, "gateways.nng", "tls+tcp needs certificates", "set tls"),
    ("gateways: {nng: {dial: ['tcp://a:1', 'tcp://a:1']}}\n", 1, "gateways.nng", "stands there twice", "leave one"),
    ("gateways: {broker: {}}\n", 1, "gateways.broker", "a broker that listens nowhere", "set tcp or udp"),
    ("segments: [{name: nng}]\n", 1, "segments", "nng is what links are called", "give this segment another name"),
    ("recorder: {payload: maybe}\n", 1, "recorder.payload", "does not say what is kept", "list of rules"),
    ("recorder: {payload: [{channels: x}]}\n", 1, "recorder.payload[0].payload", "must be there", "etc/bccnd.yaml"),
    ("recorder: {payload: [{payload: x}]}\n", 1, "recorder.payload[0].payload", "'hash' or 'omit'", "choose 'record'"),
    ("recorder: {host: a/b}\n", 1, "recorder.host", "cannot be part of a path", "letters, digits"),
    ("recorder: {rotate: 0}\n", 1, "recorder.rotate", "greater than or equal to 1", "etc/bccnd.yaml"),
    ("recorder: {rotate_size: 1GiB}\n", 1, "recorder", "does not hold two logs", "spool_size to twice rotate_size"),
    ("recorder: {keep: {sise: 1}}\n", 1, "recorder.keep.sise", "unknown key", "did you mean size?"),
    ("recorder: {metrics: {liste: off}}\n", 1, "recorder.metrics.liste", "unknown key", "did you mean listen?"),
    ("recorder:\n  metrics:\n    zebra: 1\n", 3, "recorder.metrics.zebra", "unknown key", "known keys here: listen"),
    ("\nhost: a\nhost: b\n", 3, "", "the key host stands twice", "that line"),
    ("bus:\n  queue: {bytes: 1, bytes: 2}\n", 2, "", "the key bytes stands twice", "that line"),
    ("segments:\n- port: 1\n  port: 2\n", 3, "", "the key port stands twice", "that line"),
    ("host: [\n", 2, "", "expected the node content", "indentation"),
    ("host: a\n  b: c\n", 2, "", "mapping values are not allowed here", "indentation"),
    ("host: a\n\tb: c\n", 2, "", "cannot start any token", "indentation"),
    ("a: *b\n", 1, "", "undefined alias", "indentation"),
    ("host: a\n---\nhost: b\n", 2, "", "another document", "indentation"),
    ("host: \x01\n", 0, "", "not allowed", "UTF-8"),
    ("- a\n- b\n", 1, "", "not a list of keys and values", "etc/bccnd.yaml"),
    ("just text", 1, "", "not a list of keys and values", "etc/bccnd.yaml"),
    ("false", 1, "", "not a list of keys and values", "etc/bccnd.yaml"),
    ("a: !!python/object:os.system x\n", 1, "", "could not determine a constructor", "indentation"),
    ("a: " + "[" * 30 + "]" * 30, 1, "", "nested too deep", "indentation"),
    ("a: &a [*a]", 1, "", "nested too deep", "indentation"),
]


@pytest.mark.parametrize(("text", "line", "path", "reason", "remedy"), BAD)
def test_a_fault_is_told_with_its_line_path_reason_and_remedy(
    text: str, line: int, path: str, reason: str, remedy: str
) -> None:
    fault = fault_of(text)
    assert (fault.line, fault.path) == (line, path)
    assert reason in fault.reason
    assert remedy in fault.remedy


@pytest.mark.parametrize("text", [text for text, *_ in BAD])
def test_no_fault_speaks_of_how_the_file_was_read(text: str) -> None:
    # Plain words only: a list is a list, and the names of Python's types and of its libraries are no help.
    told = str(fault_of(text)).lower()
    assert not re.search(r"tuple|\bdict|pydantic|value error|type=|\bnone\b(?!')|instance of", told.split("remedy:")[0])


def test_all_faults_are_told_at_once() -> None:
    text = (
        "hots: a\n"
        "segments:\n"
        "  - port: 0\n"
        "    address: here\n"
        "  - interfce: eth0\n"
        "dedup:\n"
        "  horizon: soon\n"
        "bus:\n"
        "  mode: 1\n"
        "  queue:\n"
        "    bytes: some\n"
        "metrics: {listen: there}\n"
        "gateways: {ngn: {}}\n"
    )
    assert sorted((fault.line, fault.path) for fault in faults(text)) == [
        (1, "hots"),
        (3, "segments[0].port"),
        (4, "segments[0].address"),
        (5, "segments[1].interfce"),
        (7, "dedup.horizon"),
        (9, "bus.mode"),
        (11, "bus.queue.bytes"),
        (12, "metrics.listen"),
        (13, "gateways.ngn"),
    ]


@pytest.mark.parametrize("value", ["", "[]", "{}", "null", "false"])
def test_what_is_or_was_reserved_may_stand_there_empty(value: str) -> None:
    text = "".join(f"{key}: {value}\n" for key in ("gateways", "recorder"))
    settings = settings_of(text + "heartbeat: {interval: 0, dead_after: 5}\n")
    assert settings.gateways == GatewaySettings()
    assert settings.recorder == RecorderSettings()


# -- the recorder


def test_the_recorders_section_in_few_words() -> None:
    recorder = settings_of("recorder: {journal: /var/lib/bccnd/journal, rotate: 60s, payload: true}").recorder
    assert recorder == RecorderSettings()


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("true", [("", "record")]),
        ("false", [("", "omit")]),
        ("hash", [("", "hash")]),
        ("[]", []),
        ('[{channels: "door/", payload: hash}, {payload: omit}]', [("door/", "hash"), ("", "omit")]),
    ],
)
def test_what_is_kept_of_payloads(text: str, rules: list[tuple[str, str]]) -> None:
    found = settings_of(f"recorder: {{payload: {text}}}").recorder.payload
    assert [(rule.channels, rule.payload) for rule in found] == rules


def test_who_is_not_the_daemon_reads_the_file_without_keys_and_groups(tmp_path: Path) -> None:
    file = tmp_path / "bccnd.yaml"
    file.write_text("integrity: {algorithm: hmac, keys: [secret]}\nbus: {group: nosuchgroup}\nrecorder: {rotate: 7}\n")
    assert load(str(file), resolve=False).settings.recorder.rotate == 7
    with pytest.raises(ConfigError):
        load(str(file))


def test_a_command_line_goes_before_the_file() -> None:
    settings = settings_of('recorder: {journal: /a, rotate: 5s, metrics: {listen: "127.0.0.1:9541"}}').recorder
    chosen = read_recorder(settings, {"journal": "/b", "payload": "hash", "rotate": "7s"})
    assert (chosen.journal, chosen.rotate, chosen.metrics.listen) == ("/b", 7.0, ("127.0.0.1", 9541))
    assert [rule.payload for rule in chosen.payload] == ["hash"]
    with pytest.raises(ConfigError, match=r"command line: rotate: 'soon' is no duration\n  remedy: write a number"):
        read_recorder(settings, {"rotate": "soon"})


def test_a_known_group_is_resolved() -> None:
    group = grp.getgrgid(os.getegid())
    configuration = read(f"bus: {{group: {group.gr_name}}}", "x")
    assert configuration.gids == {group.gr_name: group.gr_gid}


# -- sockets, users and rules


def test_further_sockets_are_what_they_say_and_else_as_by_default() -> None:
    text = (
        "bus:\n"
        "  path: /a\n"
        "  mode: 0600\n"
        "  dialect: broker\n"
        "  sockets:\n"
        "  - path: '@bccn'\n"
        "  - {path: /dev/fd/3, mode: 0666, dialect: sbus-dot, group: 0}\n"
    )
    bus = settings_of(text).bus
    assert bus.sockets == (
        SocketSettings(path="@bccn"),
        SocketSettings(path="/dev/fd/3", mode=0o666, dialect="sbus-dot", group="0"),
    )
    assert [(one.path, one.mode, one.group, one.dialect) for one in bus.all_sockets] == [
        ("/a", 0o600, None, "broker"),
        ("@bccn", 0o660, None, "path"),
        ("/dev/fd/3", 0o666, "0", "sbus-dot"),
    ]


@pytest.mark.parametrize("key", ["sockets", "access"])
@pytest.mark.parametrize("value", ["", "[]", "{}", "null"])
def test_there_need_be_no_further_socket_and_no_rule(key: str, value: str) -> None:
    text = f"access: {value}\n" if key == "access" else f"bus:\n  sockets: {value}\n"
    assert settings_of(text) == Settings()


@pytest.mark.parametrize(
    "path",
    ["@bccn", "@" + "x" * 107, "/dev/unix/abstract/0062", "/dev/fd/0", "/dev/fd/31", "bus.sock", "/" + "x" * 106],
)
def test_a_socket_may_be_anywhere_that_the_kernel_has(path: str) -> None:
    assert settings_of(f"bus: {{path: '{path}'}}").bus.path == path
    assert settings_of(f"bus: {{sockets: [{{path: '{path}'}}]}}").bus.sockets[0].path == path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("@" + "a" * 107, "/dev/unix/abstract/00" + "61" * 107),
        ("/dev/unix/abstract/00ab", "/dev/unix/abstract/00AB"),
        ("/dev/fd/3", "/dev/fd/03"),
    ],
    ids=["abstract", "hexadecimal", "descriptor"],
)
def test_one_place_spelled_twice_is_one_place(one: str, other: str) -> None:
    # The second socket could not be opened, and that must not be found out at the start.
    fault = fault_of(f"bus: {{path: '{one}', sockets: [{{path: '{other}'}}]}}")
    assert "two sockets at" in fault.reason


MANY = {
    "bus.sockets": f"bus: {{sockets: [{', '.join(f'{{path: /s{number}}}' for number in range(17))}]}}",
    "access": f"access: [{', '.join(['{}'] * 1001)}]",
    "access[0].publish": f"access: [{{publish: [{', '.join('x' * 1001)}]}}]",
    "access[0].subscribe": f"access: [{{subscribe: [{', '.join('x' * 1001)}]}}]",
    "access[0].program": f"access: [{{program: {'x' * 65}}}]",
    "repeat": f"repeat: [{', '.join(['{channels: x}'] * 65)}]",
}


@pytest.mark.parametrize("path", MANY)
def test_lists_are_no_longer_than_they_need_be(path: str) -> None:
    fault = fault_of(MANY[path])
    assert fault.path == path
    assert "at most" in fault.reason


@pytest.mark.parametrize("path", MANY)
def test_what_is_too_many_or_too_long_is_told_in_plain_words(path: str) -> None:
    assert not re.search("(?i)tuple|after validation", fault_of(MANY[path]).reason)


def test_what_a_user_may_take_up_can_be_set_one_by_one() -> None:
    user = settings_of("bus: {user: {clients: 3, queue_bytes: 4KiB, rate: 0.5}}").bus.user
    assert user == UserSettings(clients=3, subscriptions=65_536, queue_bytes=4096, rate=0.5)
    assert settings_of("bus: {user: {rate: 100}}").bus.user.rate == 100


@pytest.mark.parametrize("rate", ["1.0e-7", "1.0e-300"])
def test_a_rate_that_nobody_lives_to_see_is_refused(rate: str) -> None:
    # The wait for the next message would be longer than the kernel can wait, and the daemon ends of it.
    assert fault_of(f"bus: {{user: {{rate: {rate}}}}}").path == "bus.user.rate"


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("200ms", 0.2), ("5s", 5.0), ("1h", 3600.0)])
def test_patience_may_last_or_not(text: str, seconds: float) -> None:
    assert settings_of(f"bus: {{patience: {text}}}").bus.patience == seconds


def test_rules_keep_their_order_and_say_nothing_of_what_they_do_not_name() -> None:
    text = (
        "access:\n"
        "- {user: root, program: cardsys-relay, publish: [cardsys/, '!'], tap: true}\n"
        "- {group: 0, subscribe: [''], tag: false}\n"
        "- {publish: []}\n"
        "- {}\n"
    )
    assert settings_of(text).access == (
        AccessSettings(user="root", program="cardsys-relay", publish=("cardsys/", "!"), tap=True),
        AccessSettings(group="0", subscribe=("",), tag=False),
        AccessSettings(publish=()),
        AccessSettings(),
    )


def test_no_pattern_is_something_else_than_no_word_of_patterns() -> None:
    assert settings_of("access:\n- publish: []\n").access[0].publish == ()
    assert settings_of("access:\n- publish:\n").access[0].publish is None
    assert settings_of("access:\n- tap:\n").access[0].tap is None


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


@pytest.mark.parametrize("key", ["access: [{user: %s}]", "access: [{group: %s}]", "bus: {group: %s}"])
@pytest.mark.parametrize(
    "number",
    ["'\u00b2'", "'4294967295'", "4294967295", "'" + "9" * 20 + "'", "'" + "9" * 5000 + "'"],
    ids=["superscript", "the one that stands for none", "the same as a number", "20 digits", "5000 digits"],
)
def test_a_number_that_no_user_or_group_can_have_is_refused_in_plain_words(key: str, number: str) -> None:
    # What the kernel does not take would be found out by whoever opens the socket.
    fault = fault_of(key % number)
    assert fault.path.endswith(("user", "group"))
    assert "Value error" not in fault.reason


def test_channel_groups_are_few() -> None:
    many = ", ".join(f"g{number}: x" for number in range(65))
    assert fault_of(f"metrics: {{groups: {{{many}}}}}").path == "metrics.groups"
    assert isinstance(MetricsSettings().groups, dict)


# -- files


def load_fault(path: Path) -> Fault:
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    (fault,) = caught.value.faults
    assert (fault.file, fault.line) == (str(path), 0)
    return fault


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    fault = load_fault(tmp_path / "nowhere.yaml")
    assert "No such file" in fault.reason
    assert "--config" in fault.remedy


def test_a_file_that_is_a_directory(tmp_path: Path) -> None:
    assert "Is a directory" in load_fault(tmp_path).reason


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "bccnd.yaml"
    path.write_bytes(b"host: gr\xfcn\n")
    fault = load_fault(path)
    assert "not UTF-8 at byte 8" in fault.reason
    assert "UTF-8" in fault.remedy


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    path = folder / "bccnd.yaml"
    path.write_text("host: a\n")
    path.chmod(0)
    # The way there must be open to whoever this goes on as.
    opened = [
        one for one in folder.parents if one.stat().st_uid == os.geteuid() and one.stat().st_mode & 0o777 == 0o700
    ]
    for one in opened:
        one.chmod(0o711)
    try:
        with without_root(folder):
            fault = load_fault(path)
    finally:
        for one in opened:
            one.chmod(0o700)
    assert "Permission denied" in fault.reason
    assert "readable" in fault.remedy


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bccnd.yaml"
    path.write_text("host: a\r\n# grün\r\nsegments: []\r\n", encoding="utf-8")
    assert load(str(path)).settings == Settings(host="a", segments=())


# -- keys


def key_file(folder: Path, content: bytes = KEY, mode: int = 0o600, name: str = "key") -> Path:
    path = folder / name
    path.write_bytes(content)
    path.chmod(mode)
    return path


def with_keys(*paths: Path | str) -> Configuration:
    names = ", ".join(f"'{path}'" for path in paths)
    return read(f"integrity:\n  algorithm: hmac\n  keys: [{names}]\n", "/etc/bccnd/bccnd.yaml")


def key_fault(path: Path) -> Fault:
    fault = fault_of(f"integrity:\n  algorithm: hmac\n  keys: ['{path}']\n")
    assert (fault.line, fault.path) == (3, "integrity.keys[0]")
    assert str(path) in fault.reason
    assert KEY.decode() not in str(fault)
    return fault


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_key_is_the_files_bytes_without_the_line_end(tmp_path: Path, end: bytes) -> None:
    assert with_keys(key_file(tmp_path, KEY + end)).keys == (KEY,)
    binary = b"\x00\xff \n" * 5 + b"x"
    assert with_keys(key_file(tmp_path, binary + end)).keys == (binary,)


def test_keys_keep_their_order_because_the_first_one_signs(tmp_path: Path) -> None:
    names = "cab"
    paths = [key_file(tmp_path, name.encode() * 32, name=name) for name in names]
    assert with_keys(*paths).keys == tuple(name.encode() * 32 for name in names)


def test_a_relative_name_begins_at_the_folder_of_the_configuration(tmp_path: Path) -> None:
    key_file(tmp_path)
    path = tmp_path / "bccnd.yaml"
    path.write_text("integrity: {algorithm: hmac, keys: [key]}\n")
    assert load(str(path)).keys == (KEY,)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_for_its_owner_only_is_fine(tmp_path: Path, mode: int) -> None:
    assert with_keys(key_file(tmp_path, mode=mode)).keys == (KEY,)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610, 0o444, 0o441])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, mode=mode)
    fault = key_fault(path)
    assert f"mode {mode:04o}" in fault.reason
    assert "others can read it" in fault.reason
    assert fault.remedy == f"chmod 600 {path}"


@pytest.mark.root
def test_a_credential_of_systemd_is_fine(tmp_path: Path) -> None:
    need_root("such a file belongs to root")
    assert with_keys(key_file(tmp_path, mode=0o440)).keys == (KEY,)


@pytest.mark.root
def test_a_credential_must_belong_to_root(tmp_path: Path) -> None:
    need_root("only root can give a file away")
    path = key_file(tmp_path, mode=0o440)
    os.chown(path, NOBODY, -1)
    assert "mode 0440" in key_fault(path).reason


@pytest.mark.root
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    need_root("only root can give a file away")
    path = key_file(tmp_path)
    os.chown(path, NOBODY, -1)
    fault = key_fault(path)
    assert f"belongs to uid {NOBODY}" in fault.reason
    assert fault.remedy == f"chown {os.geteuid()} {path}"


@pytest.mark.parametrize("size", [0, 1, MIN_KEY - 1])
def test_a_key_that_is_too_short_is_refused(tmp_path: Path, size: int) -> None:
    fault = key_fault(key_file(tmp_path, b"x" * size + b"\n"))
    assert f"holds {size} bytes" in fault.reason
    assert "keygen" in fault.remedy


def test_the_shortest_key_is_fine_and_some_other_large_file_is_no_key(tmp_path: Path) -> None:
    assert with_keys(key_file(tmp_path, b"x" * MIN_KEY)).keys == (b"x" * MIN_KEY,)
    assert "bytes" in key_fault(key_file(tmp_path, b"x" * 100_000)).reason


def test_a_key_that_is_missing_is_refused(tmp_path: Path) -> None:
    fault = key_fault(tmp_path / "nowhere")
    assert "No such file" in fault.reason
    assert "keygen" in fault.remedy


def test_a_directory_is_no_key(tmp_path: Path) -> None:
    assert "directory" in key_fault(tmp_path).reason


def test_a_device_is_no_key() -> None:
    assert "no regular file" in key_fault(Path("/dev/zero")).reason


def test_keys_without_hmac_are_refused(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    for algorithm in ("none", "crc32"):
        fault = fault_of(f"integrity: {{algorithm: {algorithm}, keys: ['{path}']}}")
        assert fault.path == "integrity"
        assert fault.reason == f"algorithm {algorithm} takes no keys"


def test_every_bad_key_is_named(tmp_path: Path) -> None:
    good = key_file(tmp_path)
    open_to_all = key_file(tmp_path, mode=0o644, name="open")
    text = f"integrity:\n  algorithm: hmac\n  keys:\n  - {tmp_path}/nowhere\n  - {good}\n  - {open_to_all}\n"
    assert [(fault.line, fault.path) for fault in faults(text)] == [(4, "integrity.keys[0]"), (6, "integrity.keys[2]")]


# -- keys that systemd passes


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
    assert with_keys("/etc/bccnd/keys/hmac.key", "/nowhere/old.key", here).keys == (b"k" * 32, b"o" * 32, b"h" * 32)
    assert with_keys("hmac.key").keys == (b"k" * 32,)


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o400, 0o440])
def test_a_service_that_cannot_look_where_its_keys_are_has_them_passed(
    tmp_path: Path, credentials: Path, mode: int
) -> None:
    need_root("a folder that somebody else may not enter")
    closed = tmp_path / "keys"
    closed.mkdir(mode=0o700)
    path = key_file(closed)
    passed = key_file(credentials, KEY, mode, "keys_key")
    with tempfile.TemporaryDirectory() as name, without_root(Path(name)):
        # As systemd 252 does it, and as systemd 257 does it: readable by the group that the service alone is in.
        os.seteuid(0)
        os.rename(credentials, f"{name}/credentials")
        passed = Path(name) / "credentials" / passed.name
        os.chown(passed.parent, NOBODY, -1)
        os.chown(passed, NOBODY if mode == 0o400 else 0, os.getegid())
        os.environ["CREDENTIALS_DIRECTORY"] = str(passed.parent)
        os.seteuid(NOBODY)
        assert with_keys(path).keys == (KEY,)
        with pytest.raises(PermissionError):
            path.stat()


def test_a_key_that_was_not_passed_is_told_with_what_it_takes(credentials: Path) -> None:
    fault = key_fault(Path("/etc/bccnd/keys/new.key"))
    assert "cannot read key /etc/bccnd/keys/new.key" in fault.reason
    assert "put new.key into /etc/bccnd/keys" in fault.remedy
    assert "systemctl restart bccnd" in fault.remedy
    assert "clients stay connected" in fault.remedy


def test_what_is_wrong_with_a_key_itself_is_told_as_ever(tmp_path: Path, credentials: Path) -> None:
    key_file(credentials, b"short", 0o400, "keys_hmac.key")
    fault = key_fault(Path("/etc/bccnd/keys/hmac.key"))
    # Who has mended the file since must know which one was meant.
    assert "key /etc/bccnd/keys/hmac.key, as systemd has passed it, holds 5 bytes" in fault.reason
    assert "bccn keygen" in fault.remedy
    assert "systemctl restart bccnd" in fault.remedy
    assert f"chmod 600 {tmp_path}/key" in key_fault(key_file(tmp_path, KEY, 0o644)).remedy


def test_public_keys_are_passed_too(tmp_path: Path, credentials: Path) -> None:
    private_file(credentials, mode=0o400, name="keys_sig.key")
    public_file(credentials, mode=0o400, name="keys_fleet_relay01.pub")
    text = signing([Path("/etc/bccnd/keys/sig.key")], {"relay01": [Path("/etc/bccnd/keys/fleet/relay01.pub")]})
    found = read(text, "/etc/bccnd/bccnd.yaml")
    assert found.keys == (PRIVATE.rstrip(),)
    assert found.signers == {b"relay01": [PUBLIC.rstrip()]}
    fault = fault_of(signing([], {"relay02": [Path("/etc/bccnd/keys/relay02.pub")]}))
    assert "put relay02.pub into /etc/bccnd/keys" in fault.remedy


# -- segments of every kind


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("255.255.255.255", "255.255.255.255"),
        ("10.0.0.255", "10.0.0.255"),
        ("239.1.2.3", "239.1.2.3"),
        ("'ff02::bcc'", "ff02::bcc"),
        ("'ff05::bcc'", "ff05::bcc"),
        ("FF02:0:0:0:0:0:0:0BCC", "ff02::bcc"),
    ],
)
def test_a_segment_is_a_broadcast_address_or_a_group_in_one_spelling(text: str, address: str) -> None:
    assert settings_of(f"segments: [{{address: {text}}}]").segments[0].address == address


def test_one_group_spelled_twice_is_one_segment() -> None:
    fault = fault_of("segments: [{address: 'ff02::bcc'}, {address: 'FF02:0::BCC'}]")
    assert fault.path == "segments"
    assert fault.reason == "two segments are called ff02--bcc#5400"


@pytest.mark.parametrize(
    ("address", "bind"),
    [("255.255.255.255", "0.0.0.0"), ("239.1.2.3", "239.1.2.3"), ("ff02::bcc", "::"), ("ff02::bcc", "ff02::bcc")],
)
def test_a_segment_may_say_where_it_is_bound(address: str, bind: str) -> None:
    assert settings_of(f"segments: [{{address: '{address}', bind: '{bind}'}}]").segments[0].bind == bind


@pytest.mark.parametrize("hop_limit", [1, 2, 255])
def test_a_segment_may_say_how_many_routers_it_passes(hop_limit: int) -> None:
    segment = settings_of(f"segments: [{{address: 'ff05::bcc', hop_limit: {hop_limit}}}]").segments[0]
    assert segment.hop_limit == hop_limit
    assert SegmentSettings().hop_limit == 1


# -- names, heartbeats, repeats


@pytest.mark.parametrize("names", ["any", "perl-safe"])
def test_names_may_be_any_or_perl_safe(names: str) -> None:
    assert settings_of(f"names: {names}").names == names


@pytest.mark.parametrize(
    ("text", "interval"), [("0", 0.0), ("0s", 0.0), ("100ms", 0.1), ("0.1", 0.1), ("5s", 5.0), ("1h", 3600.0)]
)
def test_heartbeats_come_at_any_sensible_interval_or_not_at_all(text: str, interval: float) -> None:
    assert settings_of(f"heartbeat: {{interval: {text}}}").heartbeat.interval == interval


@pytest.mark.parametrize("text", ["1ms", "99ms", "0.05", "0.0001s"])
def test_heartbeats_that_come_too_often_are_refused(text: str) -> None:
    fault = fault_of(f"heartbeat:\n  interval: {text}\n")
    assert (fault.line, fault.path) == (2, "heartbeat.interval")
    assert "too often" in fault.reason
    assert fault.remedy == "set 0.1 or more, or 0 for none"


@pytest.mark.parametrize("text", ["repeat:", "repeat: []", "repeat: {}", ""])
def test_nothing_is_repeated_unless_asked_for(text: str) -> None:
    assert settings_of(text).repeat == ()


def test_rules_of_repeats_keep_their_order_because_the_first_that_fits_decides() -> None:
    text = "repeat:\n- {channels: a/b, copies: 3, spacing: 5ms}\n- channels: a/>\n- {channels: ''}\n"
    assert settings_of(text).repeat == (
        RepeatSettings(channels="a/b", copies=3, spacing=0.005),
        RepeatSettings(channels="a/>", copies=2, spacing=0.002),
        RepeatSettings(channels="", copies=2, spacing=0.002),
    )


@pytest.mark.parametrize(
    ("copies", "spacing", "horizon", "fits"),
    [
        (2, "1999ms", "2s", True),
        (2, "2s", "2s", False),
        (3, "999ms", "2s", True),
        (3, "1s", "2s", False),
        (8, "285ms", "2s", True),
        (8, "286ms", "2s", False),
        (2, "2s", "2001ms", True),
        (8, "60s", "1h", True),
        (8, "0", "1ms", True),
        (2, "2ms", "1ms", False),
    ],
)
def test_the_last_copy_must_come_within_the_horizon(copies: int, spacing: str, horizon: str, fits: bool) -> None:
    rule = f"{{channels: x, copies: {copies}, spacing: {spacing}}}"
    text = f"dedup: {{horizon: {horizon}}}\nrepeat: [{{channels: y, spacing: 0}}, {rule}]\n"
    if fits:
        assert settings_of(text).repeat[1].copies == copies
    else:
        fault = fault_of(text)
        assert fault.reason.startswith("repeat[1]: the last copy would come ")
        assert "like a restart" in fault.reason
        assert "dedup.horizon" in fault.remedy


def test_rules_of_repeats_are_few() -> None:
    many = ", ".join(f"{{channels: c{number}}}" for number in range(65))
    assert fault_of(f"repeat: [{many}]").path == "repeat"


# -- signatures

PRIVATE = generate()
PUBLIC = public_of(PRIVATE)
RSA = rsa.generate_private_key(65_537, 2048)
RSA_PRIVATE = RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
RSA_PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
LOCKED = Ed25519PrivateKey.generate().private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)


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


def private_file(folder: Path, content: bytes = PRIVATE, mode: int = 0o600, name: str = "sig.key") -> Path:
    return key_file(folder, content, mode, name)


def public_file(folder: Path, content: bytes = PUBLIC, mode: int = 0o644, name: str = "sig.key.pub") -> Path:
    return key_file(folder, content, mode, name)


def private_fault(path: Path) -> Fault:
    fault = fault_of(signing([path]))
    assert (fault.line, fault.path) == (4, "integrity.keys[0]")
    assert str(path) in fault.reason
    assert "PRIVATE" not in str(fault)
    return fault


def public_fault(path: Path) -> Fault:
    fault = fault_of(signing(signers={"relay01": [path]}))
    assert (fault.line, fault.path) == (6, "integrity.signers.relay01[0]")
    assert str(path) in fault.reason
    return fault


def test_a_private_key_and_public_ones_by_prefix_are_read(tmp_path: Path) -> None:
    other = public_of(generate())
    mine, theirs = public_file(tmp_path), public_file(tmp_path, other, name="other.pub")
    text = signing([private_file(tmp_path)], {"relay01": [mine, theirs], "relay02/cardsys": [theirs], "": [mine]})
    configuration = read(text, "/etc/bccnd/bccnd.yaml")
    ours, others = PUBLIC.rstrip(b"\n"), other.rstrip(b"\n")
    assert configuration.keys == (PRIVATE.rstrip(b"\n"),)
    assert configuration.signers == {b"relay01": [ours, others], b"relay02/cardsys": [others], b"": [ours]}
    door = make_door("sig", configuration.keys, configuration.signers)
    assert door.admit(build(b"relay01:1:c|x", door.seal(b"relay01:1:c|x"))) == b"relay01:1:c|x"


def test_who_only_verifies_needs_no_private_key_and_who_only_sends_no_public_one(tmp_path: Path) -> None:
    assert read(signing(signers={"relay01": [public_file(tmp_path)]}), "x").keys == ()
    assert read(signing([private_file(tmp_path)]), "x").signers == {}


def test_names_of_public_keys_begin_at_the_folder_of_the_configuration_too(tmp_path: Path) -> None:
    public_file(tmp_path, name="relay02.pub")
    path = tmp_path / "bccnd.yaml"
    path.write_text("integrity: {algorithm: sig, signers: {relay02: [relay02.pub]}}\n")
    assert load(str(path)).signers == {b"relay02": [PUBLIC.rstrip(b"\n")]}


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o444, 0o604, 0o640, 0o755])
def test_a_public_key_may_be_read_by_everybody(tmp_path: Path, mode: int) -> None:
    assert read(signing(signers={"relay01": [public_file(tmp_path, mode=mode)]}), "x").signers


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620, 0o602, 0o777])
def test_a_public_key_that_others_can_replace_is_refused(tmp_path: Path, mode: int) -> None:
    path = public_file(tmp_path, mode=mode)
    fault = public_fault(path)
    assert f"public key {path} has mode {mode:04o}: others can replace it" == fault.reason
    assert fault.remedy == f"chmod 644 {path}"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o444])
def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = private_file(tmp_path, mode=mode)
    fault = private_fault(path)
    assert f"has mode {mode:04o}: others can read it" in fault.reason
    assert fault.remedy == f"chmod 600 {path}"


@pytest.mark.root
def test_a_public_key_of_another_user_is_refused(tmp_path: Path) -> None:
    need_root("only root can give a file away")
    path = public_file(tmp_path)
    os.chown(path, NOBODY, -1)
    assert f"belongs to uid {NOBODY}" in public_fault(path).reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (KEY, "no private key (PEM, without a passphrase)"),
        (PUBLIC, "no private key (PEM, without a passphrase)"),
        (LOCKED, "no private key (PEM, without a passphrase)"),
        (PRIVATE[:80], "no private key (PEM, without a passphrase)"),
        (RSA_PRIVATE, "a private key that is not Ed25519"),
    ],
)
def test_what_is_no_private_key_for_signatures_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = private_file(tmp_path, content)
    fault = private_fault(path)
    assert fault.reason == f"key {path} holds {reason}"
    assert "keygen --algorithm sig" in fault.remedy


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (KEY, "no public key (PEM)"),
        (PRIVATE, "no public key (PEM)"),
        (PUBLIC[:60], "no public key (PEM)"),
        (RSA_PUBLIC, "a public key that is not Ed25519"),
    ],
)
def test_what_is_no_public_key_for_signatures_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = public_file(tmp_path, content)
    fault = public_fault(path)
    assert fault.reason == f"key {path} holds {reason}"
    assert "keygen --algorithm sig" in fault.remedy


def test_a_public_key_that_is_missing_is_refused(tmp_path: Path) -> None:
    fault = public_fault(tmp_path / "nowhere.pub")
    assert "No such file" in fault.reason
    assert "keygen" in fault.remedy


@pytest.mark.parametrize("content", [PRIVATE, PUBLIC, RSA_PRIVATE, LOCKED])
def test_a_key_for_signatures_is_no_secret_for_hmac(tmp_path: Path, content: bytes) -> None:
    fault = key_fault(key_file(tmp_path, content))
    assert "is a key for signatures" in fault.reason
    assert "set algorithm: sig" in fault.remedy


@pytest.mark.parametrize("algorithm", ["none", "crc32", "hmac"])
def test_only_signatures_have_signers(tmp_path: Path, algorithm: str) -> None:
    keys = f"keys: ['{key_file(tmp_path)}'], " if algorithm == "hmac" else ""
    text = f"integrity: {{algorithm: {algorithm}, {keys}signers: {{a: ['{public_file(tmp_path)}']}}}}"
    fault = fault_of(text)
    assert (fault.line, fault.path) == (1, "integrity")
    assert fault.reason == f"algorithm {algorithm} takes no signers"
    assert "set algorithm: sig" in fault.remedy


def test_only_one_key_signs(tmp_path: Path) -> None:
    fault = fault_of(signing([private_file(tmp_path), private_file(tmp_path, generate(), name="second.key")]))
    assert (fault.path, fault.reason) == ("integrity", "sig signs with one key")
    assert "signers" in fault.remedy


@pytest.mark.parametrize("prefix", ["relay01", "relay01/cardsys", "relay01/cardsys/7", "", "?", "!", "x" * 128])
def test_a_prefix_is_the_beginning_of_a_src(tmp_path: Path, prefix: str) -> None:
    assert list(read(signing(signers={prefix: [public_file(tmp_path)]}), "x").signers) == [prefix.encode()]


@pytest.mark.parametrize("prefix", ["relay01/", "relay01/*", "*", "a b", "a:b", "a|b", "gr\u00fcn", "x" * 129, "/"])
def test_what_cannot_be_the_beginning_of_a_src_is_no_prefix(tmp_path: Path, prefix: str) -> None:
    fault = fault_of(signing(signers={prefix: [public_file(tmp_path)]}))
    assert (fault.line, fault.path) == (5, f"integrity.signers.{prefix}")
    assert "cannot be the beginning of a src" in fault.reason
    assert '"" for all others' in fault.remedy


def test_every_bad_signer_is_named(tmp_path: Path) -> None:
    good, nowhere = public_file(tmp_path), tmp_path / "nowhere"
    writable = public_file(tmp_path, mode=0o666, name="writable.pub")
    found = faults(signing([nowhere], {"a": [good, nowhere], "b": [writable]}))
    assert [(fault.line, fault.path) for fault in found] == [
        (4, "integrity.keys[0]"),
        (8, "integrity.signers.a[1]"),
        (10, "integrity.signers.b[0]"),
    ]


def test_signers_without_a_key_are_told_in_plain_words() -> None:
    fault = fault_of("integrity: {algorithm: sig, signers: {a: []}}")
    assert "after validation" not in fault.reason


def test_heartbeats_need_a_key_to_sign_them(tmp_path: Path) -> None:
    signers = {"relay01": [public_file(tmp_path)]}
    fault = fault_of(signing(signers=signers, more="heartbeat: {interval: 5s}\n"))
    assert fault.reason == "heartbeats cannot be signed without a key"
    assert "integrity.keys" in fault.remedy
    assert read(signing(signers=signers, more="heartbeat: {interval: 0}\n"), "x").signers
    assert read(signing([private_file(tmp_path)], signers, "heartbeat: {interval: 5s}\n"), "x").signers


def test_without_a_context_no_file_is_opened() -> None:
    # As where settings are made by a program and not from a file.
    integrity = IntegritySettings(algorithm="sig", keys=("/nowhere",), signers={"a": ("/nowhere",)})
    assert integrity.signers == {"a": ("/nowhere",)}


# -- whatever a file holds


def known_keys(model: type[BaseModel]) -> set[str]:
    found = set(model.model_fields)
    for field in model.model_fields.values():
        inner = model_in(field.annotation)
        if inner is not None:
            found |= known_keys(inner)
    return found


USUAL = ["hmac", "none", "off", "127.0.0.1:1", "5s", "4MiB", "0660", "/dev/null", "root"]
WORDS = [*sorted(known_keys(Settings)), *USUAL]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.binary(max_size=8)
    | st.text(max_size=8)
    | st.sampled_from(WORDS)
)
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


def reads_or_refuses(text: str) -> None:
    """A text is a configuration or it has faults; nothing else comes of it, and the faults can be shown."""
    refused = None
    try:
        read(text, "/nowhere/bccnd.yaml")
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert refused.faults
        assert all(fault.reason and fault.remedy for fault in refused.faults)
        assert str(refused)


@settings(deadline=None, max_examples=200)
@given(st.text() | YAML_ISH)
def test_any_text_is_read_or_refused(text: str) -> None:
    reads_or_refuses(text)


@settings(deadline=None, max_examples=200)
@given(DOCUMENTS)
def test_any_document_is_read_or_refused(document: object) -> None:
    reads_or_refuses(yaml.safe_dump(document, allow_unicode=True))


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.sampled_from(sorted(Settings.model_fields)), DOCUMENTS, min_size=1))
def test_any_value_of_a_known_key_is_read_or_refused(document: dict[str, object]) -> None:
    reads_or_refuses(yaml.safe_dump(document))


NASTY = {
    "no date": "a: 2001-13-45",
    "no timestamp": "a: !!timestamp x",
    "no int": "a: !!int ''",
    "no float": "a: !!float ''",
    "no bool": "a: !!bool x",
    "no binary": "a: !!binary ä",
    "no binary number": "a: 0b_",
    "no hexadecimal number": "a: 0x_",
    "a large unknown value": "a: 0x" + "f" * 5000,
    "a large hexadecimal port": "segments: [{port: 0x" + "f" * 5000 + "}]",
    "a large port": "segments: [{port: 1" + "0" * 5000 + "}]",
    "a large number of seconds": "dedup: {horizon: 1" + "0" * 400 + "}",
    "a large duration": "dedup: {expire: 1" + "0" * 400 + "s}",
    "a large size": "max_datagram: 1" + "0" * 5000 + "KiB",
    "deep lists": "[" * 5000,
    "deep keys": "? " * 3000,
    "a list as key": "? [a]\n: b",
    "a mapping as key": "? {a: b}\n: c",
    "no merge": "<<: 1",
    "an equals sign": "a: =",
    "a mapping that holds itself": "a: &a {b: *a}",
    "half a character as key": '"\\ud800": 1',
    "half a character": 'host: "\\ud800"',
    "a group with a NUL": 'bus: {group: "\\0"}',
    "a key file with a NUL": 'integrity: {algorithm: hmac, keys: ["\\0"]}',
    "a key file with half a character": 'integrity: {algorithm: hmac, keys: ["\\ud800"]}',
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY.keys())
def test_what_is_known_to_be_nasty_is_read_or_refused(text: str) -> None:
    reads_or_refuses(text)


@pytest.mark.parametrize(
    "text",
    [
        'bus: {path: "a\\0b"}',
        'segments: [{interface: "lo\\0"}]',
        'segments: [{interface: "\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9"}]',
        'metrics: {groups: {a: "\\ud800"}}',
    ],
    ids=["path with a NUL", "interface with a NUL", "interface of 18 bytes", "pattern with half a character"],
)
def test_what_the_kernel_or_the_bus_could_not_even_be_asked_for_is_refused_here(text: str) -> None:
    assert fault_of(text).line == 1
