"""Reads what ``iptables-save`` and ``ip6tables-save`` print."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator
from typing import Final

from bccnd.doctor.rules import Action, Arriving, Chain, Rule, all_of, any_of, in_network, is_new, negate

#: tables that judge datagrams; `nat` only changes addresses
_TABLES: Final = ("raw", "mangle", "filter")
_HOOKS: Final = {"PREROUTING": "prerouting", "INPUT": "input"}
_ACTIONS: Final[dict[str, Action]] = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "drop", "RETURN": "return"}
#: options that ask for nothing by themselves
_NEUTRAL: Final = ("-m", "--match", "--comment", "--limit-burst")


def read_iptables(text: str, arriving: Arriving) -> Iterator[tuple[str, dict[str, Chain]]]:
    """The tables, by name, with their rules as they fit a datagram. Raises ValueError."""
    table = ""
    chains: dict[str, Chain] = {}
    for line in text.splitlines():
        if line.startswith("*"):
            table, chains = line[1:].strip(), {}
        elif line.startswith(":"):
            name, policy, *_ = line[1:].split()
            chains[name] = Chain(name, _HOOKS.get(name, ""), policy="drop" if policy == "DROP" else "accept")
        elif line.startswith("-A "):
            _, name, *words = shlex.split(line)
            chains.setdefault(name, Chain(name)).rules.append(_read_rule(line, words, arriving))
        elif line.startswith("COMMIT") and table in _TABLES:
            yield table, chains


def _read_rule(line: str, words: list[str], arriving: Arriving) -> Rule:
    answers: list[bool | None] = []
    action: Action = "none"
    target, names_port, inverted, at = "", False, False, 0
    while at < len(words):
        option = words[at]
        values = []
        at += 1
        while at < len(words) and words[at] != "!" and not words[at].startswith("-"):
            values.append(words[at])
            at += 1
        if option == "!":
            inverted = True
            continue
        if option in ("-j", "--jump", "-g", "--goto"):
            target = values[0] if values else ""
            action = _ACTIONS.get(target, "goto" if option in ("-g", "--goto") else "jump")
            break
        if option not in _NEUTRAL:
            fits = _fits(option, values, arriving)
            answers.append(negate(fits) if inverted else fits)
            names_port = names_port or (option in _PORTS and answers[-1] is True)
        inverted = False
    return Rule(all_of(answers), action, line, target, names_port, line.removeprefix("-A "))


_PORTS: Final = ("--dport", "--dports", "--destination-port", "--destination-ports")


def _fits(option: str, values: list[str], arriving: Arriving) -> bool | None:
    if not values:
        return None
    value, many = values[0], values[0].split(",")
    if option in ("-p", "--protocol"):
        return value in ("udp", "17", "all", "0")
    if option in _PORTS:
        return any_of(_holds_port(one, arriving.port) for one in many)
    if option in ("-i", "--in-interface"):
        return arriving.comes_by(f"{value[:-1]}*" if value.endswith("+") else value)
    if option in ("-d", "--destination"):
        return any_of(in_network(one, arriving.destination) for one in many)
    if option in ("-s", "--source"):
        return any_of(arriving.comes_from(ipaddress.ip_network(one, strict=False)) for one in many)
    if option in ("--ctstate", "--state"):
        return is_new(many)
    if option in ("--dst-type", "--pkt-type"):
        return arriving.kind in value.lower().split(",")
    return None


def _holds_port(words: str, port: int) -> bool:
    low, colon, high = words.partition(":")
    return int(low or 0) <= port <= int(high or 65_535) if colon else int(low) == port
