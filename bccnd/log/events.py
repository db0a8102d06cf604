"""The log's events: their names, ids, levels and fields.

Invariant: an id stands for one event forever. Never change or reuse one; a published event that is no longer logged
keeps its line. systemd/bccnd.catalog explains each event to operators.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple


class Event(NamedTuple):
    """One kind of event. ``fields`` are always present; the logger is ``bccnd.<part>``."""

    name: str
    id: str
    level: int
    fields: tuple[str, ...] = ()
    part: str = ""


#: a local program, see `log.peer_fields`
_PROGRAM: Final = ("uid", "pid", "program")
_CLIENT: Final = (*_PROGRAM, "identity")
#: datagrams that were refused
_REFUSED: Final = ("verdict", "count", "drop")
#: why something was refused or dropped, and its name in the metrics
_REASON: Final = ("reason", "drop")

#: events by the part that logs them
_BY_PART: Final[dict[str, tuple[Event, ...]]] = {
    "daemon": (
        Event("ready", "5a9a553dfb5e49f7bc41421f1b95b4d9", logging.INFO, ("version",)),
        Event("stopped", "04a5dfc98d7540519221e02486ded4ee", logging.INFO),
        Event("start_refused", "7c6a2ad07e03478db77efa0592059d53", logging.ERROR, ("reason",)),
        Event("reload_applied", "18c6bfe61bc547acb96bb4e9b6c5b8b0", logging.INFO),
        Event("reload_refused", "8bc310d0fed74173a66e0dbfa37e5135", logging.ERROR, ("reason",)),
        Event("restart_needed", "4926109f26c74e929677b8215020b5a8", logging.WARNING, ("setting",)),
        Event("doubtful_setting", "cc906405faba4b94a0316459a95b12b8", logging.WARNING, ("setting",)),
        Event("taken_over", "dae821e70433467a9c72f37440135cbe", logging.INFO),
        Event("state_dropped", "ffb8230f3bb94620a972202bc77c7c5f", logging.WARNING, ("reason", "drop")),
        Event("crashed", "6cc366a78085456cbbb0a0060787fb53", logging.ERROR, ("drop",)),
        Event("not_kept", "77b2b655c4bf4053aaed4947fdcbd92f", logging.WARNING, ("error", "drop")),
        Event("manager_silent", "7339b6a72fde40b698dfb2ef1d0d555c", logging.WARNING, ("drop",)),
        Event("out_of_descriptors", "5cabbdf0173c47509968d62bd55cbe2f", logging.WARNING, ("error",)),
        Event("accept_failed", "ec73222410844de7a943a2e25cefc549", logging.ERROR, ("error",)),
        Event("internal_error", "17c15c081bde47e2b719b94d6d6b5ab6", logging.ERROR),
        Event("lines_lost", "c052df9a616c44dfb9c967021177ef8c", logging.WARNING, ("count", "drop")),
        # drops that have no event of their own, see `drop_catalog`
        Event("dropped", "e3f80035add14e3cb2dde33494ee7858", logging.WARNING, ("drop", "count")),
    ),
    "segment": (
        Event("kernel_drops", "1173a348475248939e0a40b114a49ae9", logging.WARNING, ("segment", "count", "drop")),
        Event("datagrams_refused", "9dac7a539ad04e0e89b9327633ef19b3", logging.WARNING, ("segment", *_REFUSED)),
        Event("identity_conflict", "ba967b9b766f40bf87ac9ed6bdc3bd50", logging.WARNING, ("identity", "peer", "drop")),
        Event("send_failed", "1c1c42b7ce104c12a4c68a0b5f80a957", logging.WARNING, ("segment", "error", "drop")),
        Event("receive_failed", "79afd94a4558430da863d48589bd56a4", logging.WARNING, ("segment", "error")),
        Event("interface_gone", "f59cac9d55ef43eabf39e8bc3d625598", logging.WARNING, ("segment", "interface")),
        Event("interface_back", "c06dc7cb58df4904bd78b31967933687", logging.INFO, ("segment", "interface")),
        Event("interface_refused", "a358db5ae22243fa914812662390671f", logging.WARNING, ("segment", "interface")),
        Event("interface_renamed", "a7ea455bdaaf4895b1c4f2f831654331", logging.WARNING, ("segment", "interface")),
    ),
    "bus": (
        Event("client_slow", "9417fdf862004f55a7c3a57e757b41fe", logging.WARNING, (*_REASON, *_CLIENT)),
        Event("client_not_reading", "538ccf6e2bb146bfae5d1880cc270d4e", logging.WARNING, _CLIENT),
        Event("client_ended", "6a149206673b4a4496dfc99e549f4503", logging.WARNING, (*_REASON, *_CLIENT)),
        Event("client_refused", "8d39f4a94ab54ef7bd0098155637d2c6", logging.WARNING, (*_REASON, *_PROGRAM)),
        Event("not_permitted", "09280d8f14444f8ab05b7d8e6efe67f8", logging.WARNING, (*_CLIENT, "channel", "drop")),
        Event("frame_refused", "355ffc46f00043058fc82e1accb10c80", logging.WARNING, (*_REASON, *_CLIENT)),
    ),
    "recorder": (
        Event("recording", "7b2e42ffdb1d41dc8fe198a0508285c5", logging.INFO, ("journal",)),
        Event("recording_ended", "09e21350d8834b38b93bac831b64fe2a", logging.INFO, ("journal",)),
        Event("recording_paused", "37b481acb0704c83b8c79a88d2960146", logging.WARNING, ("error", "drop")),
        Event("recording_resumed", "6ca981797ac04a31928047cf0e86f09c", logging.INFO, ("count",)),
        Event("session_begun", "514fd86487b840e3b5dbaa1aba712296", logging.WARNING, ("cause",)),
        Event("records_lost", "649f6de275b14bda96447f3b0200e8d1", logging.WARNING, ("count", "drop")),
        Event("daemon_away", "6d02266228984c8bb361add538280966", logging.WARNING, ("reason",)),
        Event("journal_unreachable", "d45e92b369404ecc91df33098d3e641a", logging.WARNING, ("error",)),
        Event("journal_reached", "aac75cc2fc8e4c06a52b6d12b4c025a3", logging.INFO),
        Event("age_limit_suspended", "527bf30f5a9d4f94a67dcc3be1e233d7", logging.WARNING, ("cause",)),
        Event("age_limit_resumed", "ecba40a5620e409f898b7f0d46f090b8", logging.INFO),
        Event("log_gone", "ca9deac810524f17856201cf085dcbe4", logging.WARNING, ("file",)),
        Event("log_recovered", "9cbc9c633fda4550b2795bca64a6de20", logging.INFO, ("count",)),
        Event("log_set_aside", "0e3e5785b1d047a2b65d2ecee2d7d361", logging.WARNING, ("file", "drop")),
    ),
    "gateways": (
        Event("gateway_ready", "716b4a1669bc463f81fd9a39b6065de5", logging.INFO, ("gateway",)),
        Event("gateway_refused", "efe2e55cd68a419cb58da770d2f304b0", logging.ERROR, ("gateway", "reason")),
        Event("gateway_ended", "465896325a6a4369929fbe66297898f6", logging.WARNING, ("gateway", "reason")),
        Event("gateway_dropped", "5ef95cd3c4e646d48dff8529adc62113", logging.WARNING, ("gateway", *_REASON, "count")),
        Event("peer_connected", "d90d6cea75904fa281bf163730bdc3e8", logging.INFO, ("gateway", "peer")),
        Event("peer_gone", "cf6506ffaab746db8ebeb9a02e81e3b5", logging.INFO, ("gateway", "peer")),
        Event("peer_unreachable", "121d7976edba4a66b427a30713333f78", logging.WARNING, ("gateway", "peer")),
        Event("peer_refused", "a9e1ef9c15e84e178eebdf9bcdf0ee24", logging.WARNING, ("gateway", "peer", *_REASON)),
        Event("peer_ended", "f6117075dc24456a86c9d71345098e72", logging.WARNING, ("gateway", "peer", *_REASON)),
        Event("state_not_written", "3b49cb3e02dc4a89b63aabac54dd6a97", logging.WARNING, ("error",)),
    ),
}

#: all events by name
EVENTS: Final = {event.name: event._replace(part=part) for part, events in _BY_PART.items() for event in events}
