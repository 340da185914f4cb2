"""The topic of a probe: created, found with its leader, deleted. Flows over the effects of ``client/``. Pure: no
sockets, no clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from ...client.asking import EARLIEST, LATEST, LIST_OFFSETS, Ask, Now, Offered, Servers, Sleep, ask_any
from ...client.errors import AuthenticationFailed, ConnectionFailed, UnsupportedServer
from ...client.log_flows import HIGH_WATERMARK_REPLICA_ID
from ...codecs.error_codes import ErrorCode, name_of, named
from ...producing.cluster import METADATA, Address, Cluster, cluster_of, metadata_fields
from ...producing.numbered_batch import Place
from ...values import value
from . import limits

CREATE_TOPICS, DELETE_TOPICS = 19, 20
_METADATA_VERSIONS: Final = (0, 9)
_LIST_OFFSETS_VERSIONS: Final = (0, 7)
_CREATE_TOPICS_VERSIONS: Final = (0, 7)
_DELETE_TOPICS_VERSIONS: Final = (0, 5)
_DEFAULT_REPLICATION_FROM: Final = 4
"""From this version of CreateTopics on -1 stands for the cluster's default (KIP-464)."""
PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors by which nothing was done, and that pass by themselves, mostly in the first seconds of a topic."""
DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
Result = TypeVar("Result")


class CannotProbe(Exception):
    """There is no verdict; the message says why, and what can be done about it."""


class NotCreated(CannotProbe):
    """The server refuses to create a topic, so there is nothing to delete."""


class _NotYet(Exception):
    """An error that passes by itself; the message names it."""


@value(frozen=True, slots=True)
class ProbedPartition:
    """The partition that is probed, its leader, and the offset at which its log ends before the first batch."""

    topic: str
    leader: Address
    start: int
    offered: Mapping[int, tuple[int, int]]


async def create_topic(servers: Servers, topic: str) -> None:
    """Create a topic with one partition and the cluster's default replication, else one replica. Raises NotCreated;
    CannotProbe and what ``Ask`` raises: then whether it was created is not known."""
    replications = [-1, 1]
    is_sent = False
    failed = f"the topic {topic} cannot be created"

    async def ask() -> None:
        nonlocal is_sent
        controller = await _controller(servers)
        highest = (await Offered(controller)).get(CREATE_TOPICS, (0, -1))[1]
        if highest < 0:
            raise NotCreated("the server lists no CreateTopics: create an empty topic, and name it with --topic")
        if highest < _DEFAULT_REPLICATION_FROM and len(replications) > 1:
            replications.pop(0)
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": replications[0], "assignments": [],
                  "configs": []}  # fmt: skip
        fields = {"topics": [wanted], "timeout_ms": limits.PRODUCE_TIMEOUT_MS, "validate_only": False}
        is_sent = True
        answer = await Ask(controller, CREATE_TOPICS, _CREATE_TOPICS_VERSIONS, "CreateTopics", fields)
        if not answer.topics:
            raise ConnectionFailed("the response to CreateTopics lacks the topic")
        code = int(answer.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):  # the latter after a response that was lost
            return
        if code == ErrorCode.INVALID_REPLICATION_FACTOR and len(replications) > 1:
            replications.pop(0)
            raise _NotYet(named(code))
        if code in (*PASSING, ErrorCode.REQUEST_TIMED_OUT):
            raise _NotYet(named(code))
        said = getattr(answer.topics[0], "error_message", None)
        why = f"{shown_right(code)} ({said})" if said else shown_right(code)
        remedy = "grant Create on Cluster, or create" if code in DENIED else "create"
        raise NotCreated(f"{failed}: {why}: {remedy} an empty topic, and name it with --topic")

    try:
        await _until_there(ask, limits.TOPIC_SECONDS_MAX, failed)
    except CannotProbe as problem:
        if is_sent:
            raise
        raise NotCreated(str(problem)) from None


async def delete_topic(servers: Servers, topic: str, *, was_created: bool) -> None:
    """Delete it. ``was_created``: its creation was confirmed. Raises CannotProbe, and what ``Ask`` raises: then it may
    be there."""
    uncertain_until = await Now() + limits.UNCERTAIN_SECONDS_MAX

    async def ask() -> None:
        fields = {"topic_names": [topic], "timeout_ms": limits.PRODUCE_TIMEOUT_MS}
        controller = await _controller(servers)
        answer = await Ask(controller, DELETE_TOPICS, _DELETE_TOPICS_VERSIONS, "DeleteTopics", fields)
        if not answer.responses:
            raise ConnectionFailed("the response to DeleteTopics lacks the topic")
        code = int(answer.responses[0].error_code)
        is_unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code == ErrorCode.NONE or (is_unknown and (was_created or await Now() >= uncertain_until)):
            return
        if code in (*PASSING, ErrorCode.REQUEST_TIMED_OUT):
            raise _NotYet(named(code))
        raise CannotProbe(f"{shown_right(code)}{': grant Delete on the topic' if code in DENIED else ''}")

    await _until_there(ask, limits.DELETION_SECONDS_MAX, "DeleteTopics")


async def find_partition(servers: Servers, topic: str, *, is_ours: bool) -> ProbedPartition:
    """Return partition 0 of the topic as soon as it has a leader. Raises CannotProbe: there is no such topic, it is not
    empty, a right is missing; and what ``Ask`` raises."""
    if not is_ours:
        await _check_existing(servers, topic)

    async def ask() -> Address:
        cluster, _ = await _look(servers, [topic])
        leader = cluster.leaders.get(Place(topic, 0))
        if leader is not None:
            return cluster.brokers[leader]
        code = cluster.errors.get(topic, int(ErrorCode.LEADER_NOT_AVAILABLE))
        if code in DENIED:
            raise CannotProbe(f"the topic {topic} cannot be seen: {shown_right(code)}: grant Describe on it")
        raise _NotYet(named(code))

    leader = await _until_there(ask, limits.TOPIC_SECONDS_MAX, f"the topic {topic} gets no leader")
    start, end = [await find_end(leader, topic, at) for at in (EARLIEST, LATEST)]
    if start != end:
        raise CannotProbe(f"the topic {topic} is not empty, it has offsets {start} to {end - 1}: name an empty one")
    return ProbedPartition(topic, leader, end, await Offered(leader))


async def _check_existing(servers: Servers, topic: str) -> None:
    """Raise CannotProbe if there is no such topic. All are listed, as naming one may create it on brokers before
    0.11."""
    try:
        answer = await ask_any(servers, METADATA, (1, _METADATA_VERSIONS[1]), "Metadata", {"topics": None})
    except UnsupportedServer:
        answer = await ask_any(servers, METADATA, (0, 0), "Metadata", {"topics": []})
    if topic not in cluster_of(answer).partitions:
        raise CannotProbe(f"there is no topic {topic}, or Describe on it is missing: create it, or leave out --topic")


async def find_end(leader: Address, topic: str, at: int, replica_id: int = HIGH_WATERMARK_REPLICA_ID) -> int:
    """Return an end of the log as an offset. ``at``: ``EARLIEST`` or ``LATEST``. Raises CannotProbe, and what ``Ask``
    raises."""
    what = "ListOffsets"
    wanted = {"partition_index": 0, "timestamp": at, "max_num_offsets": 1}
    fields = {"replica_id": replica_id, "isolation_level": 0, "topics": [{"name": topic, "partitions": [wanted]}]}

    async def ask() -> int:
        answer = await Ask(leader, LIST_OFFSETS, _LIST_OFFSETS_VERSIONS, what, fields)
        if not answer.topics or not answer.topics[0].partitions:
            raise ConnectionFailed(f"the response to {what} lacks the partition")
        one = answer.topics[0].partitions[0]
        if one.error_code in DENIED:
            raise CannotProbe(f"the end of {topic} cannot be seen: {shown_right(one.error_code)}: grant Describe on it")
        if one.error_code in PASSING:
            raise _NotYet(named(one.error_code))
        if one.error_code != ErrorCode.NONE:
            raise CannotProbe(f"the end of {topic} cannot be seen: {named(one.error_code)}")
        old_style = getattr(one, "old_style_offsets", None)
        return int(old_style[0] if old_style else one.offset)

    return await _until_there(ask, limits.RETRY_SECONDS_MAX, f"the end of {topic} cannot be seen")


async def _look(servers: Servers, topics: list[str]) -> tuple[Cluster, Address | None]:
    """Return what Metadata says, and the controller's address where it is known."""
    answer = await ask_any(servers, METADATA, _METADATA_VERSIONS, "Metadata", metadata_fields(topics))
    cluster = cluster_of(answer)
    servers.learned(cluster)
    return cluster, cluster.brokers.get(getattr(answer, "controller_id", -1))


async def _controller(servers: Servers) -> Address:
    """Return who creates and deletes topics. A service may name none: then any server is asked."""
    cluster, controller = await _look(servers, [])
    return controller or next(iter(cluster.brokers.values()), next(iter(servers)))


async def _until_there(ask: Callable[[], Awaitable[Result]], seconds_max: float, what: str) -> Result:
    """Return what ``ask`` returns. While it raises an error that passes, or connections fail, it is called again.
    Raises CannotProbe: ``what``, and the last error; AuthenticationFailed, UnsupportedServer."""
    end = await Now() + seconds_max
    while True:
        try:
            return await ask()
        except AuthenticationFailed:
            raise
        except (ConnectionFailed, _NotYet) as error:
            problem = str(error)
        if await Now() + limits.PAUSE_SECONDS >= end:
            raise CannotProbe(f"{what}: {problem}")
        await Sleep(limits.PAUSE_SECONDS)


def shown_right(code: int) -> str:
    """Return an error for a sentence that says itself which right is missing."""
    return name_of(code) if code in DENIED else named(code)
