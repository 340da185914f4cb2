"""Runs ``idemproxy inspect``, ``forget`` and ``hide``: finds the server, connects, prints, returns the exit
status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from ....state.hidden_ranges import OffsetRange
from ....state.redis_inspection import EntryRow, InspectionError, RedisInspection, ServerFacts
from ... import limits
from ...net.tls import TlsError, client_context
from ...settings.config import ConfigError, Settings
from ...settings.suggestions import meant
from ..store_settings import OTHERS, private_redis, store_settings
from . import views
from .admin_ports import asked_addresses
from .client_ids import ask
from .forget import forget_name, forget_producer
from .found_duplicates import found_by_audit, found_by_proxy
from .hidden_ranges import add_found, add_hidden_range, listed_hidden_ranges, remove_hidden_range
from .hidden_ranges_topic import contents_of, restore_hidden_ranges
from .old_clients import shown_old_clients
from .order import page_of

_NAMES_SHOWN_MAX = 10
_WITH_CLIENT_IDS = ("producers", "intents", "producer", "topic")
_Show = Callable[..., Iterator[str]]


class NothingStored(Exception):
    """What was asked for is not there; one sentence."""


def run_inspection(options: argparse.Namespace) -> int:
    """Return 0; 1 where there was nothing to show or not all was done; 2 with a sentence on the error output; 130 after
    Ctrl-C."""
    try:
        settings = store_settings(options)
        if options.what == "old-clients":  # known to running proxies; there may be no Redis (native)
            lines = shown_old_clients(_admin_ports(settings, options), as_json=getattr(options, "json", False))
            return _print(lines, "no proxy that was asked has seen an old client since its start")
        with _open(settings) as inspection:
            server = inspection.server()
            if options.command == "forget":
                return _forget(inspection, settings, options)
            if options.command == "hide":
                return _hide(inspection, settings, options)
            return _print(_lines(inspection, server, settings, options), _nothing_stored(inspection))
    except NothingStored as sentence:
        print(f"idemproxy: {sentence}", file=sys.stderr)
        return 1
    except (ConfigError, InspectionError) as problem:
        print(f"idemproxy: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _lines(
    inspection: RedisInspection, server: ServerFacts, settings: Settings, options: argparse.Namespace
) -> Iterator[str]:
    as_json = getattr(options, "json", False)
    if options.what in _WITH_CLIENT_IDS:
        rows, show = _producers(inspection, options)
        return _with_client_ids(rows, _admin_ports(settings, options), partial(show, server=server), as_json)
    if options.admin_before:
        raise ConfigError(f"--admin: client ids are shown by inspect {', '.join(_WITH_CLIENT_IDS)}, not by this")
    match options.what:
        case None:
            return views.overview(inspection, server, as_json)
        case "names":
            return views.names(inspection.names(), server, as_json)
    raise AssertionError(options.what)


def _producers(inspection: RedisInspection, options: argparse.Namespace) -> tuple[Iterator[EntryRow], _Show]:
    """Return the entries that are asked for, and what shows them."""
    if options.what == "producer":
        return _of_producer(inspection, options), views.producer
    if options.what == "intents":
        return _ordered(views.with_intent(inspection.entries()), options), views.intents
    rows = inspection.entries()
    if options.what == "topic":
        rows = inspection.entries(topic=options.topic, partition=options.partition)
        rows = _known(inspection, rows, options.topic)
    return _ordered(rows, options), views.producers


def _admin_ports(settings: Settings, options: argparse.Namespace) -> list[tuple[str, int]]:
    found = asked_addresses(settings.admin, [*(options.admin_before or ()), *(options.admin or ())])
    if len(found) > limits.ADMIN_PORTS_ASKED_MAX:
        raise ConfigError(f"--admin names {len(found)} ports, the limit is {limits.ADMIN_PORTS_ASKED_MAX}")
    return found


def _with_client_ids(
    rows: Iterator[EntryRow], admin_ports: Sequence[tuple[str, int]], show: _Show, as_json: bool
) -> Iterator[str]:
    """Yield what ``show`` makes of the rows, and then one line that says which admin ports reported client ids. With
    ``--json`` that line goes to the error output, and only if a port that was asked did not report them."""
    first = list(islice(rows, limits.CLIENT_IDS_ASKED_MAX))
    if not first:
        yield from show(rows, as_json=as_json)
        return
    others = list(islice(rows, 1))
    clients = ask(admin_ports, {row.place.producer_id for row in first}, is_cut=bool(others))
    yield from show(chain(first, others, rows), as_json=as_json, client_of=clients.of)
    if not as_json:
        yield clients.line()
    elif clients.is_anybody_silent:
        print(f"idemproxy: {clients.line()}", file=sys.stderr)


def _ordered(rows: Iterator[EntryRow], options: argparse.Namespace) -> Iterator[EntryRow]:
    return page_of(rows, options.sort, options.limit, options.page)


def _known(inspection: RedisInspection, rows: Iterator[EntryRow], topic: str) -> Iterator[EntryRow]:
    """Return the rows. Raises NothingStored where there is none."""
    first = next(rows, None)
    if first is None:
        names = inspection.topic_names()
        where = f"under the cluster name {inspection.cluster!r}"
        hint = meant(topic, names, lists_all=0 < len(names) <= _NAMES_SHOWN_MAX)
        raise NothingStored(f"no producer of topic {topic!r} is stored {where}{hint}")
    return chain([first], rows)


def _forget(inspection: RedisInspection, settings: Settings, options: argparse.Namespace) -> int:
    ask = None if options.yes else sys.stdin.readline
    expiry_ms = settings.producer_expiry_seconds * 1000
    if options.what == "name":
        return forget_name(inspection, inspection.names(options.name), ask=ask, expiry_ms=expiry_ms, out=sys.stdout)
    return forget_producer(
        inspection,
        _of_producer(inspection, options),
        ask=ask,
        force=options.force,
        expiry_ms=expiry_ms,
        out=sys.stdout,
    )


def _hide(inspection: RedisInspection, settings: Settings, options: argparse.Namespace) -> int:
    if options.what == "list":
        if options.partition is not None and options.topic is None:
            raise ConfigError("--partition needs --topic: a partition of which topic?")
        as_json = getattr(options, "json", False)
        rows = listed_hidden_ranges(inspection, options.topic, options.partition, as_json=as_json)
        return _print(rows, _nothing_stored(inspection))
    if options.what == "restore":
        topic = options.from_topic or settings.hidden_ranges_topic
        if topic is None:
            raise ConfigError(
                "no topic to restore from: set hidden_ranges.topic in the configuration, or give --from-topic"
            )
        contents = contents_of(settings, topic)
        return restore_hidden_ranges(inspection, contents, dry_run=options.dry_run, out=sys.stdout)
    if options.what == "remove":
        return remove_hidden_range(inspection, _range_of(options), out=sys.stdout)
    ask = None if options.yes else sys.stdin.readline
    if options.from_audit is None and options.from_journal is None:
        return add_hidden_range(inspection, _range_of(options), options.reason, ask=ask, out=sys.stdout)
    if options.first is not None:
        raise ConfigError("offsets, and a file that names them: one of the two; TOPIC and PARTITION choose in the file")
    found = found_by_proxy(options.from_journal) if options.from_audit is None else found_by_audit(options.from_audit)
    chosen = found.only(options.topic, options.partition)
    return add_found(inspection, chosen, options.reason, ask=ask, out=sys.stdout)


def _range_of(options: argparse.Namespace) -> OffsetRange:
    if options.last is None:
        raise ConfigError("add needs TOPIC PARTITION FIRST LAST, or --from-audit DIR, or --from-journal FILE")
    if options.last < options.first:
        raise ConfigError(f"offsets {options.first} to {options.last}: the last one is below the first one")
    return OffsetRange(options.topic, options.partition, options.first, options.last + 1)


def _nothing_stored(inspection: RedisInspection) -> str:
    return f"nothing of this kind is stored under the cluster name {inspection.cluster!r}"


def _print(lines: Iterator[str], nothing: str) -> int:
    """Raises NothingStored with the sentence ``nothing`` where there is no line."""
    first = next(lines, None)
    if first is None:
        raise NothingStored(nothing)
    for line in chain([first], lines):
        print(line)
    return 0


# ---------------------------------------------------------------------- what was asked for
def _of_producer(inspection: RedisInspection, options: argparse.Namespace) -> Iterator[EntryRow]:
    if options.partition is not None and options.topic is None:
        raise ConfigError("--partition needs --topic: a partition of which topic?")
    return inspection.entries(producer_id=options.producer_id, topic=options.topic, partition=options.partition)


def _open(settings: Settings) -> RedisInspection:
    if settings.redis is not None:
        return RedisInspection(settings.redis, settings.cluster, _over_tls(settings))
    address = private_redis(settings.data_directory)
    try:
        return RedisInspection(address, settings.cluster)
    except InspectionError as error:
        why = "the server has ended, as its machine or its pod did; start the proxy, which starts it again"
        if os.path.exists(str(address.address)):
            why = f"{error}"
        where = settings.data_directory / "redis"
        raise ConfigError(f"the private Redis in {where} does not answer: {why}; {OTHERS}") from None


def _over_tls(settings: Settings) -> Callable[[Any], Any] | None:
    if settings.redis_tls is None:
        return None
    assert settings.redis is not None
    assert not isinstance(settings.redis.address, str), "a unix socket needs no TLS"
    try:
        context = client_context(settings.redis_tls)
    except TlsError as error:
        raise ConfigError(f"redis.tls: {error}") from None
    name = settings.redis_tls.server_name or settings.redis.address[0]
    return lambda connected: context.wrap_socket(connected, server_hostname=name)
