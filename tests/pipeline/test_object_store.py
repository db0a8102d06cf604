"""Journal and tables on an S3 server: the tables of a build, and whole runs only for readers, whatever is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from bccnd.errors import PipelineError
from bccnd.journal.files import open_root
from bccnd.pipeline.driver.build import build, once
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.report.html_page import report
from tests.pipeline import object_store
from tests.pipeline.commands import bccn, kill_after
from tests.pipeline.threedays import content, files
from tests.refusals import refused


@pytest.mark.slow
def test_readers_see_whole_runs_only(small: Path, built: Path, s3: str, tmp_path: Path) -> None:
    journal, tables = (object_store.place(s3, f"{tmp_path.name}/{name}") for name in ("journal", "tables"))
    bucket, root = open_root(journal)
    last = files(small)[-1].relative_to(small)
    pafs.copy_files(str(small), root, destination_filesystem=bucket)
    bucket.delete_file(f"{root}/{last}")
    assert once(EmbeddedRunner(), journal, tables).days == ["2026-03-01", "2026-03-02", "2026-03-03"]
    old, new = content(tables), content(built)
    assert old != new
    pafs.copy_files(str(small / last), f"{root}/{last}", destination_filesystem=bucket)
    # as people write it: the server and the keys in the environment, Hadoop's name for S3
    where = f"s3a://{object_store.BUCKET}/{tmp_path.name}"
    words = ("pipeline", "stream", f"{where}/journal", "--out", f"{where}/tables", "--once", "--embedded")
    environment = {"AWS_ENDPOINT_URL": f"http://{s3}", **object_store.KEYS}
    for step in ("computing", "committing the tables", None):
        status, _, errors = bccn(*words, step=step, then=kill_after(0.2), environment=environment)
        assert content(tables) in (old, new)
        assert status == (-signal.SIGKILL if step else 0), errors
    assert content(tables) == new
    build(EmbeddedRunner(), journal, tables)
    assert content(tables) == new
    # a page is made of them in the bucket, as it is beside it
    page = object_store.place(s3, f"{tmp_path.name}/page")
    path, findings = report(tables, page)
    assert path.startswith(f"s3://key:secret@{object_store.BUCKET}/{tmp_path.name}/page/index.html?")
    assert findings == report(tables, str(tmp_path))[1] != []
    with bucket.open_input_stream(f"{open_root(page)[1]}/index.html") as file:
        assert file.read() == (tmp_path / "index.html").read_bytes()


@pytest.mark.slow
def test_an_object_store_that_is_away_is_named() -> None:
    with refused("no_place", kind=PipelineError):
        Lake("s3://x/y?endpoint_override=127.0.0.1:1&scheme=http")
