"""Access rules: which programs may connect, publish, subscribe, tap, bring datagrams of links and take a tag.

Invariant: for each right, the first rule that mentions it and fits the client decides. If none fits, tap and link are
for root, the daemon's own user and its own group. All programs have any other right that no rule mentions; if a rule
mentions it, only root and the daemon's own user have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS, Dialect, Pattern, compile_pattern, covers
from bccnd.core.wire.bccn1 import MAX_CHAN
from bccnd.net.peer import Peer

#: keys whose answer is remembered for one rule
_REMEMBERED: Final = 4096
#: the dialect of patterns and keys that begin with ``!``
_MARKED: Final = DIALECTS["path"]

Admission = Callable[[Peer], bool]
Granted = TypeVar("Granted")


@dataclass(frozen=True)
class Rule:
    """The programs that it fits (None: any), and their rights (None: not mentioned)."""

    uid: int | None = None
    gid: int | None = None
    program: bytes | None = None
    publish: tuple[bytes, ...] | None = None
    subscribe: tuple[bytes, ...] | None = None
    tap: bool | None = None
    tag: bool | None = None
    link: bool | None = None

    def fits(self, peer: Peer) -> bool:
        return (
            self.uid in (None, peer.uid)
            and (self.gid is None or self.gid in peer.groups)
            and self.program in (None, peer.program)
        )


class Allowed:
    """The keys that match one of some patterns.

    The empty pattern matches every key. Otherwise keys that begin with ``!`` match only patterns that do, and these are
    written with ``/`` in any dialect.
    """

    def __init__(self, patterns: Iterable[bytes], dialect: Dialect) -> None:
        self._everything = False
        self._dialect = dialect
        self._trees: dict[bool, PatternTree[None]] = {False: PatternTree(dialect), True: PatternTree(_MARKED)}
        self._patterns: dict[bool, list[Pattern]] = {False: [], True: []}
        for text in patterns:
            self._everything = self._everything or not text
            marked = text.startswith(b"!")
            pattern = self._trees[marked].compile(text)
            self._trees[marked].add(pattern, None)
            self._patterns[marked].append(pattern)
        self._answers: dict[bytes, bool] = {}

    def permits(self, key: bytes) -> bool:
        """Whether a key is allowed."""
        if self._everything:
            return True
        answer = self._answers.get(key)
        if answer is None:
            answer = bool(self._trees[key.startswith(b"!")].match(key))
            if len(key) <= MAX_CHAN:  # a longer one is no channel, and not worth its memory
                if len(self._answers) >= _REMEMBERED:
                    self._answers.clear()
                self._answers[key] = answer
        return answer

    def covers(self, text: bytes, dialect: Dialect) -> bool:
        """Whether one of the patterns allows every key that a pattern of some dialect matches."""
        if self._everything:
            return True
        marked = text.startswith(b"!")
        ours, theirs = (_MARKED, _MARKED) if marked else (self._dialect, dialect)
        pattern = compile_pattern(text, theirs)
        if ours.separator != theirs.separator:  # then only single keys can be compared
            return pattern.literal and self.permits(text)
        return any(covers(one, pattern) for one in self._patterns[marked])


@dataclass(frozen=True)
class Rights:
    """The rights of one client; None stands for every key."""

    publish: Allowed | None
    subscribe: Allowed | None
    tap: bool
    tag: bool
    link: bool


class Grants(Generic[Granted]):
    """The rules that mention one right, in their order, each with its value of the right."""

    def __init__(self, rules: Iterable[tuple[Rule, Granted | None]]) -> None:
        self._rules = [(rule, granted) for rule, granted in rules if granted is not None]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def to(self, peer: Peer) -> Granted | None:
        """Return the value of the first rule that fits a client; None if none fits."""
        return next((granted for rule, granted in self._rules if rule.fits(peer)), None)


class Access:
    """The rules of a daemon that runs as ``uid`` and ``gid``; their patterns are of ``dialect``."""

    def __init__(self, rules: Iterable[Rule], dialect: Dialect, uid: int, gid: int) -> None:
        rules = tuple(rules)
        self._uid = uid
        self._gid = gid
        self._publish = Grants((rule, rule.publish) for rule in rules)
        self._subscribe = Grants((rule, rule.subscribe) for rule in rules)
        self._tap = Grants((rule, rule.tap) for rule in rules)
        self._tag = Grants((rule, rule.tag) for rule in rules)
        self._link = Grants((rule, rule.link) for rule in rules)
        named = {patterns for rule in rules for patterns in (rule.publish, rule.subscribe) if patterns is not None}
        #: shared by all clients
        self._allowed = {patterns: Allowed(patterns, dialect) for patterns in named | {()}}

    def rights(self, peer: Peer) -> Rights:
        ours = peer.uid in (0, self._uid)
        trusted = ours or self._gid in peer.groups
        tap, tag, link = self._tap.to(peer), self._tag.to(peer), self._link.to(peer)
        return Rights(
            publish=self._keys(self._publish, peer, ours),
            subscribe=self._keys(self._subscribe, peer, ours),
            tap=trusted if tap is None else tap,
            tag=ours or not self._tag if tag is None else tag,
            link=trusted if link is None else link,
        )

    def _keys(self, grants: Grants[tuple[bytes, ...]], peer: Peer, ours: bool) -> Allowed | None:
        patterns = grants.to(peer)
        if patterns is None:
            return None if ours or not grants else self._allowed[()]
        return self._allowed[patterns]


def by_mode(mode: int, uid: int, gid: int) -> Admission:
    """Admit, to an address without a file, the programs that a socket file of this mode and owner would admit."""

    def admits(peer: Peer) -> bool:
        if peer.uid == 0:
            return True
        if peer.uid == uid:
            return bool(mode & 0o200)
        return bool(mode & (0o020 if gid in peer.groups else 0o002))

    return admits


def by_user(uids: Iterable[int]) -> Admission:
    """Admit these users only."""
    known = frozenset(uids)
    return lambda peer: peer.uid in known


def admit_all(_peer: Peer) -> bool:
    """Admit every program that the mode of the socket file admits."""
    return True
