"""What is shipped beside the code, held to the code: units, manual pages, completions and the Debian package."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from bccnd.cli import bccnd_main, sbusd
from bccnd.cli import main as bccn
from bccnd.cli.shared.lazy_group import LazyGroup
from bccnd.config import BrokerSettings, NngSettings, RecorderSettings, SegmentSettings, Settings, read
from bccnd.config.schema import RESTART_KEYS
from bccnd.paths import DEFAULT_PATH
from bccnd.recorder import service
from bccnd.version import VERSION
from tests.support import ROOT, cannot_here
from tests.tree import repository

UNITS: Final = sorted(path for path in (ROOT / "systemd").iterdir() if path.suffix in (".service", ".socket", ".timer"))
DEBIAN: Final = ROOT / "packaging/debian"
PAGES: Final = {path.stem: path for path in (ROOT / "packaging/man").iterdir()}
COMMANDS: Final[dict[str, click.Command]] = {"bccnd": bccnd_main.main, "bccn": bccn.main, "bccn-sbusd": sbusd.main}
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: entries of systemd's descriptor store beside two for each client: the state of the daemon, and room for as much again
OTHER_ENTRIES: Final = 8
#: the file, and what is in it, of every example of a unit in the documents
EXAMPLE: Final = re.compile(r"^( *)```ini\n *# (/etc/systemd/system/\S+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def need(program: str, package: str) -> str:
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/bin:/bin")
    if found is None:
        cannot_here(f"there is no {program}: apt-get install {package}")
    return found


def run(*words: str | Path, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BCCN", "SYSTEMD"))}
    return subprocess.run(
        [str(word) for word in words],
        env={**kept, "LC_ALL": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


# -- units


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each with all its values, whatever their section."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^([A-Z]\w+)=(.*)$", (ROOT / "systemd" / name).read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def one(name: str, key: str) -> str:
    (value,) = unit(name)[key]
    return value


def number(text: str) -> int:
    """A size as systemd writes it."""
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def can_run(text: str) -> str:
    """A unit whose programs exist on this machine."""
    return re.sub(r"/usr/bin/bccnd\b|/opt/bccnd/bin/bccnd?\b", "/bin/true", text)


def verified(folder: Path) -> str:
    """The complaints of systemd about the units in a folder, with those of this machine behind it."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    analyze = need("systemd-analyze", "systemd")
    done = run(analyze, "verify", "--man=no", *files, SYSTEMD_UNIT_PATH=f"{folder}:")
    output = done.stdout + done.stderr
    return output if output or not done.returncode else f"status {done.returncode}"


def examples() -> Iterator[tuple[str, str]]:
    for name in ("systemd.md", "containers.md", "network.md"):
        text = (ROOT / "docs" / name).read_text()
        found = EXAMPLE.findall(text)
        assert len(found) == text.count("```ini") > 0
        for blanks, path, inside in found:
            yield path, re.sub(rf"^{blanks}", "", inside, flags=re.MULTILINE)


def test_units_and_the_examples_in_documents_are_good(tmp_path: Path) -> None:
    installed = tmp_path / "units"
    installed.mkdir()
    for unit_file in UNITS:
        (installed / unit_file.name).write_text(can_run(unit_file.read_text()))
    assert verified(installed) == ""
    # Older versions of systemd do not know this one, and the document says so.
    unknown = r"\S+ Unknown key( name)? 'FileDescriptorStorePreserve' in section .*\n"
    for path, text in examples():
        target = installed / path.removeprefix("/etc/systemd/system/")
        target.parent.mkdir(exist_ok=True)
        target.write_text(can_run(text))
        assert re.sub(unknown, "", verified(installed)) == "", path
    with (installed / "bccnd.service").open("a") as file:
        file.write("Nonsense=yes\n")
    assert "Nonsense" in verified(installed)


def exposure(path: Path) -> float:
    done = run(need("systemd-analyze", "systemd"), "security", "--offline=true", "--no-pager", path)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if found is None:
        cannot_here(f"systemd-analyze cannot judge a file: {done.stderr.strip()}")
    return float(found[1])


@pytest.mark.parametrize(
    ("name", "most"),
    # The recorder asks whether the clock is synchronised, which ProtectClock= forbids.
    [("bccnd", 0.5), ("bccnd-recorder", 0.8), ("bccnd-broker", 1.5), ("bccnd-nng", 1.5)],
)
def test_a_service_can_do_no_more_than_it_must(name: str, most: float) -> None:
    assert exposure(ROOT / f"systemd/{name}.service") <= most
    settings = unit(f"{name}.service")
    assert settings["CapabilityBoundingSet"] == [""]
    if name != "bccnd":
        # The group of the daemon may tap and link; the user is another one.
        assert settings["Group"] == unit("bccnd.service")["User"] != settings["User"]
        assert settings["SupplementaryGroups"] == [one("bccnd-bus.socket", "SocketGroup")]


def test_services_agree_with_the_defaults_of_the_settings() -> None:
    folder = f"/var/lib/{one('bccnd-recorder.service', 'StateDirectory')}/"
    assert RecorderSettings().journal.startswith(folder)
    assert service.SPOOL.startswith(folder)
    for name, words, peers in (
        ("bccnd-recorder.service", "record", 0),
        ("bccnd-broker.service", "--gateway broker", BrokerSettings.model_fields["max_connections"].default),
        ("bccnd-nng.service", "--gateway nng", NngSettings.model_fields["max_peers"].default),
    ):
        program, _, rest = one(name, "ExecStart").partition(" ")
        assert rest == words
        assert unit(name).get("ConditionFileIsExecutable", [program]) == [program]
        if peers:
            assert int(one(name, "LimitNOFILE")) > peers
            # What is not configured is not started again and again.
            assert one(name, "RestartPreventExitStatus") == "2"
    store, descriptors = (int(one("bccnd.service", key)) for key in ("FileDescriptorStoreMax", "LimitNOFILE"))
    assert store >= 2 * Settings().bus.max_clients + OTHER_ENTRIES
    assert descriptors >= store + 2 * Settings().bus.max_clients
    # The example for more.
    more, beyond = map(int, re.findall(r"=(\d+)", dict(examples())["/etc/systemd/system/bccnd.service.d/limits.conf"]))
    assert beyond > more > 2 * store
    assert one("bccnd.service", "LoadCredential") == f"keys:{os.path.dirname(DEFAULT_PATH)}/keys"


def test_sockets_listen_where_the_configuration_says() -> None:
    shipped = read((ROOT / "etc/bccnd.yaml").read_text(), "etc/bccnd.yaml", resolve=False).settings
    for settings in (Settings(), shipped):
        (segment,) = settings.segments or (SegmentSettings(),)
        assert one("bccnd-bus.socket", "ListenSequentialPacket") == settings.bus.path
        assert int(one("bccnd-bus.socket", "SocketMode"), 8) == settings.bus.mode
        assert segment.bind in (None, "0.0.0.0")
        assert one("bccnd-udp.socket", "ListenDatagram") == f"0.0.0.0:{segment.port}"
        assert number(one("bccnd-udp.socket", "ReceiveBuffer")) == segment.receive_buffer
        assert settings.metrics.listen is not None
        assert one("bccnd-metrics.socket", "ListenStream") == "{}:{}".format(*settings.metrics.listen)
    assert one("bccnd-udp.socket", "Broadcast") == "yes"
    assert one("bccnd-bus.socket", "SocketGroup") == shipped.bus.group
    # The group that the package makes; it is not that of the daemon, which may tap.
    made = re.findall(r"^g (\S+) -$", (DEBIAN / "bccnd.sysusers").read_text(), re.MULTILINE)
    assert made == [shipped.bus.group] != [one("bccnd.service", "User")]


# -- manual pages


def commands(group: click.Command) -> dict[str, click.Command]:
    """The commands of a group, by name."""
    assert isinstance(group, LazyGroup)
    context = click.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}  # type: ignore[misc]


def options(command: click.Command) -> set[str]:
    """The options of a command, as a page's source writes them; --socket, which each has, stands at its beginning."""
    shown = [
        one
        for one in command.params
        if isinstance(one, click.Option) and not one.hidden and (one.expose_value or one.name != "socket")
    ]
    return {name[1:] for param in shown for name in (*param.opts, *param.secondary_opts)}


def documented(text: str) -> set[str]:
    """The options that have an entry of their own."""
    entries = re.findall(r"^\.It (Fl .*)$", text, re.MULTILINE)
    return {found for entry in entries for found in re.findall(r"\bFl (-?[a-z][a-z-]*)", entry)}


def test_commands_and_their_pages_have_the_same_options() -> None:
    for name, command in COMMANDS.items():
        text = PAGES[name].read_text().partition(".Sh COMMANDS")[0] if name == "bccn" else PAGES[name].read_text()
        assert documented(text) == options(command) | {"h", "-help", "-version"}, name
    page = PAGES["bccn"].read_text()
    pieces = re.split(r"^\.Ss ", page.partition(".Sh COMMANDS")[2].partition(".Sh ENVIRONMENT")[0], flags=re.MULTILINE)
    sections = {part.split(maxsplit=1)[0]: part for part in pieces[1:]}
    known = commands(bccn.main)
    parts: list[click.Command]
    assert set(sections) == set(known)
    shared = options(known["pub"]) | options(known["sub"])
    for name, command in known.items():
        parts = list(commands(command).values()) if name == "direct" else [command]
        wanted = set().union(*map(options, parts)) - (shared if name == "direct" else set())
        assert documented(sections[name]) == wanted, name


def test_keys_that_take_a_restart_are_marked() -> None:
    parts = re.split(r"^\.It Cm ", PAGES["bccnd.yaml"].read_text(), flags=re.MULTILINE)[1:]
    assert {part.split(maxsplit=1)[0] for part in parts if "[restart]" in part.split(".El")[0]} == set(RESTART_KEYS)


def test_completions_complete_every_command(tmp_path: Path) -> None:
    bash = need("bash", "bash")
    spec = importlib.util.spec_from_file_location("generate", ROOT / "packaging/completions/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    generate.main(tmp_path)
    assert set(COMMANDS) == set(PROJECT["scripts"])
    for name in COMMANDS:
        program = tmp_path / name
        module, _, function = PROJECT["scripts"][name].partition(":")
        program.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        program.chmod(0o755)
        script = (
            f". {tmp_path}/bash/{name} && complete -p {name} && "
            'COMP_WORDS=("$0" --ver) COMP_CWORD=1 && f=$(complete -p "$0") && f=${f#*-F } && ${f%% *} "$0" && '
            'echo "${COMPREPLY[@]}"'
        )
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = run(bash, "--norc", "-c", script, name, PATH=path, PYTHONPATH=":".join(sys.path))
        assert (done.stderr, done.stdout.splitlines()[-1].strip()) == ("", "--version")
        for shell, file in (("zsh", f"zsh/_{name}"), ("fish", f"fish/{name}.fish")):
            assert (tmp_path / file).read_text()
            if shutil.which(shell) is not None:
                done = run(shell, "-n", tmp_path / file)
                assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_packaged_command_ignores_a_users_environment(tmp_path: Path, name: str) -> None:
    path = DEBIAN / "bin" / name
    assert os.access(path, os.X_OK)
    first, _, rest = path.read_text().partition("\n")
    module, _, function = PROJECT["scripts"][name].partition(":")
    assert f"from {module} import {function}\n" in rest
    flags = first.removeprefix("#!/usr/bin/python3 ").split()
    # Ours in the place of Debian's, and a user with bad intentions.
    ours = [str(ROOT), *(place for place in sys.path if place.endswith("-packages"))]
    program, evil = tmp_path / name, tmp_path / "evil"
    rest = rest.replace('["/usr/lib/bccnd", "/usr/lib/python3/dist-packages"]', json.dumps(ours))
    program.write_text(rest)
    evil.mkdir()
    for victim in ("click", "json", "sitecustomize", "usercustomize"):
        (evil / f"{victim}.py").write_text("raise SystemExit('disturbed')\n")
    shutil.copy(evil / "click.py", tmp_path)
    places = {"PYTHONPATH": str(evil), "HOME": str(evil)}
    disturbed: Any = {**places, "PYTHONHOME": "", "PYTHONSTARTUP": str(evil / "click.py")}
    done = run(sys.executable, *flags, program, "--version", **disturbed)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(name)
    assert "disturbed" in run(sys.executable, program, "--version", **disturbed).stderr


PIN: Final = re.compile(r"^(\S+==\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def test_wheels_of_the_package_are_those_that_are_pinned() -> None:
    constraints = (ROOT / "packaging/constraints.txt").read_text().splitlines()
    for path in (ROOT / "packaging/wheels").iterdir():
        first, _, rest = path.read_text().partition("\n")
        assert (first[0], PIN.sub("", rest)) == ("#", ""), path.name
        assert {pin for pin, _ in PIN.findall(rest)} <= set(constraints), path.name
    text = (DEBIAN / "copyright").read_text()
    for pin, _ in PIN.findall((ROOT / "packaging/wheels/carried.txt").read_text().partition("\n")[2]):
        # The licence of every package that is carried is given.
        name = pin.partition("==")[0].replace("-", "_")
        assert re.search(rf"^(Files:)? debian/carried/{name}[/*-]", text, re.MULTILINE), name


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_packages_build_and_programs_compile_with_the_header(tmp_path: Path) -> None:
    """What the daemon's package does on a host: tests/systemd/test_install.py."""
    for program, package in (("dh", "debhelper dh-python"), ("cc", "gcc"), ("pkg-config", "pkg-config")):
        need(program, package)
    if not list((ROOT / ".cache/wheels").glob("*/.complete")):
        # Tests have no network to fetch it from.
        cannot_here("what the build takes has not been fetched: make deb")
    tree = tmp_path / "bccnd"
    for name in repository():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    shutil.copytree(ROOT / ".cache/wheels", tree / ".cache/wheels")
    made = run("sh", tree / "packaging/deb.sh", timeout=1700)
    assert made.returncode == 0, made.stdout + made.stderr
    packages = {path.name.partition("_")[0]: path for path in (tree / "dist").glob("*.*deb")}
    assert set(packages) == {"bccnd", "bccnd-dbgsym", "bccnd-dev"}
    if shutil.which("lintian"):
        said = run("lintian", "--fail-on=error,warning", packages["bccnd"], packages["bccnd-dev"], timeout=300)
        assert said.returncode == 0, said.stdout
    held = run("dpkg-deb", "-c", packages["bccnd"]).stdout
    found = sorted(re.findall(r"^(\S+) .*\./etc/bccnd/(keys|tls)/$", held, re.MULTILINE))
    assert found == [("drwx------", "keys"), ("drwx------", "tls")]
    root = tmp_path / "root"
    run("dpkg-deb", "-x", packages["bccnd-dev"], root)
    examples = root / "usr/share/doc/bccnd/examples"
    assert {path.parent.name for path in examples.glob("*/answer.*")} >= {"c", "perl", "python", "ruby"}
    environment: Any = {
        "PKG_CONFIG_LIBDIR": f"{root}/usr/share/pkgconfig",
        "PKG_CONFIG_SYSROOT_DIR": str(root),
        "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1",
    }
    assert run("pkg-config", "--modversion", "bccn", **environment).stdout.strip() == VERSION.partition(".dev")[0]
    shutil.copy(examples / "c/answer.c", tmp_path)  # without the header that lies beside it
    command = "cc $(pkg-config --cflags bccn) -Wall -Wextra -Werror -o answer answer.c"
    done = run("sh", "-c", f"cd {tmp_path} && {command}", **environment)
    assert (done.returncode, done.stderr) == (0, "")
