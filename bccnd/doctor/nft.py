"""Reads what ``nft -j list ruleset`` prints."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Any, Final

from bccnd.doctor.rules import Action, Arriving, Chain, Rule, all_of, any_of, in_network, is_new, negate

#: a family and the name of a table
Table = tuple[str, str]
Sets = dict[tuple[str, str, str], list[Any]]

_FAMILIES: Final = {4: ("ip", "inet", "netdev"), 6: ("ip6", "inet", "netdev")}
_PORTS: Final = ("udp", "th")
_ADDRESSES: Final = {"ip": 4, "ip6": 6}
#: statements that say nothing of whether a datagram passes
_NEUTRAL: Final = {"counter", "log", "comment", "mangle", "notrack", "meter", "set", "map", "ct helper", "flow"}
_ACTIONS: Final[dict[str, Action]] = {
    "accept": "accept",
    "drop": "drop",
    "reject": "drop",
    "return": "return",
    "jump": "jump",
    "goto": "goto",
}


def read_nft(text: str, arriving: Arriving) -> Iterator[tuple[Table, dict[str, Chain], bool]]:
    """The tables, with their rules as they fit a datagram, and whether iptables has made them: then what a rule asks
    for does not stand there. Raises ValueError, LookupError, TypeError, AttributeError for what is none of nft's."""
    entries = json.loads(text)["nftables"]
    tables: dict[Table, dict[str, Chain]] = {}
    by_iptables: set[Table] = set()
    dormant: set[Table] = set()
    sets: Sets = {}
    for entry in entries:
        if "table" in entry and "dormant" in entry["table"].get("flags", ()):
            dormant.add((entry["table"]["family"], entry["table"]["name"]))
        for kind in ("set", "map"):
            if kind in entry:
                one = entry[kind]
                sets[one["family"], one["table"], one["name"]] = one.get("elem", [])
        if "chain" in entry:
            chain = entry["chain"]
            place = chain["family"], chain["table"]
            # A chain of type nat changes addresses; one for another interface does not see these datagrams.
            passed = chain.get("type") != "nat" and chain.get("dev", arriving.interface) == arriving.interface
            hook = chain.get("hook", "") if passed else ""
            found = Chain(chain["name"], hook, chain.get("prio", 0), chain.get("policy", "accept"))
            tables.setdefault(place, {})[found.name] = found
    for entry in entries:
        if "rule" in entry:
            rule = entry["rule"]
            place = rule["family"], rule["table"]
            tables[place][rule["chain"]].rules += _read_rule(rule, arriving, sets)
            if any("xt" in statement for statement in rule["expr"]):
                by_iptables.add(place)
    for place, chains in tables.items():
        if place[0] in _FAMILIES[arriving.destination.version] and place not in dormant:
            yield place, chains, place in by_iptables


def _read_rule(rule: dict[str, Any], arriving: Arriving, sets: Sets) -> Iterator[Rule]:
    """A rule; several for one that looks its verdict up."""
    where = f"{rule['family']} {rule['table']} {rule['chain']}"
    text, removal = f"a rule in {where}", f"nft delete rule {where} handle {rule['handle']}"
    reader = _Reader(arriving, sets, rule["family"], rule["table"])
    answers: list[bool | None] = []
    names_port = False
    for statement in rule["expr"]:
        ((kind, value),) = statement.items()
        if kind == "match":
            answers.append(reader.matches(value))
            names_port = names_port or (answers[-1] is True and _is_port(value["left"]))
        elif kind == "vmap":
            for key, verdict in reader.elements(value["data"]):
                fits = reader.holds(value["key"], _plain(key))
                ((name, more),) = verdict.items()
                action, target = _ACTIONS.get(name, "none"), (more or {}).get("target", "")
                named = names_port or (fits is True and _is_port(value["key"]))
                yield Rule(all_of([*answers, fits]), action, text, target, named, removal)
        elif kind in _ACTIONS:
            target = value["target"] if kind in ("jump", "goto") else ""
            yield Rule(all_of(answers), _ACTIONS[kind], text, target, names_port, removal)
            return
        elif kind not in _NEUTRAL:
            answers.append(None)


def _is_port(left: Any) -> bool:
    payload = left.get("payload", {}) if isinstance(left, dict) else {}
    return payload.get("field") == "dport" and payload.get("protocol") in _PORTS


def _plain(value: Any) -> Any:
    """An element of a set without its timeout, counter or comment."""
    return value["elem"]["val"] if isinstance(value, dict) and "elem" in value else value


class _Reader:
    """Compares what a rule asks for with a datagram."""

    def __init__(self, arriving: Arriving, sets: Sets, family: str, table: str) -> None:
        self._arriving = arriving
        self._sets = sets
        self._place = family, table

    def matches(self, match: dict[str, Any]) -> bool | None:
        if match["op"] not in ("==", "!=", "in"):
            return None
        fits = self.holds(match["left"], match["right"])
        return negate(fits) if match["op"] == "!=" else fits

    def elements(self, value: Any) -> list[Any]:
        """What a set holds, written there or known by its name."""
        if isinstance(value, str) and value.startswith("@"):
            return self._sets.get((*self._place, value[1:]), [])
        if isinstance(value, dict) and "set" in value:
            return self.elements(value["set"])
        return value if isinstance(value, list) else [value]

    def holds(self, left: Any, right: Any) -> bool | None:
        """Whether something of the datagram is, or is in, a value."""
        if isinstance(right, str) and right == "*":
            return True
        values = [_plain(one) for one in self.elements(right)]
        if "ct" in left:
            return self._state(left["ct"], values)
        return any_of([self._is(left, value) for value in values])

    @staticmethod
    def _state(asked: dict[str, Any], values: list[Any]) -> bool | None:
        if asked.get("key") == "state":
            return is_new([str(value) for value in values])
        # Nothing that comes unasked was translated.
        return False if asked.get("key") == "status" else None

    def _is(self, left: dict[str, Any], value: Any) -> bool | None:
        arriving = self._arriving
        if "payload" in left:
            return self._in_payload(left["payload"], value)
        if left.get("fib", {}).get("result") == "type" and left["fib"].get("flags") == ["daddr"]:
            return bool(value == arriving.kind)
        key = left.get("meta", {}).get("key")
        if key in ("iifname", "iif"):
            return arriving.comes_by(str(value))
        known = {
            "l4proto": ("udp", 17),
            "nfproto": (f"ipv{arriving.destination.version}",),
            "protocol": ("ip",) if arriving.destination.version == 4 else ("ip6",),
            "pkttype": (arriving.kind,),
        }
        return value in known[key] if key in known else None

    def _in_payload(self, payload: dict[str, Any], value: Any) -> bool | None:
        protocol, name = payload.get("protocol"), payload.get("field")
        if protocol in _PORTS:
            return self._in_ports(value) if name == "dport" else None
        if protocol not in _ADDRESSES:
            return None if protocol is None or protocol in ("ether", "vlan") else False
        if _ADDRESSES[protocol] != self._arriving.destination.version:
            return False
        if name in ("protocol", "nexthdr"):
            return value in ("udp", 17)
        return self._in_addresses(name, value) if name in ("saddr", "daddr") else None

    def _in_ports(self, value: Any) -> bool | None:
        if isinstance(value, dict) and "range" in value:
            low, high = value["range"]
            return bool(low <= self._arriving.port <= high)
        return value == self._arriving.port if isinstance(value, int) else None

    def _in_addresses(self, name: str, value: Any) -> bool | None:
        if isinstance(value, dict) and "prefix" in value:
            text = f"{value['prefix']['addr']}/{value['prefix']['len']}"
        elif isinstance(value, str):
            text = value
        elif isinstance(value, dict) and "range" in value:
            return any_of(self._in_addresses(name, str(one)) for one in _networks(*value["range"]))
        else:
            return None
        if name == "daddr":
            return in_network(text, self._arriving.destination)
        return self._arriving.comes_from(ipaddress.ip_network(text, strict=False))


def _networks(first: str, last: str) -> Iterator[Any]:
    return ipaddress.summarize_address_range(ipaddress.ip_address(first), ipaddress.ip_address(last))
