"""What proxies report of where producers with a name stopped (DescribeProducers), against the answers that clients got
and what is in the log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from simulation.allowed import may_be_unmarked, may_be_untold

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.state.entry import NO_PRINCIPAL, StoredFormatError, unpack
from idemproxy.state.names import is_named
from idemproxy.state.store import entry_key
from testkit.virtual.client import VirtualClient
from testkit.virtual.producer import TopicPartition
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.world import TOPIC, World

STORED = (0, 46)
"""Codes that say that a batch is in the log."""
NOTHING_STORED = -1
"""The last sequence of a producer of which a proxy knows nothing but that it has just been fenced."""
TRIES_MAX = 6
SECONDS_MAX = 30.0


def judge_where_they_stopped(
    world: World,
    *,
    may_be_unknown: bool,
    may_be_replaced: bool,
    records_were_lost: bool,
    may_be_open: bool = False,
) -> list[str]:
    """Ask every proxy for every partition, and return what is wrong with the answers. ``may_be_unknown``: Redis may
    know nothing of a producer any more: it has lost writes, or what is known of an id that was replaced has expired.
    ``may_be_replaced``: the latter; a proxy that has fenced such an id since then knows no more of it than that.
    ``records_were_lost``: by the brokers, after they had acknowledged them. ``may_be_open``: so much has just been
    broken that a proxy may have no answer yet."""
    places: list[TopicPartition] = [(TOPIC, number) for number in range(world.settings.partitions)]
    problems = []
    for proxy in world.proxies:
        if not proxy.is_up or not proxy.is_listening:
            continue
        asked_at = world.network.now
        for one in _described(world, proxy, places, 1 if may_be_open else TRIES_MAX):
            place = one.topic, one.partition
            if one.error_code and may_be_open:
                continue
            if one.error_code == ErrorCode.INVALID_RECORD and _is_unrecoverable(world, place):
                continue
            if one.error_code:
                problems.append(f"{proxy.name} does not tell who stopped where on {place}: {one.message}")
                continue
            told = {row.producer_id: (row.producer_epoch, row.last_sequence) for row in one.producers}
            problems += (
                f"{proxy.name} tells of producer {producer_id} on {place}: {told.get(producer_id)}, and {what}"
                for producer_id, what in _contradictions(
                    world,
                    place,
                    told,
                    asked_at,
                    may_be_unknown=may_be_unknown,
                    may_be_replaced=may_be_replaced,
                    records_were_lost=records_were_lost,
                )
            )
    return problems


def _described(world: World, proxy: Any, places: list[TopicPartition], tries_max: int) -> list[Any]:
    instance = proxy.lives
    for _ in range(tries_max):
        answers: list[list[Any]] = []
        proxy.engine.describe_producers(places, NO_PRINCIPAL, answers.append)
        is_there = world.network.run(SECONDS_MAX, partial(bool, answers))
        if proxy.lives != instance or not proxy.is_up:
            return []  # it has died, or was ended
        assert is_there, f"{proxy.name} does not answer"
        if not any(one.error_code for one in answers[0]):
            break
    return answers[0]


def _is_unrecoverable(world: World, place: TopicPartition) -> bool:
    """Is there a producer with a name on it of which a batch was unrecoverable, or of which the log does not tell
    all?"""
    sent = [identity for client in world.clients for batch in _batches(client, place) for identity in batch.sent_as]
    for producer_id in {name.producer_id for name in sent if is_named(name.producer_id)}:
        value = world.redis.get(entry_key(CLUSTER_NAME, producer_id, *place))
        with suppress(StoredFormatError):  # a world may have damaged it
            intent = None if value is None else unpack(value).intent
            if intent is not None and intent.is_unrecoverable:
                return True
    return False


def _contradictions(
    world: World,
    place: TopicPartition,
    told: dict[int, tuple[int, int]],
    asked_at: float,
    *,
    may_be_unknown: bool,
    may_be_replaced: bool,
    records_were_lost: bool,
) -> Iterable[tuple[int, str]]:
    stored = {record.value for one in world.cluster.log(*place).history for record in one.message.records}
    partition = world.cluster.partitions[place]
    is_untold = may_be_untold(partition) or may_be_unmarked(partition, world.cluster.rates.refusals)
    last_in_log: dict[tuple[int, int], int] = {}
    for client in world.clients:
        for batch in _batches(client, place):
            for identity in batch.sent_as:
                name = identity.producer_id, identity.producer_epoch
                last = identity.base_sequence + identity.record_count - 1
                if not stored.isdisjoint(batch.values):
                    last_in_log[name] = max(last, last_in_log.get(name, -1))
            for answer in batch.answers:
                if answer.error_code in STORED and answer.at <= asked_at:
                    identity = answer.identity
                    if is_untold:
                        continue
                    known = told.get(identity.producer_id)
                    last = identity.base_sequence + identity.record_count - 1
                    if may_be_unknown and known is None:
                        continue
                    if may_be_replaced and known is not None and known[1] == NOTHING_STORED:
                        continue
                    if known is None or known < (identity.producer_epoch, last):
                        yield identity.producer_id, f"epoch {identity.producer_epoch}, {last} was acknowledged"
    for producer_id, (epoch, last) in told.items():
        if not records_were_lost and last > last_in_log.get((producer_id, epoch), -1):
            yield producer_id, f"its log ends at {last_in_log.get((producer_id, epoch))}"


def _batches(client: VirtualClient, place: TopicPartition) -> Iterable[Any]:
    return (batch for batch in client.leaves if batch.partition == place)
