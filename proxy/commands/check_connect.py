"""Tries Redis and the brokers as the proxy would, over the proxy's own connections, and reports what it finds. Writes
nothing to either."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ... import DOCUMENTATION
from ...reactor import Address, Reactor
from ...state.redis_claim import Stored, StoredLook
from ...state.redis_facts import RedisAddress, data_generation_of, shown_server, warnings_of
from ...state.redis_greeting import Greeting, Login, load_swap_script
from ...state.redis_link import RedisLink, Reply, ReplyError, pack
from ...state.redis_server import EmbeddedRedisError, find_binary
from ...state.store import StoreAway, data_number_key, data_number_of, member_key
from .. import limits
from ..bridge.asks import Metadata
from ..bridge.cluster import Cluster
from ..broker.broker import Broker
from ..broker.mode import NATIVE_LATER, Mode, shown_topics
from ..broker.probed import Probed
from ..broker.sasl_credentials import Credentials
from ..broker.sasl_login import OverSasl
from ..broker.served import Idempotence, choose
from ..events import OperatorMessage
from ..flow.effects import Unanswered
from ..net.certificates import REDIS_PLACE, UPSTREAM_PLACE, read_certificates
from ..net.event_loop import TrioReactor
from ..process.findings import Finding, all_findings
from ..process.peers import BROKER, REDIS, is_no_answer
from ..process.redis_memory import memory_of
from ..process.surroundings import facts_here, who_listens, with_brokers, with_unresolved
from ..settings.addresses import shown
from ..settings.config import Settings
from ..settings.natively import SPANS_WITHOUT_EFFECT, without_effect
from ..telemetry.otel import wants
from ..telemetry.redis_hints import MAKE_ROOM, redis_reason
from ..versions import NEWER
from .check_ports import try_ports
from .check_topics import look_at_topics
from .inspection.admin_ports import asked_addresses
from .inspection.old_clients import old_clients_finding

ANSWER_SECONDS_MAX = 5.0
_NOT_CONNECTED = "cannot connect"
"""How a finding begins where nothing took the connection."""
_MOST_OFTEN = "is this a broker's listener, and does it ask for TLS or SASL?"
_REMEDIES = {
    "TLS is spoken there": "set upstream.tls, or name a listener without TLS",
    "takes no SASL": "remove upstream.sasl, or name a listener with SASL",
}
"""By words of the reason."""
_MOST_OFTEN_AT_REDIS = "is this Redis, and does it ask for TLS (redis.tls)?"
_NO_RIGHT = "NOPERM"
_AWAITS_PROBE = (
    "does not show that it is Kafka: `idemproxy run` probes what it does with batches, as `idemproxy probe` does, on a "
    "topic of its own. That decides how it is served"
)


def try_everything(settings: Settings) -> list[Finding]:
    """Return what was found: Redis, each bootstrap address, each broker, the message format of the topics, and the
    ports that would be opened. Takes seconds."""
    findings: list[Finding] = []
    trio.run(_try, settings, findings)
    return findings + old_clients_finding(asked_addresses(settings.admin, ()))


async def _try(settings: Settings, findings: list[Finding]) -> None:
    def failed(where: str, error: Exception) -> None:
        findings.append(Finding("problem", where, f"an error of idemproxy itself: {error!r}"))

    reactor = TrioReactor(failed)
    _, sides = read_certificates(settings, lambda _event: None, reactor.later)
    sasl = None if settings.upstream_sasl is None else Credentials(settings.upstream_sasl, os.urandom)

    def over(place: str) -> Reactor:
        side = sides.get(place)
        return reactor if side is None else reactor.over_tls(side)

    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        mode, no_entries = Mode.of_setting(settings.idempotence, settings.topics_of_engine), ""
        stored: Stored | StoreAway | None = None
        if settings.redis is not None:
            look = partial(_look, over(REDIS_PLACE), settings.redis, settings.cluster)
            stored = await look(needs_entries=False)
            mode.probed = Probed.unpack(stored.verdict) if isinstance(stored, Stored) else None
            if isinstance(stored, Stored) and mode.wanted is not Idempotence.PROXY:
                entries = await look(needs_entries=True, needs_proxies=mode.wanted is Idempotence.NATIVE)
                if isinstance(entries, StoreAway):
                    no_entries = f"cannot be asked whether producers have entries: {redis_reason(entries.reason)}"
                else:
                    stored = entries
        below_sasl = over(UPSTREAM_PLACE)
        towards_brokers = below_sasl if sasl is None else OverSasl(below_sasl, sasl, lambda _event: None)
        agreed = partial(_agreed, settings, mode, stored)
        writes = any(one.authentication != "pass_through" for one in settings.listeners)
        brokers = _Brokers(towards_brokers, below_sasl, reactor.end_pass, mode, agreed, writes=writes)
        found = await brokers.look(settings.upstream)
        if settings.redis is not None and not (mode.passes_all and isinstance(stored, Stored)):
            findings += await _try_redis(over(REDIS_PLACE), settings.redis, settings.cluster)
        elif mode.passes_all:
            findings.append(Finding("ok", "redis", "not used: the brokers give idempotence themselves"))
            if wants("traces", os.environ):
                findings.append(Finding("warning", "spans", SPANS_WITHOUT_EFFECT))
        else:
            findings.append(await trio.to_thread.run_sync(_look_for_private_redis, settings.data_directory / "redis"))
        if mode.is_native:
            findings += [Finding("problem", one.name, one.reason) for one in without_effect(settings)]
            if mode.engine_topics:
                topics = f"{shown_topics(mode.engine_topics)}; on all others requests pass through"
                findings.append(Finding("ok", "engine topics", topics))
        findings += found
        facts = with_brokers(facts_here(settings), brokers.ids)
        facts = replace(facts, gives_idempotence=mode.chosen is Idempotence.PROXY)
        if isinstance(stored, Stored):
            facts = replace(facts, kept_cluster_id=stored.cluster_id, cluster_id=brokers.cluster_id)
        findings += all_findings(await with_unresolved(facts))
        if facts.is_anothers:
            pass  # then the stored mode is another cluster's as well
        elif mode.by_brokers is not None and isinstance(why := _agreed(settings, mode, stored), str):
            findings.append(Finding("problem", "redis", why))
        elif mode.by_brokers is Idempotence.NATIVE and not mode.is_native and mode.wanted is None:
            findings.append(Finding("ok", "brokers", NATIVE_LATER))
        if mode.may_be_native and no_entries:
            findings.append(Finding("problem", "redis", no_entries))
        nursery.cancel_scope.cancel()
    findings += try_ports(settings, brokers.ids)


# ---------------------------------------------------------------------- Redis
def _look_for_private_redis(directory: Path) -> Finding:
    try:
        binary = find_binary()
    except EmbeddedRedisError as problem:
        return Finding("problem", "redis", str(problem))
    return Finding("ok", "redis", f"a private one in {directory}, for this proxy alone: {binary}")


def _agreed(settings: Settings, mode: Mode, stored: Stored | StoreAway | None) -> Idempotence | str:
    found = stored if isinstance(stored, Stored) else Stored()
    return mode.agreed(settings.cluster, found, mode.by_brokers, settings.allows_duplicates_in_flight)


async def _look(
    reactor: Reactor, redis: RedisAddress, cluster: str, *, needs_entries: bool, needs_proxies: bool = False
) -> Stored | StoreAway:
    """Return what is stored under the cluster's name, as a start would read it."""
    looked: list[Stored | StoreAway] = []
    done = trio.Event()

    def end(result: Stored | StoreAway) -> None:
        looked.append(result)
        done.set()

    StoredLook(
        reactor,
        redis.address,
        cluster,
        login=Login(redis.username, redis.password, redis.database),
        needs_entries=needs_entries,
        needs_proxies=needs_proxies,
        becomes=lambda _stored: None,
        done=end,
    )
    with trio.move_on_after(ANSWER_SECONDS_MAX):
        await done.wait()
    return looked[0] if looked else StoreAway(f"no answer within {ANSWER_SECONDS_MAX:g} s")


async def _try_redis(reactor: Reactor, redis: RedisAddress, cluster: str) -> list[Finding]:
    """Log in to Redis and try what a proxy needs."""
    what = f"redis {shown(redis.address)}"
    found: list[Finding] = []
    done = trio.Event()

    def end(sign: str, text: str) -> None:
        if not done.is_set():
            found.append(Finding(sign, what, text))
            done.set()

    def failed(reason: str) -> None:
        end("problem", redis_reason(reason))

    def greeted(info: dict[str, str]) -> None:
        link.call(pack(b"GET", data_number_key(cluster)), partial(look, info))

    def look(info: dict[str, str], reply: Reply | StoreAway) -> None:
        if isinstance(reply, StoreAway):
            return  # the link has ended, and that was reported
        data_generation = data_generation_of(info, data_number_of(reply if isinstance(reply, bytes) else None))
        assert data_generation is not None, "refused by the greeting"

        def loaded(sha: bytes) -> None:
            _try_rights(link, member_key(cluster, bytes(8)), sha, partial(tried, info))

        load_swap_script(link, data_generation, failed, loaded)

    def tried(info: dict[str, str], refused: list[str]) -> None:
        if refused:
            end("problem", f"this user may not {', '.join(refused)}; see {DOCUMENTATION}/how-to/sasl.html")
        file = "append-only file on" if info.get("aof_enabled") == "1" else "no append-only file"
        end("ok", f"{shown_server(info)}, {info.get('role')}, {info.get('maxmemory_policy')}, {file}")
        found.extend(Finding("warning", what, text) for text in warnings_of(info))
        found.extend(_little_room(what, info))

    def opened() -> None:
        login = Login(redis.username, redis.password, redis.database)
        Greeting(link, login, failed, greeted)

    link = RedisLink(reactor, opened, failed)
    reactor.connect(redis.address, link)
    with trio.move_on_after(ANSWER_SECONDS_MAX):
        await done.wait()
    end("problem", f"no answer within {ANSWER_SECONDS_MAX:g} s")
    link.reset("looked at")
    if is_no_answer(found[0].text):
        kind = await who_listens(reactor, redis.address, REDIS)
        found[0] = found[0]._replace(text=f"{found[0].text}; {kind or _MOST_OFTEN_AT_REDIS}")
    return found


def _little_room(what: str, info: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with the memory of a server that may not use all that it wants."""
    memory = memory_of(info)
    if memory is None or not memory.limit_bytes:
        return
    if memory.used_bytes >= memory.limit_bytes:
        used = f"{memory.used_bytes} bytes are used, maxmemory is {memory.limit_bytes}"
        yield Finding("problem", what, f"Redis is full and takes no writes ({used}): {MAKE_ROOM}")
    elif memory.used_bytes > limits.REDIS_MEMORY_SHARE_MAX * memory.limit_bytes:
        share = 100 * memory.used_bytes / memory.limit_bytes
        text = f"Redis uses {share:.0f} % of its maxmemory; when it is full, nothing can be produced: {MAKE_ROOM}"
        yield Finding("warning", what, text)


def _try_rights(link: RedisLink, nobody: bytes, sha: bytes, done: Callable[[list[str]], None]) -> None:
    """Try the commands that a proxy needs, in a way that writes nothing. ``nobody``: a key that no proxy has; ``done``
    gets the names of the commands that this user may not run."""
    trials = [
        (b"GET", nobody),
        (b"EXISTS", nobody),
        (b"GETRANGE", nobody, b"0", b"0"),
        (b"SET", nobody, b"", b"XX"),  # writes only over an existing key: there is none
        (b"DEL", nobody),
        (b"INCRBY", nobody, b""),  # refused before it writes: that is no amount
        # Ends before it reads: no such proxy is registered.
        (b"EVALSHA", sha, b"2", nobody, nobody, bytes(8), b"", b"0", b"0"),
    ]
    refused: list[str] = []

    def take(name: bytes, is_last: bool, reply: Reply | StoreAway) -> None:
        if isinstance(reply, ReplyError) and reply.mentions(_NO_RIGHT):
            refused.append(name.decode())
        if is_last:
            done(refused)

    for trial in trials:
        link.call(pack(*trial), partial(take, trial[0], trial is trials[-1]))


# ---------------------------------------------------------------------- brokers
class _Tried:
    """One broker, and what was found out about it. ``what``: its name in the findings, before the address."""

    def __init__(
        self, reactor: Reactor, what: str, broker_id: int, address: Address, mode: Mode, judged: Callable[[], None]
    ) -> None:
        """``judged``: see ``Broker``."""
        self.what = f"{what} {shown(address)}"
        self.reason = f"no answer within {ANSWER_SECONDS_MAX:g} s"
        self.is_over = trio.Event()
        self.broker = Broker(
            reactor,
            broker_id,
            address,
            may_send=lambda: False,
            admits=lambda _cluster_id: True,  # that they belong to several clusters is a finding
            on_ready=lambda _broker: self.is_over.set(),
            report=self._hear,
            on_refused=self._refused,
            mode=mode,
            on_judged=judged,
        )
        self._mode = mode
        self.broker.open()

    def _hear(self, event: Any) -> None:
        if isinstance(event, OperatorMessage):
            self.reason = event.what.partition(": ")[2] or event.what
            self.is_over.set()

    def _refused(self, broker: Broker) -> None:
        if broker.refusal is not None:
            self.reason = f"cannot be served: {broker.refusal.reason}"
            self.is_over.set()

    def finding(self) -> Finding:
        """Return what was found."""
        if self.broker.awaits_probe:
            return Finding("warning", self.what, _AWAITS_PROBE)
        if not self.broker.is_ready:
            return Finding("problem", self.what, self.reason)
        if self.broker.remark:
            return Finding("warning", self.what, self.broker.remark)
        if self._mode.is_native and self.broker.id >= 0:
            return Finding("ok", self.what, "gives producer ids itself: requests pass through (native)")
        is_newer = self.broker.version == NEWER
        return Finding("ok", self.what, "Kafka 0.11 or later" if is_newer else f"Kafka {self.broker.version}")


class _Brokers:
    """Examines all brokers of a cluster. ``below_sasl``: the same reactor without the login. ``send``: sends what was
    asked outside of a pass. ``mode``: who gives idempotence; chosen here as the proxy would, by ``agreed``. ``writes``:
    with our principal."""

    def __init__(
        self,
        reactor: Reactor,
        below_sasl: Reactor,
        send: Callable[[], None],
        mode: Mode,
        agreed: Callable[[], Idempotence | str],
        *,
        writes: bool,
    ) -> None:
        self.mode = mode
        self._agreed = agreed
        self._reactor = reactor
        self._below_sasl = below_sasl
        self._send = send
        self._writes = writes
        self.cluster_id: str | None = None
        """The cluster's id as the brokers tell it; None if none does."""
        self.ids: Collection[int] = ()
        """The brokers that the cluster has, by id; none before they are known."""

    async def look(self, upstream: Sequence[tuple[str, int]]) -> list[Finding]:
        """Return a finding per address and per broker, and the message format of the topics."""
        first = [_Tried(self._reactor, "upstream", -1, address, self.mode, lambda: None) for address in upstream]
        await _wait_for(first)
        findings = [await self._explained(one) for one in first]
        reported: list[Cluster] = []
        for one in first:
            if one.broker.is_ready:
                answer: Cluster | Unanswered = await self._answer(partial(one.broker.ask, Metadata(None)))
                if isinstance(answer, Cluster):
                    reported.append(answer)
                else:
                    findings.append(Finding("problem", one.what, f"no metadata: {answer.reason}"))
        if len({cluster.cluster_id for cluster in reported}) > 1:
            ids = ", ".join(sorted({str(cluster.cluster_id) for cluster in reported}))
            todo = "Name addresses of one cluster only (upstream.bootstrap)"
            findings.append(Finding("problem", "upstream", f"the addresses belong to several clusters: {ids}. {todo}"))
        self.cluster_id = next((cluster.cluster_id for cluster in reported if cluster.cluster_id), None)
        if reported:
            findings += await self._look_at_cluster(reported[0])
        for one in first:
            one.broker.close()
        return findings

    async def _explained(self, one: _Tried) -> Finding:
        """Say of an address that takes connections and does not answer as a broker what listens there; where that
        cannot be seen, what is wrong most often."""
        finding = _with_remedy(one.finding())
        if finding.sign != "problem" or not is_no_answer(finding.text):
            return finding
        kind = await who_listens(self._below_sasl, one.broker.address, BROKER)
        return finding._replace(text=f"{finding.text}; {kind or _MOST_OFTEN}")

    async def _look_at_cluster(self, cluster: Cluster) -> list[Finding]:
        places = sorted(cluster.brokers.items())
        self.ids = cluster.brokers.keys()
        tried: list[_Tried] = []

        def judged(is_time_up: bool = False) -> None:
            known = [one.broker.judgement for one in tried if not is_time_up or one.broker.judgement is not None]
            if len(tried) == len(places):
                self.mode.by_brokers = choose(known)
            if self.mode.by_brokers is not None and isinstance(chosen := self._agreed(), Idempotence):
                self.mode.chosen = chosen
            for one in tried:
                one.broker.serve_or_refuse()
                if one.broker.awaits_probe:
                    one.is_over.set()

        for key, place in places:
            address = (place.host, place.port)
            tried.append(_Tried(self._reactor, f"broker {key} at", key, address, self.mode, judged))
        await _wait_for(tried)
        judged(is_time_up=True)
        findings = [_advertised(one.finding()) for one in tried]
        brokers = {key: one.broker for (key, _), one in zip(places, tried, strict=True) if one.broker.is_ready}
        if not self.mode.is_native:
            findings += await look_at_topics(self._answer, cluster, brokers, writes=self._writes)
        for one in tried:
            one.broker.close()
        return findings

    async def _answer(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        """Ask and wait for the answer; the control connection gives up by itself."""
        got: list[Any] = []
        done = trio.Event()

        def answered(answer: Any) -> None:
            got.append(answer)
            done.set()

        ask(answered)
        self._send()
        await done.wait()
        return got[0]


def _advertised(finding: Finding) -> Finding:
    """Say of a broker that cannot be reached where its address comes from: it is in no configuration of ours."""
    if finding.sign != "problem" or not finding.text.startswith(_NOT_CONNECTED):
        return finding
    return finding._replace(text=f"{finding.text}; the cluster names this address (the broker's advertised.listeners)")


def _with_remedy(finding: Finding) -> Finding:
    """Say which setting decides about what a broker's listener speaks."""
    remedy = next((text for words, text in _REMEDIES.items() if words in finding.text), None)
    if finding.sign != "problem" or remedy is None:
        return finding
    return finding._replace(text=f"{finding.text}; {remedy}")


async def _wait_for(tried: Iterable[_Tried]) -> None:
    with trio.move_on_after(ANSWER_SECONDS_MAX):
        for one in tried:
            await one.is_over.wait()
