"""What Prometheus sees of the recorder: numbers are read when it asks, and cost nothing before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from bccnd.errors import JournalError, StartError
from bccnd.net.http import REASONS, HttpServer
from bccnd.net.listen import listen_tcp
from bccnd.net.loop import Loop
from bccnd.recorder.recorder import Recorder
from bccnd.version import VERSION

_PREFIX = "bccnd_recorder_"


class Figures(Collector):
    """``refused`` counts requests of this listener that got no page, by reason."""

    def __init__(self, recorder: Recorder, refused: Mapping[str, int] = MappingProxyType({})) -> None:
        self._recorder = recorder
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        worker, spool, writer = self._recorder.maintenance, self._recorder.spool, self._recorder.rotating_log
        for name, help_text, value in (
            ("records", "Datagrams that were put into the log", writer.records),
            ("journal_records", "Records in finished files", worker.rows),
            ("journal_bytes", "Bytes of finished files", worker.bytes),
            ("files", "Finished files", worker.files),
            ("files_removed", "Files that retention has removed", worker.removed),
            ("tap_gap_records", "Records lost between the daemon and the recorder", writer.gaps),
            ("socket_drops", "Datagrams the kernel dropped before the daemon, while recording", writer.drops),
            ("logs_recovered", "Logs that an earlier recorder had left", worker.recovered),
            ("logs_torn", "Logs that ended in the midst of a record", worker.torn),
            ("logs_set_aside", "Logs that could not be read", worker.bad),
            ("logs_removed", "Logs set aside that were removed, as there are newer ones", spool.removed),
        ):
            yield CounterMetricFamily(_PREFIX + name, help_text, value)
        for name, help_text, counts in (
            ("dropped_records", "Records that were not kept", writer.dropped),
            ("visitors_refused", "Requests to this listener that got no answer", self._refused),
        ):
            family = CounterMetricFamily(_PREFIX + name, help_text, labels=["reason"])
            for reason, count in counts.items():
                family.add_metric([reason], count)
            yield family
        for name, help_text, state in (
            ("recording", "Whether records are being kept", writer.log is not None),
            ("paused", "Whether recording waits for room", bool(writer.paused)),
            ("clock_doubted", "Whether old files are kept, as the clock is not trusted", bool(worker.doubt)),
            ("journal_reachable", "Whether the journal could be written to the last time", not worker.trouble),
            ("spool_bytes", "Bytes of logs that are not yet in the journal", writer.spooled),
            ("spool_limit_bytes", "Bytes of logs beyond which recording pauses", self._recorder.settings.spool_size),
            ("logs_waiting", "Logs that wait to become files of the journal", worker.logs),
            ("behind_seconds", "Seconds for which the oldest log has waited; 0: none waits", worker.behind),
        ):
            yield GaugeMetricFamily(_PREFIX + name, help_text, float(state))
        yield InfoMetricFamily(_PREFIX + "build", "The running version", {"version": VERSION})


def serve(recorder: Recorder, loop: Loop, listen: tuple[str, int], hosts: Iterable[str] = ()) -> HttpServer:
    """Serve the figures at an address, on the recorder's loop; ``hosts`` are further names of this host. Raises
    JournalError: cannot_listen."""
    registry = CollectorRegistry()
    refused = dict.fromkeys(REASONS, 0)
    registry.register(Figures(recorder, refused))
    ProcessCollector(registry=registry)

    def count_refused(reason: str) -> None:
        refused[reason] += 1

    def metrics(accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(registry)

    try:
        listener = listen_tcp(*listen, setting="recorder.metrics.listen")
    except StartError as error:
        raise JournalError("cannot_listen", error.detail, error.remedy) from error
    return HttpServer(loop, listener, {"/metrics": metrics, "/": metrics}, count_refused, hosts)
