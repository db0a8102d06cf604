"""What Prometheus sees of the recorder: how far behind it is, what it was made of, and of its process."""

from __future__ import annotations

import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from bccnd.bus.requests.recorder_reports import RECORDED
from bccnd.errors import JournalError
from bccnd.net.loop import Loop
from bccnd.recorder.metrics import Figures, serve
from bccnd.recorder.recorder import Recorder
from bccnd.version import VERSION
from tests.recorder.material import JOURNAL, NOON, packet, recorder_in, wait_for_child, write_log
from tests.support import free_port
from tests.turning import turning

#: seconds since which a log waits that was left
AGE = 500.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    started = Loop()
    yield started
    started.close()


@contextmanager
def recorder(folder: Path, loop: Loop) -> Iterator[Recorder]:
    """A recorder of what is in the spool; none of it is worked on before its worker is started."""
    made = recorder_in(folder, loop)
    yield made
    made.maintenance.end()
    made.spool.close()


def leave_log(tmp_path: Path, number: int, age: float) -> int:
    """A log that a recorder has left so many seconds ago; its size."""
    path = tmp_path / "spool" / f"{JOURNAL}-{number:08d}.log"
    path.parent.mkdir(exist_ok=True)
    write_log(path, [packet(range(10), NOON)], alive=[NOON + 1])
    os.utime(path, (time.time() - age, time.time() - age))
    return path.stat().st_size


def value(made: Recorder, name: str, **labels: str) -> float:
    registry = CollectorRegistry()
    registry.register(Figures(made))
    value = registry.get_sample_value(f"bccnd_recorder_{name}", labels)
    assert value is not None
    return value


def test_the_oldest_log_says_how_far_behind_the_journal_is(tmp_path: Path, loop: Loop) -> None:
    sizes = leave_log(tmp_path, 1, 2 * AGE) + leave_log(tmp_path, 2, AGE) + leave_log(tmp_path, 3, AGE / 2)
    with recorder(tmp_path, loop) as made:
        assert 2 * AGE <= value(made, "behind_seconds") < 2 * AGE + 60
        assert (value(made, "logs_waiting"), value(made, "spool_bytes")) == (3, sizes)
        (tmp_path / "spool" / f"{JOURNAL}-00000001.log").unlink()  # by an operator
        assert value(made, "behind_seconds") == 0
        made.maintenance.start()
        wait_for_child(lambda: value(made, "logs_waiting") == 0, "the logs to be in the journal")
        assert value(made, "behind_seconds") == value(made, "spool_bytes") == 0
        assert value(made, "logs_recovered_total") == 2
        assert value(made, "spool_limit_bytes") == 5 << 20
        assert value(made, "build_info", version=VERSION) == 1
        # The daemon takes no other names from it.
        assert set(made.losses) == set(RECORDED)


def test_the_metrics_page_describes_the_process_too(tmp_path: Path, loop: Loop) -> None:
    port = free_port()
    with recorder(tmp_path, loop) as made:
        server = serve(made, loop, ("127.0.0.1", port))
        with pytest.raises(JournalError, match=r"recorder\.metrics\.listen"):
            serve(made, loop, ("127.0.0.1", port))
    stranger = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": "elsewhere.example.org"})
    with turning(loop):
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(stranger, timeout=10)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    server.close()
    for name in ("process_start_time_seconds", "process_open_fds", "process_max_fds"):
        assert re.search(rf"^{name} [1-9]", page, re.MULTILINE), name
    assert 'bccnd_recorder_visitors_refused_total{reason="foreign_host"} 1.0' in page
