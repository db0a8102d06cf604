"""What is worked out of whole columns of tables."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from bccnd.pipeline.report import words


def micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(column, pa.timestamp("us", tz="UTC")), pa.int64())


def skipped(rows: pa.Table) -> pa.ChunkedArray:
    """The numbers that sources have skipped, without those that number anew from the clock, in microseconds."""
    ahead = pc.subtract(rows["first_key"], pc.subtract(micros(rows["first_ts"]), 2**63 - 1))
    by_clock = pc.fill_null(pc.less(pc.abs(ahead), words.DAY), False)
    return pc.if_else(by_clock, 0, pc.fill_null(rows["skipped"], 0))


def present(rows: pa.Table) -> pa.Table:
    """Rows of link_loss in which a host that was not there at all has not lost what nobody saw either."""
    seen = rows["any_seen"]
    gone = pc.and_(pc.equal(seen, rows["not_listening"]), pc.greater(seen, 0))
    for name, there in (("expected", seen), ("lost_everywhere", pa.scalar(0, pa.int64()))):
        column = pc.if_else(gone, there, rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


def host_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`facts.sending_host` of a whole column."""
    return pc.replace_substring_regex(pc.cast(column, pa.string()), pattern="(?s)/.*", replacement="")
