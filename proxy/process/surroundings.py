"""Collects the facts from which ``findings.py`` draws its conclusions. Changes nothing outside of this process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import trio

from ...reactor import Address, Reactor
from .. import limits
from ..net.certificates import tls_by_place
from ..net.tls import TlsError, own_certificate
from ..settings.config import Settings
from .data_directory import ROOM_BYTES, ROOM_WITH_REDIS_BYTES
from .descriptors import raise_descriptors
from .findings import Facts, advertised_hosts
from .peers import PeerLook, reported


def facts_here(settings: Settings) -> Facts:
    """Return what this machine tells, without a look at brokers and Redis. Raises this process's limit of
    descriptors as far as the system allows."""
    certificates = {}
    for place, tls in tls_by_place(settings).items():
        try:
            certificate = own_certificate(tls.cert_file)
        except TlsError:  # replaced by a bad one meanwhile: the code that reads it for use reports that
            continue
        if certificate is not None:
            certificates[place] = certificate
    return Facts(
        settings,
        time.time(),
        raise_descriptors(settings.limits.connections_max),
        _free_bytes(settings.data_directory),
        ROOM_BYTES if settings.redis is not None else ROOM_WITH_REDIS_BYTES,
        certificates,
    )


async def with_unresolved(facts: Facts) -> Facts:
    """Return the facts with the advertised hosts that have no address here. Takes seconds where a name server is
    silent, and then says nothing of the hosts that are left."""
    hosts = [host for one in facts.settings.listeners for host in advertised_hosts(one, facts.broker_ids)]
    unresolved: list[str] = []
    with trio.move_on_after(limits.RESOLVE_SECONDS_MAX):
        for host in dict.fromkeys(hosts[: limits.HOSTS_RESOLVED_MAX]):
            try:
                await trio.socket.getaddrinfo(host, None)
            except (OSError, UnicodeError) as error:
                if not isinstance(error, socket.gaierror) or error.errno != socket.EAI_AGAIN:
                    unresolved.append(host)
    return replace(facts, unresolved=tuple(unresolved))


async def who_listens(reactor: Reactor, address: Address, wanted: str) -> str:
    """Return the error message for an address that does not answer as ``wanted`` (``peers.py``); empty: it may be what
    is wanted, or nobody can tell. Takes two seconds where nothing is answered."""
    found: list[str] = []
    done = trio.Event()

    def looked(kind: str) -> None:
        found.append(reported(kind, wanted))
        done.set()

    PeerLook(reactor, address, looked)
    await done.wait()
    return found[0]


def with_brokers(facts: Facts, broker_ids: Collection[int]) -> Facts:
    """Return the facts for a cluster with these brokers."""
    return replace(facts, broker_ids=tuple(broker_ids))


def _free_bytes(path: Path) -> int | None:
    """Return what this process may still write there; for a directory that is missing, where it would be made."""
    above = path.absolute()
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        status = os.statvfs(above)
    except OSError:
        return None
    return status.f_frsize * (status.f_bfree if os.geteuid() == 0 else status.f_bavail)
