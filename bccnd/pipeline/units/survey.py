"""Looks over days before they are computed: a sample of messages for comparing clocks, and what reports say."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from bccnd.fleet.report_format import CHANNEL
from bccnd.pipeline import schema
from bccnd.pipeline.lake.place import Root
from bccnd.pipeline.reports import Report, sent_ranges
from bccnd.pipeline.schema import TableFile
from bccnd.pipeline.units import engine as duck
from bccnd.pipeline.units import work
from bccnd.pipeline.units.work import Task

#: the sample of a run
SAMPLES: Final = "samples"
SAMPLE: Final = pa.schema(
    [
        ("message", pa.uint64()),
        ("host", pa.string()),
        ("journal_id", pa.string()),
        ("rec", pa.int64()),
        ("us", pa.int64()),
    ]
)
_COLUMNS: Final = {
    "host": "VARCHAR",
    "journal_id": "VARCHAR",
    "rec_no": "BIGINT",
    "ts": "TIMESTAMPTZ",
    "verdict": "VARCHAR",
    "src": "VARCHAR",
    "seq_key": "BIGINT",
    "chan": "VARCHAR",
}
_REPORTS: Final = f"""
SELECT host, journal_id, rec_no, epoch_us(ts), src, chan, payload FROM reports
WHERE starts_with(chan, '{CHANNEL.decode()}') AND verdict IN ('accepted', 'reordered', 'restart')
  AND src IS NOT NULL AND payload IS NOT NULL ORDER BY ALL
"""


def run_survey(task: Task) -> list[TableFile]:
    """Survey days by the hosts' own clocks, all shares together."""
    root, journal = Root(task.tables), Root(task.journal)
    written: list[TableFile] = []
    for day in task.days:
        files, parts = work.get(root, task, f"survey-{day}")
        with duck.opened(task.memory_mb, task.threads) as engine:
            duck.set_variables(engine, parts=parts)
            duck.read(engine, "obs", journal, [path for path, _ in files], _COLUMNS)
            query, folder = duck.sql("samples"), f"{task.folder}/{SAMPLES}"
            written += duck.write(engine, root, task.run, folder, day, query, SAMPLE)
            with_payload = [path for path, has_payload in files if has_payload]
            duck.read(engine, "reports", journal, with_payload, {**_COLUMNS, "payload": "BLOB"})
            ranges = sent_ranges(Report(*row) for row in engine.execute(_REPORTS).fetchall())
            columns = duck.types(schema.STATES[schema.SENT])
            duck.give(engine, "ranges", columns, ranges)
            written += duck.write(engine, root, task.run, schema.SENT, day, "FROM ranges ORDER BY ALL")
    return written
