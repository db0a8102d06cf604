"""The archive of Java's classes, made and used by the real Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bccnd.pipeline.driver import java_class_archive
from tests.support import ROOT, wait

JAVA = shutil.which("java") or ""
DAY = 86_400
#: seconds to make an archive of Spark's classes, beside all other tests
PATIENCE = 600

pytestmark = pytest.mark.skipif(not JAVA, reason="there is no Java")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "bccnd"


def record(version: str) -> tuple[Path, list[str]]:
    """Run Java for a moment with the options for this version: the classes that it has recorded, and its command."""
    options = java_class_archive.options([version]).split()
    subprocess.run([JAVA, *options, "-version"], check=True, capture_output=True)
    return Path(options[0].partition("=")[2]), [JAVA, *options]


def test_an_archive_is_made_of_recorded_classes_and_used_for_the_same_version(cache: Path) -> None:
    recorded, command = record("1")
    (cache / "spark-unused.jsa").touch()
    os.utime(cache / "spark-unused.jsa", (0, 0))
    java_class_archive.make(recorded, command)
    use = java_class_archive.options(["1"])
    archive = Path(use.split()[0].partition("=")[2])
    assert sorted(cache.iterdir()) == [archive, archive.with_suffix(".lock")]
    # Java itself refuses to start where it cannot use it.
    subprocess.run([JAVA, "-Xshare:on", *use.split(), "-version"], check=True, capture_output=True)
    assert java_class_archive.options(["2"]).startswith("-XX:DumpLoadedClassList=")


def test_an_attempt_that_fails_is_repeated_after_a_day(cache: Path) -> None:
    recorded, command = record("1")
    recorded.write_text("no class list\n")
    java_class_archive.make(recorded, command)
    assert java_class_archive.options(["1"]) == ""
    (archive,) = cache.glob("*.jsa")
    assert not archive.stat().st_size
    os.utime(archive, (time.time() - DAY - 1,) * 2)
    java_class_archive.make(*record("1"))
    assert archive.stat().st_size


def test_without_a_usable_cache_java_is_started_as_ever(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cache.parent)
    cache.write_text("no folder")
    assert java_class_archive.options(["1"]) == ""
    for place in (f"{cache.parent}/with blank", "relative/cache", "/proc/nothing/can/be/made/here"):
        monkeypatch.setenv("XDG_CACHE_HOME", place)
        assert java_class_archive.options(["1"]) == "", place


@pytest.mark.slow
def test_the_first_complete_run_has_the_archive_made_in_the_background(cache: Path) -> None:
    run = """
import sys
from pathlib import Path
from bccnd.pipeline.driver import spark_session
for complete in (False, True):
    spark = spark_session.start("local[1]", size=0, memory="1g")
    java = spark.sparkContext._gateway.proc.pid
    print(spark.range(3).count(), sys.argv[1] in Path(f"/proc/{java}/maps").read_text())
    spark_session.stop(complete=complete)
    print(len(list(Path(sys.argv[1]).glob("*.classes"))))
"""

    def output() -> tuple[str, str]:
        command = [sys.executable, "-c", run, str(cache)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert output() == ("3 False\n0\n3 False\n1\n", "")
    wait(lambda: not list(cache.glob("*.classes")), "the archive", PATIENCE)
    assert output() == ("3 True\n0\n3 True\n0\n", "")
