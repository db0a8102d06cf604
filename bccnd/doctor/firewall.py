"""What keeps a segment's datagrams out, and how to let them in with the program that manages the rules."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bccnd.doctor.facts import Filter, SegmentFacts
from bccnd.doctor.iptables import read_iptables
from bccnd.doctor.nft import read_nft
from bccnd.doctor.rules import Arriving, Chain, Drop, find_drops

#: firewalld's chains of a zone, with nftables and with iptables below it
_ZONE: Final = re.compile(r"(?:filter_)?IN_(?!policy_)(.+?)(?:_(pre|log|deny|allow|post))?")


#: what speaks of IPv4 and of IPv6
PROGRAMS: Final = {4: "iptables", 6: "ip6tables"}


def arriving_on(facts: SegmentFacts) -> Arriving:
    """The datagrams of a segment, as rules see them."""
    name = facts.interface or (facts.way[0] if facts.way else None)
    addresses = facts.looks.addresses if facts.looks is not None and facts.looks.name == name else ()
    networks = [ipaddress.ip_interface(one).network for one in addresses if "/" in one]
    return Arriving(ipaddress.ip_address(facts.address.partition("%")[0]), facts.port, name, tuple(networks))


def made_by_iptables(nft: str, segments: Iterable[Arriving]) -> bool:
    """Whether nft lists rules that only ``iptables-save`` can tell in full."""
    return any(by_iptables for one in segments for _, _, by_iptables in read_nft(nft, one))


def find_filters(nft: str, saved: Mapping[str, str], segments: Iterable[Arriving]) -> tuple[Filter, ...]:
    """What keeps datagrams out, by what ``nft -j list ruleset`` says (empty where it says nothing), and by what
    ``iptables-save``, ``ip6tables-save``, ``iptables-legacy-save`` and the like say, by program. Raises what `read_nft`
    raises."""
    found: dict[Filter, None] = {}
    for one in segments:
        for (family, table), chains, by_iptables in read_nft(nft, one) if nft else ():
            if not by_iptables:
                place = f"{family} {table}"
                found.update(dict.fromkeys(_filters(f"nftables: table {place}", place, chains, one)))
        for program, text in saved.items():
            if program.startswith(PROGRAMS[one.destination.version]):
                for table, chains in read_iptables(text, one):
                    found.update(
                        dict.fromkeys(_filters(f"{program}: table {table}", "", chains, one, (program, table)))
                    )
    return tuple(found)


def _filters(
    where: str, nft_place: str, chains: dict[str, Chain], arriving: Arriving, older: tuple[str, str] = ("", "")
) -> Iterator[Filter]:
    """``nft_place`` is the table as nft calls it, ``older`` the program and the table of iptables."""
    for drop in find_drops(chains):
        by, remedy = _remedy(nft_place, older, chains, arriving, drop)
        by_way = "" if arriving.interface is None else f" by {arriving.interface}"
        which = "what comes" if drop.always else "some of what comes"
        what = "no rule accepts it, and the policy is drop" if drop.rule is None else drop.rule.text
        chain = drop.path[-1]
        yield Filter(
            f"{which} to UDP port {arriving.port}{by_way} is kept out: {by or where}, chain {chain}: {what}", remedy
        )


def _remedy(
    nft_place: str, older: tuple[str, str], chains: dict[str, Chain], arriving: Arriving, drop: Drop
) -> tuple[str, str]:
    """The program that manages a table, empty where none does, and what lets datagrams in."""
    port, rule, (program, table) = arriving.port, drop.rule, older
    named = rule is not None and rule.names_port
    # What ufw has made stays when it is disabled, empty.
    if any(name.startswith("ufw-") for name in (chains if rule is None else drop.path)):
        return "ufw", "ufw status numbered, then ufw delete NUMBER" if named else f"ufw allow {port}/udp"
    if nft_place.endswith(" firewalld_policy_drop"):
        return "firewalld in panic", "firewall-cmd --panic-off"
    zone = next((found for name in reversed(drop.path) if (found := _ZONE.fullmatch(name))), None)
    if nft_place.endswith(" firewalld") or "INPUT_ZONES" in chains:
        if zone is None:
            return "firewalld", "firewall-cmd --list-all-policies, firewall-cmd --direct --get-all-rules"
        option = f"--zone={zone[1]}"
        if named or zone[2] in ("pre", "deny"):
            return f"firewalld, zone {zone[1]}", f"firewall-cmd {option} --list-all: remove the rule that does it"
        return (
            f"firewalld, zone {zone[1]}",
            f"firewall-cmd --permanent {option} --add-port={port}/udp, and firewall-cmd --reload",
        )
    where = "" if table in ("", "filter") else f" -t {table}"
    if named and rule is not None:
        way = f"{program}{where} -D {rule.removal}" if program else rule.removal
        return "", f"{way}, and take it out of the file that loads it"
    if program:
        way = f"{program}{where} -I {drop.path[0]} -p udp --dport {port} -j ACCEPT"
    else:
        way = f"nft insert rule {nft_place} {drop.path[0]} udp dport {port} accept"
    return "", f"{way}, and the same in the file that loads the rules"
