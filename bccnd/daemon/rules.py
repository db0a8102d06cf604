"""The rules in force: a checked configuration with the objects built from it.

Invariant: everything that can fail is done while rules are made. A reload replaces all of them, or none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from bccnd import log
from bccnd.bus.clients.access_rules import Access, Rule
from bccnd.config import Configuration, Settings
from bccnd.config.schema import RESTART_KEYS
from bccnd.core.matching.patterns import Dialect
from bccnd.core.sending.redundancy import RepeatRule, RepeatRules
from bccnd.core.tracking.liveness import HeartbeatRules
from bccnd.core.trust.integrity import IntegrityChecker, make_checker
from bccnd.core.trust.prepared_hmac import PreparedHmac
from bccnd.core.wire.identity_format import token
from bccnd.net.peer import MAX_PROGRAM


@dataclass(frozen=True)
class Rules:
    """A configuration in the form that the daemon uses: its settings, and the objects built from them."""

    settings: Settings
    checker: IntegrityChecker
    repeat: RepeatRules
    access: Access

    @property
    def dedup(self) -> dict[str, Any]:
        """The keys of the section; a gateway with links brings copies by several ways, too."""
        return {**self.settings.dedup.model_dump(), **({"linked": True} if self.settings.gateways.nng else {})}

    @property
    def heartbeat(self) -> HeartbeatRules:
        return HeartbeatRules(**self.settings.heartbeat.model_dump())

    @property
    def report_interval(self) -> float:
        """The seconds between reports; 0 for none, as where nothing can be signed."""
        return 0.0 if self.settings.integrity.receive_only else self.settings.reports.interval


class RulesInForce:
    """Holds the rules in force, for parts that read them whenever they need them."""

    def __init__(self, rules: Rules) -> None:
        self.replace(rules)

    def replace(self, rules: Rules) -> None:
        self.current = rules
        self.bus = rules.settings.bus
        self.access = rules.access


def make_rules(configuration: Configuration, host: bytes, dialect: Dialect) -> Rules:
    """Make the rules of a configuration, whose patterns are in ``dialect``; ``host`` is the first part of identities
    made here. Raises ConfigError."""
    settings = configuration.settings
    return Rules(
        settings,
        checker=_integrity_checker(configuration, host),
        repeat=_repeat_rules(settings, dialect),
        access=_access_rules(configuration, dialect),
    )


def report_restart_keys(before: Settings, after: Settings) -> None:
    """Log the settings that have changed and need a restart."""
    for name in RESTART_KEYS:
        if attrgetter(name)(before) != attrgetter(name)(after):
            text = f"reload: {name} has changed and takes effect after a restart"
            log.event("restart_needed", text, remedy="systemctl restart bccnd", setting=name)


def _access_rules(configuration: Configuration, dialect: Dialect) -> Access:
    rules = [
        Rule(
            uid=configuration.uids[rule.user] if rule.user is not None else None,
            gid=configuration.gids[rule.group] if rule.group is not None else None,
            program=token(rule.program.encode(), MAX_PROGRAM) if rule.program is not None else None,
            publish=_encode(rule.publish),
            subscribe=_encode(rule.subscribe),
            **rule.model_dump(include={"tap", "tag", "link"}),
        )
        for rule in configuration.settings.access
    ]
    return Access(rules, dialect, os.geteuid(), os.getegid())


def _encode(patterns: tuple[str, ...] | None) -> tuple[bytes, ...] | None:
    return None if patterns is None else tuple(pattern.encode() for pattern in patterns)


def _repeat_rules(settings: Settings, dialect: Dialect) -> RepeatRules:
    rules = [RepeatRule(rule.channels.encode(), rule.copies, rule.spacing) for rule in settings.repeat]
    if settings.dedup.late == "drop" and any(rule.spacing for rule in rules):
        log.event(
            "doubtful_setting",
            "repeat: if a copy arrives after a later message of the same program, daemons with dedup.late: drop, as "
            "here, drop it as stale",
            remedy="set dedup.late: deliver on all hosts, or spacing: 0",
            setting="repeat",
        )
    return RepeatRules(rules, dialect)


def _integrity_checker(configuration: Configuration, host: bytes) -> IntegrityChecker:
    settings, keys, signers = configuration.settings.integrity, configuration.keys, configuration.signers
    if settings.algorithm == "sig" and keys:
        signers = _add_own_key(signers, keys[0], host)
    return make_checker(
        settings.algorithm,
        keys,
        signers,
        required=settings.required,
        accept_unverifiable=settings.unverifiable == "accept",
        hmac=PreparedHmac,
    )


def _add_own_key(signers: dict[bytes, list[bytes]], private: bytes, host: bytes) -> dict[bytes, list[bytes]]:
    """Let this host's key verify what this host signs: its own broadcasts come back, and other programs of the host
    may sign with the same key."""
    from bccnd.core.trust.signatures import public_of  # needs a library that most configurations do not

    own = public_of(private)
    signers = {**signers, host: [*signers.get(host, []), own]}
    for prefix, public in signers.items():
        if prefix.startswith(host + b"/") and own not in public:
            log.event(
                "doubtful_setting",
                f"integrity.signers: messages that programs below {prefix.decode('ascii')} publish here are signed "
                "with this host's key, which is not listed for them: every receiver refuses them",
                remedy="add this host's public key to that entry, or let these programs send to the segment themselves",
                setting="integrity.signers",
            )
    return signers
