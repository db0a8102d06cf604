"""Counts the tails of epochs: what reports say was broadcast behind the last number that was received.

What is lost of a tail is what lies above the highest number up to its end that was received or counted before. It is
lost for the receivers that were listening when the report came, in the minute of that report; its channel is not known.
So a number is counted once, even if the source goes on: its next message follows the tail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline.hosts.receiving_hosts import Receivers
from bccnd.pipeline.records.source_runs import Tail
from bccnd.pipeline.records.task_records import MINUTE, RECORD, frame_of, of_kind, records_of

#: an epoch: its source and number
Place = tuple[str, int]
#: the highest number of epochs before each day
Reached = Mapping[Place, Mapping[str, int]]


def with_tails(reached: Reached, tails: Mapping[str, Sequence[Tail]], days: Collection[str]) -> Reached:
    """What epochs have reached before each of these days, by the tails of the days before as well."""
    by_epoch = {place: dict(by_day) for place, by_day in reached.items()}
    for src, of_source in tails.items():
        for tail in of_source:
            by_day = by_epoch.setdefault((src, tail.epoch), {})
            for day in days:
                if tail.day < day:
                    by_day[day] = max(tail.key, by_day.get(day, tail.key))
    return by_epoch


def tail_records(
    tails: Mapping[str, Sequence[Tail]],
    floors: Mapping[tuple[str, int, int], int],
    reached: Reached,
    receivers: Receivers,
) -> dict[str, list[dict[str, Any]]]:
    """The records that tails add: `epoch`, `link` and `missed`. ``floors`` has the highest number up to the end of a
    tail (src, epoch, end) that was received on days that are here, ``reached`` what is known of the days before."""
    records: dict[str, list[dict[str, Any]]] = {"epoch": [], "link": [], "missed": []}
    for src, of_source in tails.items():
        for tail in of_source:
            about = {"day": tail.day, "src": src, "epoch": tail.epoch, "minute": tail.ts // MINUTE}
            records["epoch"].append(
                about | dict.fromkeys(("hosts", "from_ts", "to_ts", "lo_key")) | {"hi_key": tail.key}
            )
            place = src, tail.epoch
            before = (floors.get((*place, tail.key)), reached.get(place, {}).get(tail.day))
            floor = max((key for key in before if key is not None), default=tail.key)
            if floor < tail.key:
                hosts = _listening(receivers, tail, src)
                records["link"] += [about | {"host": host, "lost_everywhere": tail.key - floor} for host in hosts]
                records["missed"].append(about | {"lo_key": floor + 1, "hi_key": tail.key, "host": None})
    return records


def _listening(receivers: Receivers, tail: Tail, src: str) -> Iterator[str]:
    """Yield the hosts that can hear a source and were listening when its tail was reported."""
    intervals = receivers.intervals.get(tail.day, ())
    for interval in intervals:
        if interval.start <= tail.moment < interval.end:
            yield from sorted(interval.hosts & receivers.audience(tail.day, src))


class ReportedTails:
    """The tails of days that are computed, and the records that they add."""

    def __init__(
        self,
        spark: SparkSession,
        messages: DataFrame,
        tails: Mapping[str, Sequence[Tail]],
        reached: Reached,
        receivers: Receivers,
    ) -> None:
        self._spark = spark
        floors: dict[tuple[str, int, int], int] = {}
        if tails:
            for row in of_kind(messages, "floor").collect():
                place = row["src"], row["epoch"], row["tail"]
                floors[place] = max(row["key"], floors.get(place, row["key"]))
        self._records = tail_records(tails, floors, reached, receivers) if tails else {}

    def added(self, kind: str, records: DataFrame) -> DataFrame:
        """Records of a kind, and what the tails add to them."""
        rows = self._records.get(kind)
        if not rows:
            return records
        table = pa.Table.from_batches([records_of(kind, rows)], RECORD)
        return records.unionByName(of_kind(frame_of(self._spark, table), kind))
