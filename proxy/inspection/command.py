"""Runs ``idemproxy inspect`` and ``idemproxy forget``: finds the server, connects, prints, returns the exit status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ...state.redis_facts import RedisAddress, parse_redis_url
from ...state.redis_inspection import EntryRow, InspectionError, RedisInspection, ServerFacts
from ...state.store import is_cluster_name
from ..config import DEFAULT_CLUSTER, ConfigError
from . import views
from .forget import forget_producer

_DATA_DIRECTORY = "data"


def run_inspection(options: argparse.Namespace) -> int:
    """Return 0; 1 where there was nothing to show or not all was forgotten; 2 with a sentence on the error output."""
    try:
        cluster = _cluster(options)
        with RedisInspection(_address(options), cluster) as inspection:
            server = inspection.server()
            if options.command == "forget":
                return _forget(inspection, options)
            return _print(_lines(inspection, server, options))
    except (ConfigError, InspectionError) as problem:
        print(f"idemproxy: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _lines(inspection: RedisInspection, server: ServerFacts, options: argparse.Namespace) -> Iterator[str]:
    as_json = getattr(options, "json", False)
    match options.what:
        case None:
            return views.overview(inspection, server, as_json)
        case "producers":
            return views.producers(inspection.entries(), server, as_json)
        case "intents":
            return views.intents(inspection.entries(), server, as_json)
        case "proxies":
            return views.proxies(inspection, server, as_json)
        case "blocks":
            return views.blocks(inspection.blocks(), server, as_json)
        case "producer":
            return views.producer(_of_producer(inspection, options), server, as_json)
        case "topic":
            rows = inspection.entries(topic=options.topic, partition=options.partition)
            return views.producers(rows, server, as_json)
    raise AssertionError(options.what)


def _forget(inspection: RedisInspection, options: argparse.Namespace) -> int:
    ask = None if options.yes else sys.stdin.readline
    return forget_producer(inspection, _of_producer(inspection, options), ask=ask, force=options.force, out=sys.stdout)


def _print(lines: Iterator[str]) -> int:
    printed = 0
    for line in lines:
        print(line)
        printed += 1
    sys.stdout.flush()
    return 0 if printed else 1


# ---------------------------------------------------------------------- what was asked for
def _of_producer(inspection: RedisInspection, options: argparse.Namespace) -> Iterator[EntryRow]:
    if options.partition is not None and options.topic is None:
        raise ConfigError("--partition needs --topic: a partition of which topic?")
    return inspection.entries(producer_id=options.producer_id, topic=options.topic, partition=options.partition)


def _cluster(options: argparse.Namespace) -> str:
    cluster: str = getattr(options, "cluster", DEFAULT_CLUSTER)
    if not is_cluster_name(cluster):
        raise ConfigError(f"--cluster {cluster!r}: letters, digits, dot, underscore and hyphen, at most 64")
    return cluster


def _address(options: argparse.Namespace) -> RedisAddress:
    url: str | None = getattr(options, "redis", None)
    directory: str | None = getattr(options, "data_dir", None)
    if url is not None and directory is not None:
        raise ConfigError("--redis and --data-dir name two servers: one of them")
    if url is not None:
        try:
            return parse_redis_url(url)
        except ValueError as problem:
            raise ConfigError(f"--redis: {problem}") from None
    path = Path(directory or _DATA_DIRECTORY) / "redis" / "redis.socket"
    try:
        return RedisAddress(os.fsdecode(path.read_bytes()))
    except OSError as error:
        hint = "" if directory else "; --redis names a server, --data-dir another directory"
        raise ConfigError(f"no private Redis in {path.parent}: {error.strerror}{hint}") from None
