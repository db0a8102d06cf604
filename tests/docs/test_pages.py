"""What the documents name exists: commands, options, files, headings; their configurations load."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from bccnd.config import read
from docs.site import DOCS, INDEX, documents, navigation
from tests.docs.lookup import wrong
from tests.docs.pages import anchors, commands, links, named_commands, pages, read_page
from tests.support import ROOT

#: configurations of other programs, by a key
_FOREIGN: Final = re.compile(r"^(?:scrape_configs|apiVersion|jobs|test):", re.MULTILINE)


def test_commands_exist() -> None:
    found = [(page, command) for page in pages() for command in named_commands(page)]
    assert found
    faults = [f"{page}:{one.line}: {fault}" for page, one in found if (fault := wrong(one.text))]
    assert faults == []


def quoted_in_messages() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "bccnd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for command in re.findall(r"'((?:bccnd?|systemctl|journalctl) [^'\n]+)'", node.value):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", command


def test_commands_in_messages_exist() -> None:
    found = list(quoted_in_messages())
    assert found
    assert [f"{where}: {fault}" for where, command in found if (fault := wrong(command))] == []


def test_links_resolve() -> None:
    lost = []
    for page in pages():
        for target in links(read_page(page)[1]):
            name, _, anchor = target.partition("#")
            path = (ROOT / page).parent / name if name else ROOT / page
            known = not anchor or path.suffix != ".md" or anchor in anchors(path.resolve())
            if not path.exists() or not known:
                lost.append(f"{page}: {target}")
    assert lost == []


def test_shell_blocks_can_be_read_and_configurations_load() -> None:
    for page in pages():
        for block in read_page(page)[0]:
            if block.kind == "sh":
                assert commands(block), f"{page}:{block.line}"
            elif block.kind == "yaml" and not _FOREIGN.search(block.text):
                read(block.text, f"{page}:{block.line}", resolve=False)


def test_every_document_is_in_the_navigation_once() -> None:
    listed = [place for _, entries in navigation((DOCS / INDEX).read_text()) for _, place in entries]
    # README.md is the first page of the site, in the place of the index.
    assert sorted(listed) == documents()


def test_the_files_for_kubernetes_fit_together() -> None:
    texts = (path.read_text() for path in sorted((ROOT / "packaging/kubernetes").glob("*.yaml")))
    found: dict[str, Any] = {one["kind"]: one for text in texts for one in yaml.safe_load_all(text)}
    template = found["DaemonSet"]["spec"]["template"]
    assert found["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    daemon = template["spec"]
    (container,) = daemon["containers"]
    volumes = {volume["name"]: volume for volume in daemon["volumes"]}
    mounted = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    path = Path(container["command"][-1])
    assert mounted[str(path.parent)]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    text = found["ConfigMap"]["data"][path.name]
    read(text, str(path), resolve=False)
    settings = yaml.safe_load(text)
    (key,) = settings["integrity"]["keys"]
    # A key that others can read is refused.
    assert mounted[str(Path(key).parent)]["secret"]["defaultMode"] & 0o077 == 0
    probe = container["livenessProbe"]["httpGet"]
    assert settings["metrics"]["listen"] == f"{probe['host']}:{probe['port']}"
    bus = settings["bus"]
    pod = found["Pod"]["spec"]
    for one in (daemon, pod):
        assert one["securityContext"]["supplementalGroups"] == [bus["group"]]
        assert str(Path(bus["path"]).parent) in str(one["volumes"])
