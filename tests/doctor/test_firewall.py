"""What firewalls keep out: what ufw 0.36 and firewalld 1.3 have written (firewalls/), and rules of every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import pytest

from bccnd.doctor.facts import Filter, Interface, SegmentFacts
from bccnd.doctor.firewall import arriving_on, find_filters, made_by_iptables
from bccnd.doctor.rules import Arriving

WRITTEN = Path(__file__).parent / "firewalls"
#: by the interface that the programs have been told of
HERE = Arriving(ip_address("10.9.0.255"), 5400, "v0", (ip_network("10.9.0.0/24"),))
OTHER = replace(HERE, interface="e9")
UFW: Final = (WRITTEN / "ufw.iptables").read_text()
FIREWALLD: Final = (WRITTEN / "firewalld.json").read_text()
ALLOW: Final = UFW.replace(":INPUT DROP", ":INPUT ACCEPT").replace("policy-input -j DROP", "policy-input -j ACCEPT")


def ufw(*rules: str, text: str = UFW) -> dict[str, str]:
    """With rules as ufw adds them."""
    lines = [f"-A ufw-user-input {rule}\n" for rule in rules]
    return {"iptables": text.replace("-A ufw-user-limit ", "".join(lines) + "-A ufw-user-limit ", 1)}


def firewalld(*gone: int) -> str:
    """Without the rules of these handles; the first one is that of a rich rule of zone home, which has v0."""
    entries = json.loads(FIREWALLD)["nftables"]
    return json.dumps({"nftables": [one for one in entries if one.get("rule", {}).get("handle") not in gone]})


DENY, PORT_OPEN = 411, 412
BY_V0 = ufw("-i v0 -p udp -m udp --dport 5400 -j ACCEPT", "-s 10.9.0.0/24 -j ACCEPT")


@pytest.mark.parametrize(
    ("written", "arriving", "says", "remedy"),
    [
        (ufw(), HERE, "ufw, chain ufw-skip-to-policy-input", "ufw allow 5400/udp"),
        (ufw(), replace(HERE, interface="lo"), "", ""),
        (ufw("-p udp -m udp --dport 5400 -j ACCEPT"), HERE, "", ""),
        (ufw("-p udp -m udp --dport 5400 -j ACCEPT"), replace(HERE, port=5401), "ufw, chain", "ufw allow 5401/udp"),
        (ufw("-p udp -m udp --dport 5400 -j DROP", text=ALLOW), HERE, "--dport 5400 -j DROP", "ufw status numbered"),
        (ufw("-p udp -m udp --dport 5400 -j DROP", text=ALLOW), replace(HERE, port=5401), "", ""),
        (BY_V0, HERE, "", ""),
        (BY_V0, replace(OTHER, sources=(ip_network("192.0.2.0/24"),)), "ufw, chain", "ufw allow 5400/udp"),
        (firewalld(), HERE, "zone home, chain filter_IN_home_deny", "firewall-cmd --zone=home --list-all"),
        (firewalld(DENY), HERE, "", ""),
        (firewalld(DENY, PORT_OPEN), HERE, "zone home", "--zone=home --add-port=5400/udp, and firewall-cmd --reload"),
        (firewalld(), OTHER, "firewalld, zone public, chain filter_IN_public", "--zone=public --add-port=5400/udp"),
    ],
)
def test_ufw_and_firewalld_are_read_as_they_have_written_their_rules(
    written: dict[str, str] | str, arriving: Arriving, says: str, remedy: str
) -> None:
    nft, saved = (written, {}) if isinstance(written, str) else ("", written)
    found = find_filters(nft, saved, [arriving])
    assert len(found) == bool(says), found
    assert all(says in one.text and remedy in one.remedy for one in found), found


def match(field: str, right: object, op: str = "==", protocol: str = "udp") -> dict[str, Any]:
    return {"match": {"op": op, "left": {"payload": {"protocol": protocol, "field": field}}, "right": right}}


def meta(key: str, right: object) -> dict[str, Any]:
    return {"match": {"op": "==", "left": {"meta": {"key": key}}, "right": right}}


def state(*names: str) -> dict[str, Any]:
    return {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": list(names)}}


DROP: dict[str, Any] = {"drop": None}
ACCEPT: dict[str, Any] = {"accept": None}
LIMIT = {"limit": {"rate": 3, "per": "minute"}}
PORT = match("dport", 5400)


def rules(*expressions: list[dict[str, Any]], policy: str = "accept", **chain: object) -> str:
    """A ruleset whose base chain `in` has these rules; those after an empty one are in the chain `other`."""
    place = {"family": "inet", "table": "filter"}
    entries: list[dict[str, Any]] = [
        {"table": {"family": "inet", "name": "filter"}},
        {"set": {**place, "name": "ours", "elem": [53, {"elem": {"val": 5400, "timeout": 9}}]}},
        {"chain": {**place, "name": "in", "type": "filter", "hook": "input", "prio": 0, "policy": policy, **chain}},
        {"chain": {**place, "name": "other"}},
    ]
    name = "in"
    for number, one in enumerate(expressions, 4):
        name = name if one else "other"
        entries.append({"rule": {**place, "chain": name, "handle": number, "expr": one}})
    return json.dumps({"nftables": [{"metainfo": {"version": "1"}}, *entries]})


VMAP = {"vmap": {"key": {"payload": {"protocol": "udp", "field": "dport"}}, "data": {"set": [[5400, ACCEPT]]}}}
JUMP, GOTO = {"jump": {"target": "other"}}, {"goto": {"target": "other"}}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *((rules(), 0), (rules([PORT, DROP]), 1), (rules([PORT, {"reject": {}}]), 1)),
        (rules([match("dport", {"set": [53, {"range": [5000, 6000]}]}), DROP]), 1),
        *((rules([match("dport", {"set": [53, 80]}), DROP]), 0), (rules([match("dport", "@ours"), DROP]), 1)),
        *((rules([match("dport", 53, "!="), DROP]), 1), (rules([match("dport", 5400, "!="), DROP]), 0)),
        *((rules([match("sport", 5400), DROP]), 0), (rules([PORT, ACCEPT]), 0)),
        *((rules(policy="drop"), 1), (rules([PORT, ACCEPT], policy="drop"), 0), (rules([VMAP], policy="drop"), 0)),
        *((rules(policy="drop", hook="forward"), 0), (rules(policy="drop", type="nat"), 0)),
        # What is accepted before, or for another reason than the port.
        *((rules([PORT, ACCEPT], [DROP]), 0), (rules([DROP], [PORT, ACCEPT]), 1)),
        *((rules([meta("iifname", "v*"), ACCEPT], [DROP]), 0), (rules([meta("iifname", "lo"), ACCEPT], [DROP]), 1)),
        *((rules([meta("l4proto", {"set": ["tcp", "udp"]}), ACCEPT], [DROP]), 0),),
        (rules([match("saddr", {"prefix": {"addr": "10.0.0.0", "len": 8}}, protocol="ip"), ACCEPT], [DROP]), 0),
        (rules([match("saddr", "192.0.2.1", protocol="ip"), ACCEPT], [DROP]), 1),
        (rules([match("daddr", "10.9.0.255", protocol="ip"), ACCEPT], [DROP]), 0),
        (rules([match("dport", 5400, protocol="tcp"), ACCEPT], [DROP]), 1),
        # A datagram that nobody asked for is new.
        *((rules([state("established", "related"), ACCEPT], [DROP]), 1), (rules([state("new"), ACCEPT], [DROP]), 0)),
        (rules([state("invalid"), DROP]), 0),
        # Only some of them.
        *((rules([LIMIT, ACCEPT], [DROP]), 0), (rules([LIMIT, DROP]), 0), (rules([PORT, LIMIT, DROP]), 0)),
        (rules([match("saddr", "10.9.0.7", protocol="ip"), PORT, DROP]), 0),
        # Through other chains.
        *((rules([JUMP], [DROP], [], [PORT, ACCEPT]), 0), (rules([JUMP], [DROP], [], [PORT, {"return": None}]), 1)),
        *((rules([GOTO], [ACCEPT], [], [LIMIT, DROP], policy="drop"), 1), (rules([JUMP], [ACCEPT], []), 0)),
    ],
)
def test_rules_of_nftables(text: str, count: int) -> None:
    found = find_filters(text, {}, [HERE])
    assert len([one for one in found if one.text.startswith("what comes")]) == count, found
    # Those for IPv6 are another matter.
    assert find_filters(text.replace('"inet"', '"ip6"'), {}, [HERE]) == ()


def test_what_lets_datagrams_in() -> None:
    (rule,) = find_filters(rules([PORT, DROP]), {}, [HERE])
    assert rule.remedy.startswith("nft delete rule inet filter in handle 4")
    (partly,) = find_filters(rules([PORT, LIMIT, DROP]), {}, [HERE])
    assert partly.text.startswith("some of what comes to UDP port 5400 by v0 is kept out")
    (policy,) = find_filters(rules(policy="drop"), {}, [HERE, HERE])
    assert policy.remedy.startswith("nft insert rule inet filter in udp dport 5400 accept")
    (older,) = find_filters("", {"iptables-legacy": saved(policy="DROP")}, [HERE])
    assert older.remedy.startswith("iptables-legacy -I INPUT -p udp --dport 5400 -j ACCEPT")
    (named,) = find_filters("", {"iptables": saved(f"{UDP} 5400 -j DROP").replace("*filter", "*raw")}, [HERE])
    assert named.remedy.startswith("iptables -t raw -D INPUT -p udp -m udp --dport 5400 -j DROP")
    # Chains of ufw stay when it is disabled: a rule of somebody else is not its own.
    (other,) = find_filters("", {"iptables": saved("-j DROP").replace("-A", ":ufw-user-input - [0:0]\n-A", 1)}, [HERE])
    assert other.remedy.startswith("iptables -I INPUT")
    (panic,) = find_filters(rules(policy="drop").replace('"filter"', '"firewalld_policy_drop"'), {}, [HERE])
    assert panic.remedy == "firewall-cmd --panic-off"


def test_of_rules_that_iptables_has_made_nft_tells_too_little() -> None:
    text = rules([{"xt": {"type": "match", "name": "conntrack"}}, ACCEPT], policy="drop")
    assert made_by_iptables(text, [HERE])
    assert find_filters(text, {}, [HERE]) == ()
    assert not made_by_iptables(rules([PORT, ACCEPT]), [HERE])


def saved(*lines: str, policy: str = "ACCEPT") -> str:
    return "\n".join(["*filter", f":INPUT {policy} [0:0]", *(f"-A INPUT {line}" for line in lines), "COMMIT", ""])


UDP = "-p udp -m udp --dport"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *((saved(), 0), (saved(policy="DROP"), 1), (saved(f"{UDP} 5400 -j ACCEPT", policy="DROP"), 0)),
        *((saved(f"{UDP} 5400 -j DROP"), 1), (saved(f"{UDP} 5000:6000 -j REJECT --reject-with icmp-x"), 1)),
        *((saved("-p udp -m multiport --dports 53,5400 -j DROP"), 1), (saved(f"{UDP} 54000 -j DROP"), 0)),
        *((saved("-p tcp -m tcp --dport 5400 -j DROP"), 0), (saved("! -p udp -j ACCEPT", "-j DROP"), 1)),
        *((saved("-i v+ -j ACCEPT", policy="DROP"), 0), (saved("! -i v0 -j ACCEPT", policy="DROP"), 1)),
        *((saved("-s 10.9.0.0/16 -j ACCEPT", "-j DROP"), 0), (saved("-s 192.0.2.0/24 -j ACCEPT", "-j DROP"), 1)),
        (saved("-m comment --comment 'not -j DROP' -j ACCEPT", policy="DROP"), 0),
        (saved("-m addrtype --dst-type BROADCAST -j DROP"), 1),
        (saved("-m pkttype --pkt-type multicast -j DROP"), 0),
        (saved("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", policy="DROP"), 1),
        ("*nat\n:PREROUTING DROP [0:0]\nCOMMIT\n", 0),
        ("*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 5400 -j DROP\nCOMMIT\n", 1),
        ("*filter\n:OUTPUT DROP [0:0]\n-A OUTPUT -p udp -m udp --dport 5400 -j DROP\nCOMMIT\n", 0),
    ],
)
def test_rules_of_iptables(text: str, count: int) -> None:
    found = find_filters("", {"iptables": text}, [HERE])
    assert len(found) == count, found
    assert find_filters("", {"ip6tables": text}, [HERE]) == ()


def test_a_segment_is_what_rules_see_of_it() -> None:
    lan = Interface("lan0", addresses=("10.0.0.1/24",))
    segment = SegmentFacts("lan", "10.0.0.255", 5400, way=("lan0", "10.0.0.1"), looks=lan)
    assert arriving_on(segment) == Arriving(ip_address("10.0.0.255"), 5400, "lan0", (ip_network("10.0.0.0/24"),))
    assert arriving_on(replace(segment, way=None, looks=None)) == Arriving(ip_address("10.0.0.255"), 5400)
    unknown = replace(HERE, interface=None)
    assert len(find_filters(rules([meta("iifname", "lo"), ACCEPT], policy="drop"), {}, [unknown])) == 1
    assert find_filters(rules([meta("iifname", "v0"), ACCEPT], policy="drop"), {}, [unknown]) == ()
    group = Arriving(ip_address("239.1.2.3"), 5400, "v0")
    assert find_filters(rules([meta("pkttype", "multicast"), ACCEPT], policy="drop"), {}, [group]) == ()
    assert isinstance(find_filters(rules(policy="drop"), {}, [group])[0], Filter)
