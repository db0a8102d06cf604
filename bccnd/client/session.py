"""What a connection to the daemon is beyond its socket: what was asked for, what has come, and when to try again.

Law: no socket and no clock; both are told. What a program holds (subscriptions, tag, modes) is said again to every
daemon that it meets, before anything else; what was sent is never sent again. Everything that came is an event or
the answer to a question, and where something may be missing an event says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

from bccnd.client.message import Message, to_bytes, to_text
from bccnd.core import frames, targets
from bccnd.core.bccn1 import MAX_CHAN, check_chan
from bccnd.errors import BadDatagram, BadFrame, BusError

#: seconds to wait for the daemon's answer, or for the daemon to come back
PATIENCE: Final = 5.0
#: seconds between attempts to reach it again: the first one, and what doubling ends at
SHORTEST: Final = 0.05
LONGEST: Final = 2.0

SOFT: Final = ("queue", "discard", "block", "error")
HARD: Final = ("discard", "block", "error")
ORDERS: Final = ("queue", "stack", "random")

#: what who is turned away at the door is told
TURNED_AWAY: Final = ("too_many_clients", "too_many_clients_of_user", "not_admitted")

#: what every connection asks for by itself, and does without where the daemon is too old to know it
_OPTIONAL: Final = (to_text(frames.META_ON), to_text(frames.BATCH_ON))

#: refusals that name something else than the request that they are about
_ABOUT: Final = {frames.STATS: "unknown_listing", frames.TAG: "bad_tag"}
#: requests that have no answer but a refusal: a sync behind them says that there was none
_UNANSWERED: Final = (frames.TAG, frames.LOCAL_ON, frames.LOCAL_OFF)


class Gap(NamedTuple):
    """At this place ``lost`` messages were dropped, because this client did not read fast enough."""

    lost: int


class Refusal(NamedTuple):
    """The daemon refused a frame of ours; ``key`` is the channel or pattern it was about. With an empty key and
    ``too_many_clients``, ``too_many_clients_of_user`` or ``not_admitted`` it does not serve us at all, for now."""

    reason: str
    key: str


class Reconnected(NamedTuple):
    """Here the connection was away, for ``seconds`` at most. What was sent in the meantime is missing, and nobody
    knows how much that was; subscriptions, tag and modes are in force again."""

    seconds: float


Event = Message | Gap | Refusal | Reconnected


class Question:
    """A request whose answer comes under the same key. ``on_done`` is called once there is nothing more to wait for:
    an answer, a refusal, or the end of the connection that it was asked on (``lost``)."""

    __slots__ = ("abandoned", "answer", "key", "lost", "on_done", "payload", "published", "refusal")

    def __init__(self, key: bytes, payload: bytes | None = None) -> None:
        self.key = key
        self.payload = payload
        self.answer: bytes | None = None
        self.refusal: Refusal | None = None
        self.lost = False
        #: nobody waits any more
        self.abandoned = False
        #: messages published before it
        self.published = 0
        self.on_done: Callable[[], None] | None = None

    @property
    def frame(self) -> bytes:
        return frames.request(self.key, self.payload)

    @property
    def done(self) -> bool:
        return self.answer is not None or self.refusal is not None or self.lost

    def settle(self, *, answer: bytes | None = None, refusal: Refusal | None = None, lost: bool = False) -> None:
        self.answer, self.refusal, self.lost = answer, refusal, lost
        if self.on_done is not None:
            self.on_done()

    def result(self) -> bytes:
        """The answer. Raises BusError for a refusal."""
        if self.refusal is not None:
            raise BusError(self.refusal.reason, f"the daemon refused {to_text(self.key)}")
        return self.answer or b""


class Session:
    """One program's dealings with the daemons that it meets one after another.

    ``welcome`` is true while frames may be sent. ``events`` wait to be taken; ``missed`` and ``reconnects`` count
    what was told by those that were. With ``batch`` every daemon is asked to send many messages in one packet.
    """

    def __init__(self, *, batch: bool = False) -> None:
        self.events: deque[Event] = deque()
        self.missed = 0
        self.reconnects = 0
        #: who calls for the first time may speak at once: nothing that the daemon has to know goes before
        self.welcome = True
        #: why the daemons that we reach do not serve us; empty when they do
        self.turned_away = ""
        self._held: dict[bytes, int] = {}
        self._tag = b""
        self._modes: dict[str, bytes] = batch_mode(True) if batch else {}
        self._questions: deque[Question] = deque()
        self._tokens = count(1)
        self._wait = SHORTEST
        self._greeting: Question | None = None
        #: since when the connection is away, until something has come over the next one
        self._away_since: float | None = None
        #: refusals over a connection on which nothing else has come
        self._held_back: list[Refusal] = []
        self._heard = False
        self._told = ""
        self._published = 0
        self._confirmed = 0
        self._in_doubt = False

    # -- what is held

    def subscribed(self, pattern: bytes) -> None:
        self._held[pattern] = self._held.get(pattern, 0) + 1

    def unsubscribed(self, pattern: bytes) -> None:
        left = self._held.get(pattern, 0) - 1
        if left > 0:
            self._held[pattern] = left
        else:
            self._held.pop(pattern, None)

    def tagged(self, tag: bytes) -> None:
        self._tag = tag

    def set_mode(self, name: str, frame: bytes) -> None:
        self._modes[name] = frame

    def published(self) -> None:
        self._published += 1

    def opening(self) -> list[bytes]:
        """What every daemon is told first."""
        said = [frames.request(frames.META_ON)]
        if self._tag:
            said.append(frames.request(frames.TAG, self._tag))
        return [*said, *self._modes.values()]

    def greeting(self) -> list[bytes]:
        """What is said to a daemon that we meet again; when the last of it is answered, we are welcome."""
        said = self.opening()
        for pattern, times in self._held.items():
            said += [frames.subscribe(pattern)] * times
        self._greeting = Question(frames.SYNC, self._token())
        self.asked(self._greeting)
        return [*said, self._greeting.frame]

    # -- questions

    def _token(self) -> bytes:
        # A sync is answered with its own words: an answer that came too late is not taken for another one's.
        return b"%d of this client" % next(self._tokens)

    def sync(self) -> Question:
        return Question(frames.SYNC, self._token())

    def before(self, question: Question) -> list[Question]:
        """What is to be sent, one after the other, to have a question answered: itself last.

        Where somebody has given up on an answer that may still come, or may have been dropped on the way, a sync goes
        before: its echo says that what was asked earlier is over.
        """
        doubtful = question.key != frames.SYNC and any(one.abandoned for one in self._questions)
        if not doubtful:
            return [question]
        marker = self.sync()
        marker.abandoned = True
        return [marker, question]

    def asked(self, question: Question) -> None:
        """A question was sent."""
        question.published = self._published
        self._questions.append(question)

    def tagging(self, tag: bytes) -> list[Question]:
        """What is to be sent to be called something else; the last one's echo says that nobody has objected."""
        return [Question(frames.TAG, tag), self.sync()]

    def locally(self, on: bool) -> list[Question]:
        """What is to be sent to speak to this host only, or no more; the echo says that nobody has objected."""
        return [Question(_local(on)), self.sync()]

    def spoken_locally(self, on: bool) -> None:
        """The daemon knows, and the next one is to be told."""
        self.set_mode("local", frames.request(_local(on)))

    def sure(self) -> bool:
        """Whether the last sync has confirmed all that was published before it: not where a daemon had gone before it
        had confirmed what it had taken. Says no once."""
        sure = not self._in_doubt
        self._in_doubt = False
        return sure

    def take_refusals(self) -> list[Refusal]:
        """Take the refusals from among the events."""
        refused = [event for event in self.events if isinstance(event, Refusal)]
        if refused:
            others = [event for event in self.events if not isinstance(event, Refusal)]
            self.events.clear()
            self.events.extend(others)
        return refused

    # -- what comes

    def take(self) -> Event:
        """The next event; there must be one."""
        event = self.events.popleft()
        if isinstance(event, Message):
            pass
        elif isinstance(event, Gap):
            self.missed += event.lost
        elif isinstance(event, Reconnected):
            self.reconnects += 1
        return event

    def read(self, packet: bytes, now: float, clock_ns: int) -> None:
        """Make events or an answer of a packet that came ``now`` (monotonic). Raises BadFrame; of a batch that is not
        in order, nothing is taken.

        Batches come also unasked: some may be on their way to who does not want them any more.
        """
        if packet.startswith(b"MSGS "):
            messages = frames.read_batch(packet)
            self._hear(now)
            for frame in messages:
                head, _, payload = frame.partition(b"\0")
                self.events.append(_message(head[4:], payload, clock_ns))
            return
        verb, key, payload = frames.read(packet)
        if verb == frames.MSG:
            self._hear(now)
            self.events.append(_message(key, payload, clock_ns))
        elif key == frames.GAP:
            if not payload.isdigit() or len(payload) > 20:
                raise BadFrame("bad_gap")
            self._hear(now)
            self.events.append(Gap(int(payload)))
        elif key == frames.ERROR:
            reason, _, about = payload.partition(b" ")
            self._refused(Refusal(to_text(reason), to_text(about)))
        else:
            self._hear(now)
            self._answered(key, payload)

    def _hear(self, now: float) -> None:
        """Something has come that is said only to those who are served."""
        if self._heard:
            return
        self._heard = True
        if self._away_since is not None:
            self.events.append(Reconnected(max(0.0, now - self._away_since)))
            self._away_since = None
        self.events += self._held_back
        self._held_back = []

    def _refused(self, refusal: Refusal) -> None:
        for question in self._questions:
            key = to_text(question.key)
            if refusal.key == key or _ABOUT.get(question.key) == refusal.reason:
                self._questions.remove(question)
                question.settle(refusal=refusal)
                if not question.abandoned:
                    return
                break
        if not self._heard and refusal.reason in TURNED_AWAY:
            self._told = refusal.reason
        if self._away_since is None:
            self.events.append(refusal)
        else:
            self._held_back.append(refusal)

    def _answered(self, key: bytes, payload: bytes) -> None:
        asked = self._questions
        question = next(
            (one for one in asked if one.key == key and (key != frames.SYNC or one.payload == payload)), None
        )
        if question is None:
            return  # nobody waits for it any more
        if key == frames.SYNC:
            # What was given up and not answered before will not be answered; some have no answer but a refusal. (Who
            # has chosen another order for what waits for him may get an answer later, and goes on waiting.)
            earlier = []
            while (one := asked.popleft()) is not question:
                if not one.abandoned and one.key not in _UNANSWERED:
                    earlier.append(one)
            asked.extendleft(reversed(earlier))
            self._confirmed = max(self._confirmed, question.published)
        else:
            asked.remove(question)
        if question is self._greeting:
            self._greeting = None
            self.welcome = True
            self.turned_away = ""
            self._wait = SHORTEST
        question.settle(answer=payload)

    # -- losing the daemon

    def lose(self, since: float) -> None:
        """The connection has gone; it was last known to be there at ``since`` (monotonic)."""
        self._in_doubt = self._in_doubt or self._confirmed < self._published
        self._confirmed = self._published
        if self._away_since is None:
            self._away_since = since
        if not self._heard and self._told:
            # Reached, and turned away at the door. That is told once, however often it happens.
            if self._held_back and self._told != self.turned_away:
                self.events += self._held_back
            self.turned_away = self._told
            self._wait = LONGEST
        self._held_back = []
        self._heard = False
        self._told = ""
        self.welcome = False
        self._greeting = None
        questions, self._questions = self._questions, deque()
        for question in questions:
            question.settle(lost=True)

    def pause(self, jitter: float) -> float:
        """Seconds to wait before the next attempt; ``jitter`` (0 to 1) spreads programs that have lost the same
        daemon over the second half of them."""
        wait, self._wait = self._wait, min(LONGEST, 2 * self._wait)
        return wait * (0.5 + 0.5 * jitter)


def raise_refused(event: Event) -> None:
    """Raise BusError, with the reason, if the event is a refusal of what the program has asked for."""
    if not isinstance(event, Refusal) or event.key in _OPTIONAL:
        return
    if not event.key and event.reason in TURNED_AWAY:
        raise BusError(event.reason, "the daemon does not serve this program now")
    raise BusError(event.reason, f"the daemon refused {event.key!r}")


def publication(chan: str, payload: bytes | str) -> bytes:
    """A message as a frame. Raises BusError: bad_channel."""
    key = to_bytes(chan)
    if b"\0" in key:
        raise BusError("bad_channel", f"a channel holds no NUL: {chan!r}")
    return frames.message(key, to_bytes(payload))


def directed(target: str) -> str:
    """The channel that reaches a target. Raises BusError: bad_target for nobody, who is not everybody."""
    if not target:
        raise BusError("bad_target", "nobody is called nothing; send_all reaches everyone")
    return f"!{target}"


def echo_mode(on: bool) -> dict[str, bytes]:
    return {"echo": frames.request(frames.ECHO + (b"on" if on else b"off"))}


def batch_mode(on: bool) -> dict[str, bytes]:
    return {"batch": frames.request(frames.BATCH_ON if on else frames.BATCH_OFF)}


def _local(on: bool) -> bytes:
    return frames.LOCAL_ON if on else frames.LOCAL_OFF


def blocking_modes(soft: str | None, hard: str | None) -> dict[str, bytes]:
    """Frames by what they set. Raises BusError: bad_mode."""
    modes = {}
    if soft is not None:
        modes["soft"] = frames.request(frames.SOFT + _one_of(soft, SOFT))
    if hard is not None:
        modes["hard"] = frames.request(frames.HARD + _one_of(hard, HARD))
    return modes


def order_mode(order: str) -> dict[str, bytes]:
    """Raises BusError: bad_mode."""
    return {"order": frames.request(frames.ORDER + _one_of(order, ORDERS))}


def _one_of(name: str, names: tuple[str, ...]) -> bytes:
    if name not in names:
        raise BusError("bad_mode", f"{name!r} is none of {', '.join(names)}")
    return name.encode("ascii")


def _read_channel(key: bytes) -> tuple[str, str, bool]:
    """A key as text, the form of messages on it, and whether they carry meta."""
    form = targets.FORM_NAMES[targets.PLAIN if key.startswith(b"!/") else targets.form_of(key)]
    try:
        check_chan(key)
    except BadDatagram:
        return to_text(key), form, False
    return to_text(key), form, True


#: most messages are on one of a few channels
_channel: Final = lru_cache(512)(_read_channel)


def _message(key: bytes, payload: bytes, clock_ns: int) -> Message:
    chan, form, with_meta = _channel(key) if len(key) <= MAX_CHAN else _read_channel(key)
    if with_meta:
        try:
            src, seq, received_ns, peer, rest = frames.read_meta(payload)
        except BadFrame:
            pass
        else:
            return Message(to_text(src), seq, chan, rest, form, peer, received_ns)
    # A key that is no channel was never on its way to a segment and carries nothing but its payload.
    return Message("", 0, chan, payload, form, "local", clock_ns)
