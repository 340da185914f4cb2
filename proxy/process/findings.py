"""What an operator should know of a configuration and of the machine and cluster around it: ``idemproxy check`` prints
this list, ``idemproxy run`` logs it. Pure: facts in, findings out; ``surroundings.py`` collects the facts."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .. import limits
from ..broker.cluster_id import mismatch
from ..net.tls import OwnCertificate, expiry_of
from ..settings.addresses import Listener, join_host_and_port
from ..settings.config import Settings
from ..settings.natively import without_effect_by_proxy

_ANY_HOST = ("0.0.0.0", "::")
_THIS_HOST = ("localhost", "127.0.0.1", "::1", *_ANY_HOST)
_NAMES_SHOWN_MAX = 3


class Finding(NamedTuple):
    """``sign``: ok; note and warning: clients can be served; problem: some or all cannot. ``what``: the object;
    ``text``: what was found, what the proxy does about it, and what the operator can do."""

    sign: str
    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known. ``descriptors``: the highest limit that this process may have. ``free_bytes``: of the data
    directory's file system, ``wanted_bytes``: of these at a start; None: not known. ``certificates``: by their place.
    ``broker_ids``: of the cluster, empty as long as no broker has reported them. ``unresolved``: advertised hosts that
    have no address here. ``kept_cluster_id``: as Redis has it, ``cluster_id``: as the brokers tell it; None: none.
    ``gives_idempotence``: is it known that the proxy does, and not the brokers?"""

    settings: Settings
    unix_seconds: float
    descriptors: int
    free_bytes: int | None = None
    wanted_bytes: int = 0
    certificates: Mapping[str, OwnCertificate] = field(default_factory=dict)
    broker_ids: Collection[int] = ()
    unresolved: Collection[str] = ()
    kept_cluster_id: bytes | None = None
    cluster_id: str | None = None
    gives_idempotence: bool = False

    @property
    def is_anothers(self) -> bool:
        """Does Redis keep the state of another cluster under this name?"""
        kept, reported = self.kept_cluster_id, self.cluster_id
        return kept is not None and reported is not None and kept != reported.encode()


def all_findings(facts: Facts) -> list[Finding]:
    """Return the whole list."""
    return [*_expiries(facts), *findings_of_start(facts)]


def findings_of_start(facts: Facts) -> list[Finding]:
    """Return the list without the ends of certificates: a process that runs logs these itself, and again each day."""
    found = [*_few_descriptors(facts), *_short_expiry(facts), *_full_disk(facts), *_other_cluster(facts)]
    found += [*_without_effect(facts), *_itself(facts)]
    for index, one in enumerate(facts.settings.listeners):
        found += _without_port(one, facts)
        found += _constant_address(one, facts)
        found += _unresolved(one, facts)
        found += _unnamed(one, facts, facts.certificates.get(f"listeners[{index}].tls"))
    return found


def advertised_hosts(one: Listener, broker_ids: Collection[int]) -> list[str]:
    """Return the hosts that clients of this listener get, without those that follow from the address to which a client
    has connected."""
    unknown = "\0"  # no host has it
    places = (one.place_of(broker_id, unknown) for broker_id in sorted(broker_ids or one.broker_ids or (0,)))
    hosts = [place[0] for place in places if place is not None]
    if one.bootstrap_name is not None:
        hosts.insert(0, one.bootstrap_name)
    return [host for host in dict.fromkeys(hosts) if unknown not in host]


# ---------------------------------------------------------------------- this machine
def _expiries(facts: Facts) -> Iterator[Finding]:
    for place, certificate in facts.certificates.items():
        if (end := expiry_of(certificate, facts.unix_seconds)) is not None:
            yield Finding("problem" if end.is_over else "warning", place, end.text)


def _few_descriptors(facts: Facts) -> Iterator[Finding]:
    clients = facts.settings.limits.connections_max
    wanted = limits.DESCRIPTORS_PER_CLIENT * clients
    if facts.descriptors < wanted:
        yield Finding(
            "warning",
            "file descriptors",
            f"{facts.descriptors} descriptors are too few for limits.connections_max {clients}: {wanted} are wanted. "
            "The proxy refuses clients when they are used up; raise the limit (ulimit -n, LimitNOFILE), or lower "
            "limits.connections_max",
        )


def _short_expiry(facts: Facts) -> Iterator[Finding]:
    seconds = facts.settings.producer_expiry_seconds
    if seconds < limits.PRODUCER_EXPIRY_SECONDS_SAFE:
        yield Finding(
            "warning",
            "producers.expiry_seconds",
            f"{seconds} s: producers expire so soon that the proxy may append a late retry as a new batch; "
            f"{limits.PRODUCER_EXPIRY_SECONDS_SAFE} s and more are safe",
        )


def _without_effect(facts: Facts) -> Iterator[Finding]:
    """A warning, not a problem: such a setting may wait for brokers that are to be upgraded."""
    if facts.gives_idempotence:
        for one in without_effect_by_proxy(facts.settings):
            yield Finding("warning", one.name, one.reason)


def _full_disk(facts: Facts) -> Iterator[Finding]:
    if facts.free_bytes is not None and facts.free_bytes < facts.wanted_bytes:
        path: Path = facts.settings.data_directory
        yield Finding(
            "problem",
            f"data directory {path}",
            f"No space left on device: {facts.free_bytes} bytes are free, and a start writes {facts.wanted_bytes}. The "
            "proxy does not start; free some space, or name another data_directory",
        )


# ---------------------------------------------------------------------- the cluster
def _other_cluster(facts: Facts) -> Iterator[Finding]:
    if facts.is_anothers:
        assert facts.kept_cluster_id is not None
        assert facts.cluster_id is not None
        yield Finding("problem", "redis", mismatch(facts.settings.cluster, facts.kept_cluster_id, facts.cluster_id))


def _itself(facts: Facts) -> Iterator[Finding]:
    for host, port in facts.settings.upstream:
        for one in facts.settings.listeners:
            if port == one.port and host in ({one.host} if one.host not in _ANY_HOST else _THIS_HOST):
                where = join_host_and_port(host, port)
                text = f"this is the proxy's own listener {one.name!r}. Name a broker here"
                yield Finding("problem", f"upstream {where}", text)


def _without_port(one: Listener, facts: Facts) -> Iterator[Finding]:
    for broker_id in sorted(facts.broker_ids):
        if one.place_of(broker_id, "") is None:
            why = f"it is none of {len(one.broker_ids)} broker_ids" if one.broker_ids else "there is no such port"
            yield Finding(
                "problem",
                f"listener {one.name!r}",
                f"no port for broker {broker_id}: {why}. Clients cannot reach the partitions that it leads; add it to "
                "broker_ids",
            )


def _constant_address(one: Listener, facts: Facts) -> Iterator[Finding]:
    """Two brokers at one address: a client believes that each is there, asks one for what the other leads, and reads
    and writes a part of the partitions only."""
    known = sorted(facts.broker_ids or one.broker_ids)
    places = [place for broker_id in known if (place := one.place_of(broker_id, "")) is not None]
    if len(set(places)) < len(places):
        yield Finding(
            "problem",
            f"listener {one.name!r}",
            f"clients get the same address for several of {len(known)} brokers (advertised: {one.advertised}), so they "
            "read and write only some partitions. Put {port} or {id} into advertised, as in "
            f"{join_host_and_port(one.advertised.host, '{port}')}",
        )


def _unresolved(one: Listener, facts: Facts) -> Iterator[Finding]:
    if missing := [host for host in advertised_hosts(one, facts.broker_ids) if host in facts.unresolved]:
        yield Finding(
            "note",
            f"listener {one.name!r}",
            f"{_some(missing)} (advertised) does not resolve here. Clients get this name and have to resolve it",
        )


def _unnamed(one: Listener, facts: Facts, certificate: OwnCertificate | None) -> Iterator[Finding]:
    """A warning, not a problem: clients of Kafka before 2.0 do not check the name unless they are configured to
    (ssl.endpoint.identification.algorithm, KIP-294)."""
    if certificate is None:
        return
    hosts = advertised_hosts(one, facts.broker_ids)
    if missing := [host for host in hosts if not any(is_name_of(name, host) for name in certificate.names)]:
        yield Finding(
            "warning",
            f"listener {one.name!r}",
            f"the certificate {certificate.subject} has no name {_some(missing)}, which clients get (advertised); it "
            f"has {_some(certificate.names) or 'none'}. Clients that check host names refuse the proxy; renew the "
            "certificate with these names",
        )


def is_name_of(name: str, host: str) -> bool:
    """Is a host meant by a name of a certificate? ``*.`` stands for one label (RFC 6125, 6.4.3)."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host)
    except ValueError:
        name, host = name.lower(), host.rstrip(".").lower()
        return name == host or (name.startswith("*.") and name[2:] == host.partition(".")[2])


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_NAMES_SHOWN_MAX])
    return f"{shown}, ..." if len(names) > _NAMES_SHOWN_MAX else shown
