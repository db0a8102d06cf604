"""The files for Kubernetes: they fit together, and the page about containers speaks of what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from bccnd.config import read
from tests.support import ROOT

FOLDER: Final = ROOT / "packaging/kubernetes"
PAGE: Final = (ROOT / "docs/containers.md").read_text()


def objects() -> dict[str, Any]:
    """The objects of both files, by kind."""
    files = (path.read_text() for path in sorted(FOLDER.glob("*.yaml")))
    return {one["kind"]: one for text in files for one in yaml.safe_load_all(text)}


def mounts(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The volumes of a pod's one container, by the path at which they are mounted."""
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    return {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}


def test_the_daemon_finds_its_configuration_and_its_key() -> None:
    found = objects()
    assert found.keys() == {"ConfigMap", "DaemonSet", "Pod"}
    daemon_set, files = found["DaemonSet"]["spec"], found["ConfigMap"]["data"]
    labels = daemon_set["template"]["metadata"]["labels"]
    assert daemon_set["selector"]["matchLabels"].items() <= labels.items()
    daemon = daemon_set["template"]["spec"]
    mounted = mounts(daemon)
    *_, path = daemon["containers"][0]["command"]
    config = mounted[str(Path(path).parent)]["configMap"]
    assert config["name"] == found["ConfigMap"]["metadata"]["name"]
    text = files[Path(path).name]
    read(text, path, resolve=False)
    settings = yaml.safe_load(text)
    (key,) = settings["integrity"]["keys"]
    secret = mounted[str(Path(key).parent)]["secret"]
    # A key that others can read is refused.
    assert secret["defaultMode"] & 0o077 == 0
    assert f"secret generic {secret['secretName']} --from-file={Path(key).name}" in PAGE
    probe = daemon["containers"][0]["livenessProbe"]["httpGet"]
    assert settings["metrics"]["listen"] == f"{probe['host']}:{probe['port']}"
    assert daemon["hostNetwork"]
    assert daemon["hostPID"]


def test_a_pod_reaches_the_bus_of_its_node() -> None:
    found = objects()
    daemon, pod = found["DaemonSet"]["spec"]["template"]["spec"], found["Pod"]["spec"]
    bus = yaml.safe_load(found["ConfigMap"]["data"]["bccnd.yaml"])["bus"]
    folder = str(Path(bus["path"]).parent)
    assert mounts(daemon)[folder]["hostPath"]["path"] == mounts(pod)[folder]["hostPath"]["path"] == folder
    for one in (daemon, pod):
        assert one["securityContext"]["supplementalGroups"] == [bus["group"]]
    assert {"name": "BCCN_SOCKET", "value": bus["path"]} in pod["containers"][0]["env"]
    assert f"`supplementalGroups: [{bus['group']}]`" in PAGE
    assert folder in PAGE
