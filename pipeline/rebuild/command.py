"""``idemproxy rebuild``: checks what is needed, runs, prints what was found and written. Exit status 0, 1 or 2:
docs/how-to/redis-data-loss.md."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ... import installation_of
from ..options import WrongOption, named_values, pattern_of

if TYPE_CHECKING:
    from ...state.redis_bulk import Access as RedisAccess
    from ...state.redis_facts import RedisAddress
    from ..reading.broker import Access, Tls
    from ..reading.places import Place, Range
    from .wanted import Wanted
    from .work import Concluded

EXIT_HEALTHY, EXIT_DIFFERENT, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 2, 130
PROBLEMS_SHOWN_MAX: Final = 10
_NEEDED: Final = ("numpy",)
_NEEDED_ON_SPARK: Final = ("pandas", "pyarrow", "pyspark")


class TlsSettings(Protocol):
    """As of the proxy's configuration."""

    @property
    def ca_file(self) -> Path | None: ...

    @property
    def cert_file(self) -> Path | None: ...

    @property
    def key_file(self) -> Path | None: ...

    @property
    def key_password(self) -> str | None: ...

    @property
    def server_name(self) -> str | None: ...


class SaslSettings(Protocol):
    """As of the proxy's configuration."""

    @property
    def mechanism(self) -> str: ...

    @property
    def username(self) -> str | None: ...

    @property
    def password(self) -> str | None: ...

    @property
    def token_file(self) -> Path | None: ...


class ProxySettings(Protocol):
    """What is used of the proxy's configuration."""

    @property
    def upstream(self) -> Sequence[tuple[str, int]]: ...
    @property
    def upstream_tls(self) -> TlsSettings | None: ...
    @property
    def upstream_sasl(self) -> SaslSettings | None: ...
    @property
    def redis(self) -> RedisAddress | None: ...
    @property
    def redis_tls(self) -> TlsSettings | None: ...
    @property
    def cluster(self) -> str: ...
    @property
    def producer_expiry_seconds(self) -> int: ...


class SparkFailed(Exception):
    """A task has failed; the message is a sentence for a person."""


@dataclass(slots=True)
class Summary:
    """What a run has found and done. ``differences``: producers on partitions, counted by what Redis had of them.
    ``written``: those that were written, counted by effect. ``unrecognised``: batches whose marker, in their header,
    names no producer that Redis knows, by partition. ``problems``: by partition."""

    is_dry_run: bool
    partitions: int = 0
    differences: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    idle: int = 0
    bytes_read: int = 0
    unrecognised: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_healthy(self) -> bool:
        """Had Redis all that the logs have, as far as these could be read?"""
        from .judge import UNHEALTHY

        return not self.problems and not self.unrecognised and not any(self.differences[kind] for kind in UNHEALTHY)

    def as_json(self) -> str:
        """Return it as one JSON object."""
        return json.dumps(
            {
                "dry_run": self.is_dry_run,
                "was_healthy": self.is_healthy,
                "partitions": self.partitions,
                "differences": dict(self.differences),
                "written": dict(self.written),
                "idle": self.idle,
                "bytes_read": self.bytes_read,
                "unrecognised_batches": self.unrecognised,
                "problems": self.problems,
                "seconds": round(self.seconds, 3),
            }
        )


def run_rebuild(options: argparse.Namespace, settings: ProxySettings, redis: RedisAddress) -> int:
    """Return 0; 1 where a dry run has found a difference, or a partition could not be concluded; 2 with a sentence
    where the run could not be made. ``redis``: the server, which may be a proxy's private one."""
    needed = _NEEDED if options.master is None else (*_NEEDED, *_NEEDED_ON_SPARK)
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        return _complain(f"it needs {', '.join(missing)}: {installation_of('spark')}")
    try:
        return _run(options, settings, redis)
    except WrongOption as problem:
        return _complain(str(problem))
    except KeyboardInterrupt:
        _complain("interrupted; what was written until then is right, and the rest is left to the proxies")
        return EXIT_INTERRUPTED
    except Exception:
        traceback.print_exc()  # Python's own exit status would be 1, which means that something differs
        return _complain("this is an error of the rebuild itself; please report it with the lines above")


def _run(options: argparse.Namespace, settings: ProxySettings, redis: RedisAddress) -> int:
    from ...state.redis_blocking import InspectionError
    from ...state.redis_bulk import BulkStore
    from ..reading.broker import BrokerProblem, Cluster
    from ..reading.places import NothingToRead, chosen
    from .plan import places_of, ranges_of_all
    from .registered import Registered
    from .wanted import Wanted

    if options.conf and options.master is None:
        raise WrongOption("--conf: settings of Spark are for --master")
    patterns = [pattern_of("--pattern", text) for text in options.pattern]
    began = time.monotonic()
    summary = Summary(options.dry_run)
    try:
        access = _access(settings)
        expiry_ms = settings.producer_expiry_seconds * 1000
        with ExitStack() as stack:
            redis_access = _redis_access(settings, redis)
            with BulkStore(redis_access) as store:
                store.data_generation()
                now_ms = store.now_us() // 1000
            window_ms = expiry_ms if options.since_seconds is None else options.since_seconds * 1000
            registration = None if options.dry_run else stack.enter_context(Registered(redis_access))
            bootstrap = tuple(settings.upstream)
            since_ms = 0 if options.all else now_ms - window_ms
            wanted = Wanted(bootstrap, access, redis_access, since_ms, expiry_ms, registration)
            with Cluster(bootstrap, access) as cluster:
                there = cluster.partitions(options.topic)
                places, summary.problems = places_of(
                    cluster, chosen(list(there), options.topic, patterns), there, since_ms
                )
            summary.partitions = len(places)
            for concluded in _concluded(options, wanted, places, ranges_of_all(places), stack):
                _count(summary, places, concluded, options)
    except (BrokerProblem, InspectionError, NothingToRead, SparkFailed) as problem:
        return _complain(str(problem))
    except OSError as problem:
        return _complain(f"{problem.filename or 'the log'}: {problem.strerror or problem}")
    summary.seconds = time.monotonic() - began
    for line in [summary.as_json()] if options.json else _told(summary):
        print(line)
    if options.dry_run:
        return EXIT_HEALTHY if summary.is_healthy else EXIT_DIFFERENT
    return EXIT_DIFFERENT if summary.problems else EXIT_HEALTHY


def _concluded(
    options: argparse.Namespace, wanted: Wanted, places: Sequence[Place], ranges: Sequence[Range], stack: ExitStack
) -> Iterator[Concluded]:
    from .job import rebuild_here, rebuild_on_spark

    if options.master is None:
        yield from rebuild_here(wanted, places, ranges, _say)
        return
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from ..spark import NoJava, cause_of, session

    try:
        settings = {"spark.app.name": "idemproxy rebuild", **named_values("--conf", options.conf)}
        spark = stack.enter_context(session(options.master, settings))
        yield from rebuild_on_spark(spark, wanted, places, ranges, _say)
    except NoJava as problem:
        raise WrongOption(str(problem)) from None
    except (PySparkException, Py4JError) as problem:  # what a task raises comes so
        raise SparkFailed(f"Spark failed: {cause_of(str(problem))}") from None


def _count(summary: Summary, places: Sequence[Place], concluded: Concluded, options: argparse.Namespace) -> None:
    summary.idle += concluded.idle
    summary.bytes_read += concluded.bytes_read
    if concluded.unrecognised:
        summary.unrecognised[places[concluded.place].name] = concluded.unrecognised
    if concluded.problem:
        summary.problems[places[concluded.place].name] = concluded.problem
    for row in concluded.rows:
        summary.differences[row.difference] += 1
        if row.is_written:
            summary.written[row.effect] += 1
        if options.verbose and row.difference not in ("same", "busy"):
            done = f", {row.effect} written" if row.is_written else ""
            print(f"{row.topic}-{row.partition} producer {row.producer_id}: {row.difference}{done}")


def _told(summary: Summary) -> Iterable[str]:
    of = summary.differences
    yield (
        f"{sum(of.values())} producers on {summary.partitions} partitions were compared with Redis"
        f" ({summary.bytes_read / 1e6:.1f} MB read in {summary.seconds:.1f} s); {summary.idle} were idle for longer"
    )
    meaning: Mapping[str, str] = {
        "same": "Redis has what the log has",
        "missing": "Redis has nothing",
        "unverified": "Redis has something of an earlier data generation",
        "behind": "Redis has less than the log, and proxies would believe it: writes were lost",
        "ahead": "Redis has more than the log: acknowledged records are gone; left as it is",
        "busy": "a proxy works on it, or has left it open; the proxies look after it",
        "producer_name": "has a name; the proxies look after it",
        "conditional": "of a conditional partition; the proxies read where its log ends",
        "unrecognised": "the log has its last batch no more; the proxies look when its producer comes back",
        "damaged": "cannot be read by this version",
    }
    for kind, text in meaning.items():
        if of[kind]:
            yield f"  {kind}: {of[kind]} ({text})"
    if not summary.is_dry_run:
        yield f"written: {summary.written['whole']} complete, {summary.written['bound']} that a proxy completes"
    if summary.unrecognised:
        count, names = sum(summary.unrecognised.values()), list(summary.unrecognised)
        shown = ", ".join(names[:PROBLEMS_SHOWN_MAX]) + (", ..." if len(names) > PROBLEMS_SHOWN_MAX else "")
        yield (
            f"{count} batches in message format v2 are of producers that Redis does not know, and do not name them: the"
            f" proxies recognise them when these come back ({shown})"
        )
    problems = list(summary.problems.items())
    for name, problem in problems[:PROBLEMS_SHOWN_MAX]:
        yield f"{name} was left to the proxies: {problem}"
    if len(problems) > PROBLEMS_SHOWN_MAX:
        yield f"and {len(problems) - PROBLEMS_SHOWN_MAX} more partitions"


# ---------------------------------------------------------------------- settings
def _access(settings: ProxySettings) -> Access:
    from ...client.security import Sasl
    from ..reading.broker import Access

    tls, sasl = settings.upstream_tls, settings.upstream_sasl
    login = None
    if sasl is not None:
        if sasl.token_file is not None:
            raise WrongOption("brokers that want a token (OAUTHBEARER) cannot be read by it yet")
        login = Sasl(sasl.mechanism, sasl.username or "", sasl.password or "")
    return Access("idemproxy-rebuild", None if tls is None else _tls(tls), login)


def _redis_access(settings: ProxySettings, address: RedisAddress) -> RedisAccess:
    from ...state.redis_bulk import Access as RedisAccess
    from .wanted import OverTls

    over_tls = None
    if settings.redis_tls is not None and not isinstance(address.address, str):
        over_tls = OverTls(_tls(settings.redis_tls), settings.redis_tls.server_name or address.address[0])
    return RedisAccess(address, settings.cluster, over_tls)


def _tls(given: TlsSettings) -> Tls:
    from ..reading.broker import Tls

    ca_file, cert_file, key_file = (
        None if path is None else str(path) for path in (given.ca_file, given.cert_file, given.key_file)
    )
    return Tls(ca_file, cert_file, key_file, given.key_password)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _complain(sentence: str) -> int:
    print(f"idemproxy rebuild: {sentence}", file=sys.stderr)
    return EXIT_FAILED
