"""What is shipped beside the code: units, manual pages, completions, the package's own files; each held to the code
that it speaks of. Nothing here needs root, a running systemd or a built package."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import click
import pytest
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bccnd.cli import daemon, record, sbusd, tool
from bccnd.config import (
    BrokerSettings,
    BusSettings,
    MetricsSettings,
    NngSettings,
    RecorderSettings,
    SegmentSettings,
    Settings,
)
from bccnd.paths import DEFAULT_PATH
from bccnd.recorder import recorder
from tests.support import ROOT, cannot_here

UNITS: Final = sorted(path for path in (ROOT / "systemd").iterdir() if path.suffix in (".service", ".socket", ".timer"))
DEBIAN: Final = ROOT / "packaging/debian"
PAGES: Final = sorted((ROOT / "packaging/man").iterdir())
COMMANDS: Final[dict[str, click.Command]] = {"bccnd": daemon.main, "bccn": tool.main, "bccn-sbusd": sbusd.main}
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: entries of the fd store that are not two for each client: the ledger and two annals, with room for as many again
OTHER_ENTRIES: Final = 8
#: the file, and what is in it, of every example of a unit in the documents
EXAMPLE: Final = re.compile(r"^( *)```ini\n *# (/etc/systemd/system/\S+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return path.name


def need(program: str, package: str) -> str:
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/bin:/bin")
    if found is None:
        cannot_here(f"there is no {program}: apt-get install {package}")
    return found


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BCCN", "SYSTEMD"))}
    return subprocess.run(
        [str(word) for word in words],
        env={**kept, "LC_ALL": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# -- units


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each with all its values, whatever their section."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "systemd" / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Z]\w+", key):
            found.setdefault(key, []).append(value)
    return found


def one(name: str, key: str) -> str:
    (value,) = unit(name)[key]
    return value


def number(text: str) -> int:
    """A size as systemd writes it."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    assert found
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def can_run(text: str) -> str:
    """A unit whose programs there are on this machine."""
    return re.sub(r"/usr/bin/bccnd\b|/opt/bccnd/bin/bccnd?\b", "/bin/true", text)


def verified(folder: Path) -> str:
    """What systemd says against the units in a folder: with those of this machine behind it, which they refer to."""
    done = run(
        need("systemd-analyze", "systemd"),
        *("verify", "--man=no"),
        *sorted(path for path in folder.iterdir() if path.is_file()),
        SYSTEMD_UNIT_PATH=f"{folder}:",
    )
    said = done.stdout + done.stderr
    return said if said or not done.returncode else f"status {done.returncode}"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    folder = tmp_path / "units"
    folder.mkdir()
    for path in UNITS:
        (folder / path.name).write_text(can_run(path.read_text()))
    return folder


def test_systemd_has_nothing_to_say_against_the_units(installed: Path) -> None:
    assert verified(installed) == ""
    # It must be this test that would notice.
    with (installed / "bccnd.service").open("a") as file:
        file.write("Nonsense=yes\n")
    assert "Nonsense" in verified(installed)


def exposure(path: Path) -> float:
    analyze = need("systemd-analyze", "systemd")
    done = run(analyze, "security", "--offline=true", "--no-pager", path)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if found is None:
        cannot_here(f"systemd-analyze cannot judge a file: {done.stderr.strip()}")
    return float(found[1])


def test_what_the_service_could_do_is_next_to_nothing(tmp_path: Path) -> None:
    assert exposure(ROOT / "systemd/bccnd.service") <= 0.5
    # The document says what it comes to with the network.
    text = (ROOT / "systemd/bccnd.service").read_text()
    loosened = text.replace("PrivateNetwork=yes", "PrivateNetwork=no").replace("IPAddressDeny=any", "")
    loosened = loosened.replace("RestrictAddressFamilies=AF_UNIX", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6")
    (tmp_path / "bccnd.service").write_text(loosened)
    assert f"The exposure is {exposure(tmp_path / 'bccnd.service')} then" in document("systemd.md")


def test_and_the_recorder_can_do_no_more_than_write_to_its_own_folder(tmp_path: Path) -> None:
    assert exposure(ROOT / "systemd/bccnd-recorder.service") <= 0.5
    settings, daemon_ = unit("bccnd-recorder.service"), unit("bccnd.service")
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["RestrictAddressFamilies"] == ["AF_UNIX"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert not {"ReadWritePaths", "LoadCredential"} & set(settings)
    # The daemon's own group may tap, and another user than the daemon's does it.
    assert settings["Group"] == daemon_["User"]
    assert settings["User"] != daemon_["User"]
    assert settings["SupplementaryGroups"] == [one("bccnd-bus.socket", "SocketGroup")]


def test_the_recorder_writes_where_the_defaults_say_and_needs_what_its_unit_says() -> None:
    folder = f"/var/lib/{one('bccnd-recorder.service', 'StateDirectory')}/"
    assert RecorderSettings().journal.startswith(folder)
    assert record.SPOOL.startswith(folder)
    program = one("bccnd-recorder.service", "ConditionFileIsExecutable")
    assert one("bccnd-recorder.service", "ExecStart") == f"{program} record"
    assert number(one("bccnd-recorder.service", "TimeoutStopSec")) > recorder._FAREWELL + recorder._LAST_WORDS
    assert one("bccnd-recorder.service", "Restart") == "always"
    text = (ROOT / "systemd/bccnd-recorder.service").read_text()
    assert "pip install 'bccnd[recorder]'" in text
    assert "recorder" in PROJECT["optional-dependencies"]


def test_and_the_broker_can_reach_the_network_the_bus_and_its_own_folder() -> None:
    assert exposure(ROOT / "systemd/bccnd-broker.service") <= 1.5
    settings, daemon_ = unit("bccnd-broker.service"), unit("bccnd.service")
    assert settings["ExecStart"] == ["/usr/bin/bccnd --gateway broker"]
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["RestrictAddressFamilies"] == ["AF_UNIX AF_INET AF_INET6"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert not {"ReadWritePaths", "LoadCredential", "PrivateNetwork"} & set(settings)
    # The daemon's own group has the right to links, and another user than the daemon's has its place there.
    assert settings["Group"] == daemon_["User"]
    assert settings["User"] != daemon_["User"]
    assert settings["SupplementaryGroups"] == [one("bccnd-bus.socket", "SocketGroup")]
    # A folder of its own: nobody else's file can be in it.
    assert settings["StateDirectory"] == ["bccnd-broker"]
    assert int(one("bccnd-broker.service", "LimitNOFILE")) > BrokerSettings.model_fields["max_connections"].default
    # What is not configured is not started again and again.
    assert settings["RestartPreventExitStatus"] == ["2"]
    assert settings["Restart"] == ["always"]


def test_and_links_can_reach_the_network_and_the_bus_and_write_nothing() -> None:
    assert exposure(ROOT / "systemd/bccnd-nng.service") <= 1.5
    settings, daemon_ = unit("bccnd-nng.service"), unit("bccnd.service")
    program = one("bccnd-nng.service", "ConditionFileIsExecutable")
    assert settings["ExecStart"] == [f"{program} --gateway nng"]
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["RestrictAddressFamilies"] == ["AF_UNIX AF_INET AF_INET6"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert not {"ReadWritePaths", "StateDirectory", "PrivateNetwork"} & set(settings)
    assert settings["Group"] == daemon_["User"]
    assert settings["User"] != daemon_["User"]
    assert settings["SupplementaryGroups"] == [one("bccnd-bus.socket", "SocketGroup")]
    assert int(one("bccnd-nng.service", "LimitNOFILE")) > NngSettings.model_fields["max_peers"].default
    assert settings["RestartPreventExitStatus"] == ["2"]
    assert settings["Restart"] == ["always"]
    text = (ROOT / "systemd/bccnd-nng.service").read_text()
    assert "pip install 'bccnd[gateways]'" in text
    assert "gateways" in PROJECT["optional-dependencies"]
    # Certificates come from a folder that the package has.
    folder = one("bccnd-nng.service", "LoadCredential").removeprefix("keys:")
    rules = (DEBIAN / "rules").read_text()
    made = [line for line in rules.splitlines() if re.match(r"\t(install -d -m|chmod) 0700 ", line)]
    assert len(made) == 2
    assert all(f" $(TREE){folder}" in line for line in made)


def test_but_it_still_sees_who_its_clients_are() -> None:
    assert not {"PrivateUsers", "ProtectProc", "ProcSubset", "PrivatePIDs"} & set(unit("bccnd.service"))


def test_the_sockets_listen_where_the_defaults_say() -> None:
    bus, segment, metrics = BusSettings(), SegmentSettings(), MetricsSettings()
    assert one("bccnd-bus.socket", "ListenSequentialPacket") == bus.path
    assert int(one("bccnd-bus.socket", "SocketMode"), 8) == bus.mode
    assert one("bccnd-udp.socket", "ListenDatagram") == f"0.0.0.0:{segment.port}"
    assert one("bccnd-udp.socket", "Broadcast") == "yes"
    assert number(one("bccnd-udp.socket", "ReceiveBuffer")) == segment.receive_buffer
    assert metrics.listen is not None
    assert one("bccnd-metrics.socket", "ListenStream") == "{}:{}".format(*metrics.listen)


def test_and_where_the_shipped_configuration_says() -> None:
    shipped = yaml.safe_load((ROOT / "etc/bccnd.yaml").read_text())
    assert one("bccnd-bus.socket", "ListenSequentialPacket") == shipped["bus"]["path"]
    assert one("bccnd-bus.socket", "SocketMode") == shipped["bus"]["mode"]
    assert one("bccnd-bus.socket", "SocketGroup") == shipped["bus"]["group"]
    (segment,) = shipped["segments"]
    assert one("bccnd-udp.socket", "ListenDatagram").endswith(f":{segment['port']}")
    assert segment["bind"] in (None, "0.0.0.0")
    assert one("bccnd-metrics.socket", "ListenStream") == shipped["metrics"]["listen"]


def test_everybody_who_may_connect_is_in_the_group_that_is_made() -> None:
    made = re.findall(r"^g (\S+) -$", (DEBIAN / "bccnd.sysusers").read_text(), re.MULTILINE)
    assert made == [one("bccnd-bus.socket", "SocketGroup")]
    # The daemon's own group may tap; members of this one only use the bus.
    assert "Group" not in unit("bccnd.service")
    assert one("bccnd.service", "User") not in made


@pytest.mark.parametrize("path", [path for path in UNITS if path.suffix == ".socket"], ids=name_of)
def test_every_socket_is_the_daemons_and_outlives_it(path: Path) -> None:
    settings = unit(path.name)
    assert settings["Service"] == ["bccnd.service"]
    assert settings["FileDescriptorName"] == [path.stem.removeprefix("bccnd-")]
    assert settings["TriggerLimitIntervalSec"] == ["0"]
    assert settings["WantedBy"] == ["sockets.target bccnd.service"]
    assert not {"PartOf", "BindsTo", "StopWhenUnneeded", "Accept"} & set(settings)


def test_no_end_of_the_daemon_is_the_last_one() -> None:
    service = unit("bccnd.service")
    assert service["Type"] == ["notify"]
    assert service["Restart"] == ["always"]
    assert service["StartLimitIntervalSec"] == ["0"]
    assert not {"RestartPreventExitStatus", "Requires", "Requisite", "BindsTo", "PartOf"} & set(service)
    assert not [key for key in service if key.startswith(("Condition", "Assert"))]
    assert int(service["WatchdogSec"][0]) > 0


def test_there_is_room_for_what_is_kept_of_every_client() -> None:
    store, descriptors = (int(one("bccnd.service", key)) for key in ("FileDescriptorStoreMax", "LimitNOFILE"))
    clients = BusSettings().max_clients
    assert store >= 2 * clients + OTHER_ENTRIES
    assert descriptors >= store + 2 * clients
    # And the example for more.
    example = dict(examples())["/etc/systemd/system/bccnd.service.d/limits.conf"]
    more, beyond = (int(found) for found in re.findall(r"=(\d+)", example))
    assert more > 2 * store
    assert beyond > more


def test_keys_are_where_the_package_has_a_folder_for_them() -> None:
    assert one("bccnd.service", "LoadCredential") == f"keys:{os.path.dirname(DEFAULT_PATH)}/keys"
    rules = (DEBIAN / "rules").read_text()
    assert "install -d -m 0700 $(TREE)/etc/bccnd/keys" in rules
    assert "chmod 0700 $(TREE)/etc/bccnd/keys" in rules


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def examples() -> Iterator[tuple[str, str]]:
    for name in ("systemd.md", "containers.md"):
        for blanks, path, text in EXAMPLE.findall(document(name)):
            yield path, re.sub(rf"^{blanks}", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("path", "text"), list(examples()), ids=[path for path, _ in examples()])
def test_the_examples_of_the_documents_are_good_units(installed: Path, path: str, text: str) -> None:
    target = installed / path.removeprefix("/etc/systemd/system/")
    target.parent.mkdir(exist_ok=True)
    target.write_text(can_run(text))
    said = verified(installed)
    if "FileDescriptorStorePreserve" in text:
        # Older ones do not know it, and the document says so.
        assert re.fullmatch(r"(\S+ Unknown key( name)? 'FileDescriptorStorePreserve' in section .*\n)?", said)
    else:
        assert said == ""


def test_all_examples_are_found() -> None:
    blocks = sum(document(name).count("```ini") for name in ("systemd.md", "containers.md"))
    assert len(list(examples())) == blocks > 8


# -- manual pages


def page(name: str) -> str:
    (found,) = [path for path in PAGES if path.stem == name]
    return found.read_text()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_is_laid_out_without_complaints(path: Path) -> None:
    man = need("man", "man-db")
    done = run(man, "--warnings", "-l", path, MANWIDTH="80", MANPAGER="cat", PAGER="cat")
    assert (done.returncode, done.stderr) == (0, "")
    title = f"{path.stem}({path.suffix[1:]})".upper()
    assert title in done.stdout
    assert "SEE ALSO" in done.stdout
    assert "EXAMPLES" in done.stdout


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_refers_to_pages_that_there_are(path: Path) -> None:
    ours = {(other.stem, other.suffix[1:]) for other in PAGES}
    named = re.findall(r"^\.Xr (\S+) (\d)", path.read_text(), re.MULTILINE)
    assert {(name, section) for name, section in named if name.startswith("bccn")} <= ours
    assert (path.stem, path.suffix[1:]) not in {pair for pair in named if path.stem != "bccnd"}


def words(option: str) -> str:
    """An option as a page's source writes it."""
    return option[1:].replace("--", "-") if option.startswith("--") else option[1:]


def options(command: click.Command) -> Iterator[str]:
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            yield from (*param.opts, *param.secondary_opts)


def documented(text: str) -> set[str]:
    """The options that have an entry of their own."""
    entries = re.findall(r"^\.It (Fl .*)$", text, re.MULTILINE)
    return {found for entry in entries for found in re.findall(r"\bFl (-?[a-z][a-z-]*)", entry)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_page_has_its_options_and_no_others(name: str) -> None:
    command = COMMANDS[name]
    known = {words(option) for option in options(command)} | {"h", "-help"}
    text = page(name)
    if isinstance(command, click.Group):
        text = text[: text.index(".Sh COMMANDS")]
    assert documented(text) == known


def sections(text: str) -> dict[str, str]:
    """The parts of the page of `bccn` that speak of one command each."""
    parts = re.split(r"^\.Ss ", text[text.index(".Sh COMMANDS") : text.index(".Sh ENVIRONMENT")], flags=re.MULTILINE)
    return {part.split(maxsplit=1)[0]: part for part in parts[1:]}


def test_every_command_of_the_tool_has_a_section_with_its_options_and_no_others() -> None:
    assert isinstance(tool.main, click.Group)
    found = sections(page("bccn"))
    direct = documented(found.pop("Direct"))
    assert set(found) == set(tool.main.commands)
    for name, command in tool.main.commands.items():
        known = {words(option) for option in options(command)}
        if name in ("pub", "sub"):
            assert direct < known
            known -= direct
        assert documented(found[name]) == known, name
        # And those who only look at the beginning find the command there.
        assert re.search(rf"^\.Cm ([a-z]+ \| )*{name}\b", page("bccn"), re.MULTILINE), name


def test_every_argument_and_every_default_is_named() -> None:
    assert isinstance(tool.main, click.Group)
    found = sections(page("bccn"))
    looked_at = set()
    for name, command in tool.main.commands.items():
        text = found[name] + (found["Direct"] if name in ("pub", "sub") else "")
        for param in command.params:
            if isinstance(param, click.Argument):
                assert f".Ar {(param.name or '').upper().removesuffix('S')}" in text or param.name in text, name
            elif type(param.default) in (int, float, str):
                default = f"{param.default:g}" if isinstance(param.default, float) else str(param.default)
                assert f"({default})" in text or f".Cm {default}\n(the default)" in text, (name, param.name)
                looked_at.add(default)
    assert {"5400", "255.255.255.255", "auto", "hmac", "1"} <= looked_at


def test_every_verdict_can_be_looked_up() -> None:
    from bccnd.core.verdicts import NAMES

    assert [name for name in NAMES if name not in page("bccn")] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_page_says_with_which_status_it_ends(name: str) -> None:
    text = page(name)
    statuses = text[text.index(".Sh EXIT STATUS") :]
    assert re.findall(r"^\.It (\d)$", statuses, re.MULTILINE) == ["0", "1", "2"]


def test_every_signal_and_variable_of_the_daemon_is_named() -> None:
    source = "".join(path.read_text() for path in (ROOT / "bccnd").rglob("*.py"))
    signals = set(re.findall(r"on_signal\(signal\.(SIG\w+)", source))
    assert len(signals) > 2
    said = "".join(line for line in page("bccnd").splitlines() if line.startswith(".It Dv"))
    assert {name for name in signals if name not in said} == set()
    variables = set(re.findall(r"""environ(?:\.(?:get|pop)\(|\[)"(\w+)\"""", source))
    variables |= set(re.findall(r"""envvar="(\w+)\"""", source))
    entries = re.findall(r"^\.(?:It )?Ev (.*)$", "".join(path.read_text() for path in PAGES), re.MULTILINE)
    assert {"NOTIFY_SOCKET", "BCCN_SOCKET", "CREDENTIALS_DIRECTORY"} <= variables
    assert variables - {name for entry in entries for name in entry.split(" , ")} == set()


# -- the configuration's page


#: keys that hold a list of sections
LISTS: Final = ("repeat", "access", "bus.sockets", "recorder.payload")


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections within the type of a setting."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def keys(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key below a section, with its default; those of lists as those of sections."""
    for name, field in model.model_fields.items():
        inner = list(models(field.annotation))
        if path + name == "segments" or not inner or path + name in LISTS:
            yield path + name, field.default
        for section in inner:
            yield from keys(section, f"{path}{name}.")


def entries() -> dict[str, str | None]:
    """The keys that the page has an entry for, with what it gives as the default."""
    found: dict[str, str | None] = {}
    for names, default in re.findall(r"^\.It Cm ([a-z._, ]+?)(?: Pq (.*))?$", page("bccnd.yaml"), re.MULTILINE):
        found |= dict.fromkeys(names.split(" , "), default.replace(r"\(dq", '"') or None)
    return found


def test_the_page_of_the_configuration_has_every_key_and_no_others() -> None:
    assert set(entries()) == {path for path, _ in keys(Settings)}


def as_written(value: object, path: str) -> set[str]:
    """How a default may be written."""
    if isinstance(value, bool):
        return {str(value).lower()}
    if value is None or value == ():
        return {"none", "empty", "everybody", "not spoken of"}
    if isinstance(value, tuple):
        return {"{}:{}".format(*value)}
    if path.endswith(".mode"):
        return {f'"{value:04o}"'}
    if isinstance(value, int | float):
        return {f"{value:g}", str(value), f"{value:g}s", f"{value * 1000:g}ms", f"{value / 3600:g}h"} | {
            f"{value / (1 << 20):g}MiB"
        }
    return {str(value)}


#: defaults that are made when they are needed, or told in words
TOLD: Final = {
    "host",
    "segments",
    "segments.name",
    "bus.group",
    "bus.sockets.group",
    "recorder.payload",
    "recorder.payload.channels",
    "gateways.nng.send",
    "gateways.nng.receive",
}


@pytest.mark.parametrize(
    ("path", "default"), [pair for pair in keys(Settings) if pair[0] not in TOLD], ids=lambda one: str(one)
)
def test_the_page_gives_the_default_of_a_key(path: str, default: object) -> None:
    said = entries()[path]
    if default is PydanticUndefined and said is None:
        return  # it must be there
    expected = as_written(() if default is PydanticUndefined else default, path)
    assert said in expected


def test_what_takes_a_restart_is_marked_with_it() -> None:
    from bccnd.daemon import _needing_restart

    settings = Settings()
    waiting = {name for name, _, _ in _needing_restart(settings, settings)}
    assert {"segments", "bus.path", "metrics.listen"} <= waiting
    parts = re.split(r"^\.It Cm ", page("bccnd.yaml"), flags=re.MULTILINE)[1:]
    marked = {part.split(maxsplit=1)[0] for part in parts if "[restart]" in part.split(".El")[0]}
    assert marked == waiting


# -- completions


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "packaging/completions/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completions")
    need("bash", "bash")
    generator().main(folder)
    return folder


def test_completions_are_made_for_every_command_and_shell(completions: Path) -> None:
    made = {str(path.relative_to(completions)) for path in completions.rglob("*") if path.is_file()}
    assert made == {
        *(f"bash/{name}" for name in COMMANDS),
        *(f"zsh/_{name}" for name in COMMANDS),
        *(f"fish/{name}.fish" for name in COMMANDS),
    }
    assert set(COMMANDS) == set(PROJECT["scripts"])


@pytest.mark.parametrize("name", COMMANDS)
def test_bash_takes_them_and_they_complete(completions: Path, tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    module, _, function = PROJECT["scripts"][name].partition(":")
    program.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
    program.chmod(0o755)
    script = (
        f". {completions}/bash/{name} && complete -p {name} && "
        'COMP_WORDS=("$0" --ver) COMP_CWORD=1 && f=$(complete -p "$0") && f=${f#*-F } && ${f%% *} "$0" && '
        'echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run(need("bash", "bash"), "--norc", "-c", script, name, PATH=path, PYTHONPATH=":".join(sys.path))
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1].strip() == "--version"


@pytest.mark.parametrize(("shell", "file"), [("zsh", "zsh/_bccn"), ("fish", "fish/bccn.fish")])
def test_the_other_shells_can_read_them(completions: Path, shell: str, file: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    done = run(shell, "-n", completions / file)
    assert (done.returncode, done.stderr) == (0, "")


# -- the Debian package


def control() -> dict[str, str]:
    """The fields of all paragraphs, on a line each."""
    folded = re.sub(r"\n[ \t]+", " ", (DEBIAN / "control").read_text())
    return dict(re.findall(r"^(\S+?):[ \t]*(.*)$", folded, re.MULTILINE))


def depends() -> dict[str, str]:
    """What the package depends on by name, with the least version."""
    return dict(re.findall(r"([a-z0-9.+-]+) \(>= ([^)]+)\)", control()["Depends"]))


def test_everything_that_we_need_is_depended_on_or_carried_along() -> None:
    asked = {}
    for text in PROJECT["dependencies"]:
        found = re.fullmatch(r"([\w-]+)>=([\d.]+)", text)
        assert found
        asked[found[1].lower()] = found[2]
    least = asked.pop("pydantic")
    packages = {f"python3-{name.removeprefix('py')}" for name in asked}
    assert packages == set(depends())
    # What the distribution has of pydantic is too old or it is not, by the same measure everywhere.
    script, rules = (ROOT / "packaging/deb.sh").read_text(), (DEBIAN / "rules").read_text()
    assert f'dpkg --compare-versions "$has" ge {least}' in script
    assert f"python3-pydantic (>= {least})" in rules
    assert "${bccnd:Pydantic}" in control()["Depends"]


def test_the_package_has_all_units_and_sees_to_them_at_once() -> None:
    rules = (DEBIAN / "rules").read_text()
    listed = re.search(r"^UNITS = (.*)$", rules, re.MULTILINE)
    assert listed
    offered = re.search(r"^OFFERED = (.*)$", rules, re.MULTILINE)
    assert offered
    assert sorted([*listed[1].split(), *offered[1].split()]) == [path.name for path in UNITS]
    assert "bccnd-recorder.service" in offered[1]
    assert "--no-stop-on-upgrade --no-restart-after-upgrade $(UNITS)" in rules
    # What takes more than the package has is there for whoever wants it.
    assert "--no-enable --no-start --no-stop-on-upgrade $(OFFERED)" in rules


def test_what_a_control_file_must_say_it_says() -> None:
    fields = control()
    assert fields["Package"] == fields["Source"] == PROJECT["name"]
    assert fields["Architecture"] == "any"  # compiled
    assert {"${shlibs:Depends}", "${python3:Depends}", "${misc:Depends}"} <= set(re.split(", *", fields["Depends"]))
    assert re.fullmatch(r".+ <\S+@\S+>", fields["Maintainer"])
    built = set(re.findall(r"[a-z][\w.+-]*", fields["Build-Depends"]))
    needed = (ROOT / "packaging/deb.sh").read_text()
    assert {name for name in built - {"debhelper-compat"} if f":{name}" not in needed} == set()


@pytest.mark.parametrize("path", [ROOT / "packaging/deb.sh", *sorted(DEBIAN.glob("*.post*"))], ids=name_of)
def test_its_scripts_are_good_shell(path: Path) -> None:
    assert path.read_text().startswith("#!/bin/sh\n")
    done = run("sh", "-n", path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_configuration_that_the_new_version_refuses_leaves_the_old_daemon_running() -> None:
    lines = (DEBIAN / "bccnd.postinst").read_text().splitlines()
    (check,) = [
        number for number, line in enumerate(lines) if "bccnd --check" in line and line.lstrip().startswith("if")
    ]
    (restart,) = [number for number, line in enumerate(lines) if "deb-systemd-invoke restart bccnd.service" in line]
    assert lines[restart - 1 : restart + 2] == [lines[check], lines[restart], "    else"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_packaged_command_is_the_projects_own_and_nobody_can_disturb_it(tmp_path: Path, name: str) -> None:
    path = DEBIAN / "bin" / name
    assert path.stat().st_mode & stat.S_IXUSR
    text = path.read_text()
    module, _, function = PROJECT["scripts"][name].partition(":")
    assert f"from {module} import {function}\n" in text
    first, _, rest = text.partition("\n")
    flags = re.fullmatch(r"#!/usr/bin/python3 (-IS(?:Xfaulthandler)?)", first)
    assert flags
    # Ours in the place of Debian's, and a user who means no good.
    places = [str(ROOT), *(place for place in sys.path if place.endswith("-packages"))]
    program, evil = tmp_path / name, tmp_path / "evil"
    rest = rest.replace('["/usr/lib/bccnd", "/usr/lib/python3/dist-packages"]', json.dumps(places))
    assert str(ROOT) in rest
    program.write_text(rest)
    evil.mkdir()
    for victim in ("click", "json", "sitecustomize", "usercustomize"):
        (evil / f"{victim}.py").write_text("raise SystemExit('disturbed')\n")
    shutil.copy(evil / "click.py", tmp_path)
    disturbed = {"PYTHONPATH": str(evil), "PYTHONHOME": "", "PYTHONSTARTUP": str(evil / "click.py"), "HOME": str(evil)}
    done = run(sys.executable, flags[1], program, "--version", **disturbed)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(name)
    # It must be this test that would notice.
    assert "disturbed" in run(sys.executable, program, "--version", **disturbed).stderr


def test_only_the_packaged_names_are_in_the_folder_of_commands() -> None:
    assert {path.name for path in (DEBIAN / "bin").iterdir()} == set(COMMANDS)


def test_the_makefile_knows_how_all_of_this_is_made() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "packaging/deb.sh '$(DEB_VERSION)'" in makefile
    assert "make deb " in makefile
    assert "make man " in makefile
