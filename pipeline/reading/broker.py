"""Reads topics of a Kafka cluster, 0.8.2 to 4.x, or what a proxy shows of one: metadata, offsets, raw Fetch.

Blocking sockets, one request at a time; each task has connections of its own. Writes nothing and joins no group.

Spark makes and plans a source in processes of their own, so what takes long to import (the library of messages, the
client) is imported where it is used.
"""

from __future__ import annotations

import itertools
import math
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.framing import frame
from ...codecs.headers import encode_request_header, parse_response_header
from ...codecs.sasl import SaslError

if TYPE_CHECKING:
    from ...client.security import Sasl
    from ...codecs.sasl_exchange import SaslExchange

Address = tuple[str, int]
TopicPartition = tuple[str, int]
Answer = TypeVar("Answer")

FETCH_BYTES: Final = 4 << 20
"""Bytes of one partition in one Fetch: larger ones are no faster, and a task holds several in memory."""
FETCH_BYTES_MAX: Final = 256 << 20
"""Before Fetch v3 a message comes only whole; what is asked for grows up to this."""
_ANSWER_BYTES_MAX: Final = FETCH_BYTES_MAX + (1 << 20)
_ANSWER_SECONDS_MAX: Final = 30.0
_TRIES: Final = 6
_BETWEEN_TRIES_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
"""In sum longer than an election takes."""
_THROTTLE_SECONDS_MAX: Final = 30.0
"""The longest pause for a quota (throttle_time_ms) that is kept at once: the broker delays the next answer by the
rest."""
_THROTTLED_BYTES_MIN: Final = 16 << 10
"""Where a quota lets nothing through, the size that is asked for is halved, down to this: until 2.6 brokers never sent
an answer larger than the quota allows in all its windows, some ten seconds. One message comes whole in any case."""
_THROTTLED_SECONDS_MAX: Final = 600.0
"""The longest that one fetch waits for a quota in all: others with the same client id may use it up without end."""
_LEADERS_SECONDS: Final = 1.0
"""Where the end of a log is asked for, leader and replicas of the topic must have been told no longer ago than this."""
NEW_TOPIC_SECONDS: Final = 3.0
"""Brokers learn one after the other that a topic was created, and a proxy shows the cluster as it was a second ago."""
_BETWEEN_LOOKS_SECONDS: Final = 0.2
_RECEIVE_BYTES: Final = 64 << 10
_INT32_BYTES: Final = 4

_FETCH, _LIST_OFFSETS, _METADATA, _API_VERSIONS, _DESCRIBE_CONFIGS = 1, 2, 3, 18, 32
_KNOWN: Final = {_FETCH: range(5), _LIST_OFFSETS: range(2), _METADATA: range(2)}
"""Versions that are spoken here. With the highest common one brokers send records as they are stored, unconverted."""
_CONFIGS: Final = range(2)
"""Of DescribeConfigs, which brokers have since 0.11."""
_TOPIC: Final = 2
"""The type of a resource that is a topic."""
_CLEANUP_POLICY, _COMPACT = "cleanup.policy", "compact"
LEAVING_OUT_VERSIONS: Final = range(4, 7)
"""A highest version of Fetch in this range tells a proxy that leaves tombstoned messages out: brokers before 0.11 have
3 at most, and those from 1.1 on 7 or more. Brokers of 0.11 and 1.0 (5 and 6) are taken for such a proxy, too, which at
most costs fetches that bring nothing."""
LEFT_OUT_MESSAGES_MAX: Final = 50_000
"""The list of tombstones, 1 MiB, has no room for more messages of one partition, of some 20 bytes each."""
LATEST, EARLIEST = -1, -2
"""Times that stand for the ends of a log."""
HIGH_WATERMARK_REPLICA_ID, LOG_END_REPLICA_ID = -1, -3
"""Replica ids for ListOffsets: as a consumer, to get the high watermark; or so that a leader tells its log end offset.
The proxy uses the same ones (``proxy/bridge/asks.py``, which has the reasons)."""
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM; they have to be there wherever a task runs, too. ``ca_file`` None: the system's authorities."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Return what connections are made with. Raises BrokerProblem."""
        from ...client.security import tls_context

        files = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": self.key_file}
        try:
            made = tls_context(**files, key_password=self.key_password)
        except OSError as problem:
            named = ", ".join(name for name in files.values() if name)
            raise BrokerProblem(f"TLS: {named} cannot be used: {problem}") from None
        made.check_hostname = self.checks_hostname
        return made


@dataclass(frozen=True, slots=True)
class Access:
    """Client id, TLS and login for the brokers. Can be pickled, as tasks carry it. ``client_id``: for the brokers'
    quotas and logs."""

    client_id: str
    tls: Tls | None = None
    sasl: Sasl | None = None


class BrokerProblem(Exception):
    """The cluster cannot be read; the message is one sentence for a person."""


class NoTimes(BrokerProblem):
    """The broker, or a log in format v0, cannot be asked for an offset by a time."""


class Unreachable(BrokerProblem):
    """Nobody answers at the addresses that were given."""


class _Moved(Exception):
    """Another broker has to be asked, or the same one later."""


class OutOfRange(Exception):
    """The offset is not in the log."""


class Connection:
    """One connection to one broker."""

    def __init__(
        self, address: Address, client_id: str, tls: ssl.SSLContext | None, login: SaslExchange | None
    ) -> None:
        """Raises OSError, EOFError, WireError, BrokerProblem."""
        from ...codecs import messages

        self._messages = messages
        self._client_id = client_id
        self._socket = socket.create_connection(address, _ANSWER_SECONDS_MAX)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
            if login is not None:
                self._log_in(login)
            self._numbers = itertools.count(1)
            self._versions = dict.fromkeys(_KNOWN, 0)
            self._leaves_out = False
            self._learn_versions()
        except BaseException:
            self._socket.close()
            raise

    @property
    def finds_times(self) -> bool:
        """Whether it finds the first offset of a time; before that brokers know the times of whole segments only."""
        return self._versions[_LIST_OFFSETS] >= 1

    def empty_fetches_max(self, offsets: int) -> int:
        """Return how many fetches in a row from one offset may be empty before it is certain that none of these
        ``offsets`` is there any more.

        A proxy goes on with each fetch behind what the last one left out (rule R24), at least one message with an
        offset of its own. So there are no more empty fetches than offsets, or than messages that the list of tombstones
        can name; twice as many, as a proxy begins anew where the list changes meanwhile. For a broker it is one: the
        high watermark in an answer may be newer than the records in it."""
        return 2 * min(offsets, LEFT_OUT_MESSAGES_MAX) if self._leaves_out else min(offsets, 1)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def ask(self, api_key: int, **fields: Any) -> Any:
        """Send a request in the highest version that both know, and return its answer. Raises OSError, WireError."""
        version = self._versions[api_key]
        return self._messages.decode_response(api_key, version, self._call(api_key, version, fields))

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """Return what the broker says of these topics; None: of all. Raises OSError, WireError."""
        everything: list[object] | None = [] if self._versions[_METADATA] == 0 else None
        return self.ask(_METADATA, topics=everything if topics is None else [{"name": name} for name in topics])

    def has_holes(self, topic: str) -> bool | None:
        """Return whether offsets may be missing in a topic: it is compacted, or a proxy may leave records out. None:
        the broker does not tell. Raises OSError, WireError."""
        if self._leaves_out:
            return True
        if _DESCRIBE_CONFIGS not in self._versions:
            return None
        asked = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": [_CLEANUP_POLICY]}
        for told in self.ask(_DESCRIBE_CONFIGS, resources=[asked]).results:
            for config in () if told.error_code else told.configs:
                if config.name == _CLEANUP_POLICY and config.value is not None:
                    return _COMPACT in config.value
        return None

    def _log_in(self, login: SaslExchange) -> None:
        reply = login.start()
        try:
            while not login.is_over:
                self._socket.sendall(reply)
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    raise BrokerProblem(login.explain_loss("it said nothing"))
                reply = login.received(data)
        except SaslError as error:
            raise BrokerProblem(str(error)) from None

    def _learn_versions(self) -> None:
        """0.8 and 0.9 have no ApiVersions, and 0.9 loses requests of other connections when it gets one. So Metadata 1
        is asked first: every broker answers it, and old ones in the layout of version 0."""
        answer = self._call(_METADATA, 1, {"topics": []})
        try:
            self._messages.decode_response(_METADATA, 1, answer)
        except WireError:
            self._messages.decode_response(_METADATA, 0, answer)
            return
        told = self._messages.decode_response(_API_VERSIONS, 0, self._call(_API_VERSIONS, 0, {}))
        offered = {one.api_key: range(one.min_version, one.max_version + 1) for one in told.api_keys}
        for api_key, known in _KNOWN.items():
            common = set(known) & set(offered.get(api_key, ()))
            if not common:
                raise BrokerProblem(f"the broker has API {api_key} in no version from {known.start} to {known[-1]}")
            self._versions[api_key] = max(common)
        configs = set(_CONFIGS) & set(offered.get(_DESCRIBE_CONFIGS, ()))
        if configs:
            self._versions[_DESCRIBE_CONFIGS] = max(configs)
        self._leaves_out = offered[_FETCH][-1] in LEAVING_OUT_VERSIONS

    def _call(self, api_key: int, version: int, fields: Mapping[str, Any]) -> memoryview:
        """Send a request; return the body of its answer."""
        number = next(self._numbers)
        if api_key == _FETCH and version >= 3:
            fields = {**fields, "max_bytes": fields["topics"][0]["partitions"][0]["partition_max_bytes"]}
        body = self._messages.encode_request(api_key, version, **fields)
        self._socket.sendall(frame(encode_request_header(api_key, version, number, self._client_id), body))
        size = int.from_bytes(self._read(_INT32_BYTES), "big")
        if not _INT32_BYTES <= size <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes: this is no Kafka broker, or one that wants TLS")
        answer = self._read(size)
        said, position = parse_response_header(answer, api_key, version)
        if said != number:
            raise ConnectionError(f"an answer to request {said} where {number} was asked")
        return memoryview(answer)[position:]

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        filled = 0
        while filled < count:
            read = self._socket.recv_into(view[filled:])
            if not read:
                raise EOFError("the broker has hung up")
            filled += read
        return data


@dataclass(frozen=True, slots=True)
class Fetched:
    """Stored bytes from an offset on; they may end in a part of an entry."""

    records: memoryview
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the log of one partition ends. ``is_contested``: another replica says that it leads, too, so one of them
    was deposed and does not know it yet."""

    leader: Address
    log_end: int
    high_watermark: int
    is_contested: bool


class Cluster:
    """The cluster behind some addresses. A context manager: leaving closes its connections."""

    def __init__(self, bootstrap: Sequence[Address], access: Access) -> None:
        """Raises BrokerProblem if files of TLS cannot be used."""
        self._bootstrap = tuple(bootstrap)
        self._client_id = access.client_id
        self._tls = None if access.tls is None else access.tls.context()
        self._begin_login: Callable[[], SaslExchange] | None = None
        if access.sasl is not None:
            from ...client.security import login_maker

            self._begin_login = login_maker(access.sasl, access.client_id)
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._replicas: dict[TopicPartition, list[Address]] = {}
        self._fetch_bytes_max = FETCH_BYTES_MAX
        """The largest size to ask for; halved where a consumer quota lets no larger answer through."""
        self._told_at: dict[str, float] = {}
        """When the leaders of a topic were told: seconds of the monotonic clock."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def partitions(self, expected: Collection[str] = ()) -> dict[str, list[int]]:
        """Return every topic with its partitions. One of which none can be seen (it is being made, or a right is
        missing) is left out: to read nothing of it would look like an empty topic. Raises BrokerProblem.

        ``expected``: topics that should be among them. While one is missing, the brokers are asked again, for
        ``NEW_TOPIC_SECONDS``: it may have been created a moment ago."""
        patience = time.monotonic() + NEW_TOPIC_SECONDS
        while True:
            answer = self._metadata(None)
            found = {
                topic.name: sorted(one.partition_index for one in topic.partitions)
                for topic in answer.topics
                if topic.partitions
            }
            if found.keys() >= set(expected) or time.monotonic() >= patience:
                return found
            time.sleep(_BETWEEN_LOOKS_SECONDS)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (first offset in the log, high watermark). Raises BrokerProblem."""
        place = (topic, partition)
        return self.offsets_at({place: EARLIEST})[place], self.offsets_at({place: LATEST})[place]

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return for each partition the first offset that is as late as this, -1 if there is none. Times: ms,
        ``EARLIEST``, ``LATEST`` (the high watermark). Leaders are asked once each. Raises BrokerProblem."""
        found: dict[TopicPartition, int] = {}

        def ask() -> None:
            by_leader: dict[Address, dict[TopicPartition, int]] = {}
            for place, time_ms in times.items():
                if place not in found:
                    by_leader.setdefault(self._leader(place), {})[place] = time_ms
            for address, asked in by_leader.items():
                found.update(self._offsets_of(address, asked))
            for place in times:
                if place not in found:
                    raise _Moved("{}-{} is led by another broker".format(*place))

        self._patiently(ask, "offsets")
        return found

    def led(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that have a leader now. Raises BrokerProblem."""
        found = []
        for place in places:
            with suppress(_Moved):
                self._leader(place)
                found.append(place)
        return found

    def brokers(self) -> list[Address]:
        """Return all that are there now. Raises BrokerProblem."""
        return [(broker.host, broker.port) for broker in self._metadata([]).brokers]

    def has_holes(self, topic: str) -> bool | None:
        """Return whether offsets may be missing in a topic, as of ``Connection.has_holes``. Raises BrokerProblem."""

        def ask() -> bool | None:
            problem: Exception = Unreachable("no broker was given")
            for address in self._bootstrap:
                try:
                    with self._at(address) as connection:
                        return connection.has_holes(topic)
                except (OSError, EOFError) as error:
                    problem = error
            raise Unreachable(f"no broker can be asked: {problem}")

        return self._patiently(ask, topic)

    def leader(self, topic: str, partition: int) -> Address:
        """Return the leader's address, from memory if it is known. Raises BrokerProblem."""
        return self._patiently(lambda: self._leader((topic, partition)), f"{topic}-{partition}")

    def ends(self, topic: str, partition: int) -> Ends:
        """Ask the present leader where the log ends, and all other replicas whether they lead, too. Raises
        BrokerProblem."""
        place = (topic, partition)

        def ask() -> Ends:
            if time.monotonic() - self._told_at.get(topic, -math.inf) > _LEADERS_SECONDS:
                self._leaders.pop(place, None)  # of a topic with many partitions all are told at once
            leader = self._leader(place)
            ended = self._offset_at(leader, place, LOG_END_REPLICA_ID)
            shown = self._offset_at(leader, place, HIGH_WATERMARK_REPLICA_ID)
            if ended is None or shown is None:
                self._leaders.pop(place, None)
                raise _Moved(f"{topic}-{partition} is led by another broker")
            others = [one for one in self._replicas.get(place, ()) if one != leader]
            return Ends(leader, ended, shown, any(self._leads_too(one, place) for one in others))

        return self._patiently(ask, f"{topic}-{partition}")

    def is_awake(self, broker: Address, place: TopicPartition) -> bool:
        """Does this broker answer a question about a partition, whether or not it leads that?"""
        try:
            self._offset_at(broker, place, HIGH_WATERMARK_REPLICA_ID)
        except (OSError, EOFError, WireError, BrokerProblem):
            return False
        return True

    def _leads_too(self, broker: Address, place: TopicPartition) -> bool:
        try:
            return self._offset_at(broker, place, LOG_END_REPLICA_ID) is not None
        except (OSError, EOFError, WireError):
            return False  # as in the proxies: a broker that cannot be reached serves nobody

    def _offset_at(self, broker: Address, place: TopicPartition, replica_id: int) -> int | None:
        """Return what this very broker tells of the end; None if it does not lead the partition."""
        wanted = {"partition_index": place[1], "timestamp": LATEST, "max_num_offsets": 1}
        with self._at(broker) as connection:
            answer = connection.ask(
                _LIST_OFFSETS, replica_id=replica_id, topics=[{"name": place[0], "partitions": [wanted]}]
            )
        (one,) = answer.topics[0].partitions
        if one.error_code:
            return None
        old_style = getattr(one, "old_style_offsets", None)
        return int(old_style[0] if old_style else one.offset)

    def fetch(self, topic: str, partition: int, offset: int, bytes_max: int = FETCH_BYTES) -> Fetched:
        """Return what is stored from the offset on. No records, though the high watermark is above the offset: nothing
        below it is left, as of compaction or tombstones. Raises OutOfRange, BrokerProblem."""
        place = (topic, partition)

        def ask() -> Fetched:
            # All fetches go over one connection, and begin anew after an error: a proxy remembers only for a connection
            # where its next fetch begins, and forgets that with an error.
            with self._at(self._leader(place)) as connection:
                fetched = self._fetched(connection, place, offset, bytes_max)
                for _ in range(connection.empty_fetches_max(fetched.high_watermark - offset)):
                    if fetched.records:
                        break
                    fetched = self._fetched(connection, place, offset, bytes_max)
                return fetched

        return self._patiently(ask, f"{topic}-{partition}")

    def _fetched(self, connection: Connection, place: TopicPartition, offset: int, bytes_max: int) -> Fetched:
        """Fetch once. Brokers since 2.0 answer without any partition where the quota of consumers is used up, and tell
        how long to wait (KIP-219)."""
        patience = time.monotonic() + _THROTTLED_SECONDS_MAX
        while True:
            size = min(bytes_max, self._fetch_bytes_max)
            wanted = {"partition": place[1], "fetch_offset": offset, "partition_max_bytes": size}
            answer = connection.ask(
                _FETCH,
                replica_id=HIGH_WATERMARK_REPLICA_ID,
                max_wait_ms=0,
                min_bytes=0,
                topics=[{"topic": place[0], "partitions": [wanted]}],
            )
            if answer.responses or getattr(answer, "throttle_time_ms", 0) <= 0:
                break
            if time.monotonic() >= patience:
                raise BrokerProblem(
                    "{}-{}: for {:g} s the broker's quota for consumers has let nothing through: raise that of the "
                    "client id {!r} or of its user, or read with fewer tasks".format(
                        *place, _THROTTLED_SECONDS_MAX, self._client_id
                    )
                )
            self._fetch_bytes_max = max(size // 2, _THROTTLED_BYTES_MIN)
            time.sleep(min(answer.throttle_time_ms / 1000, _THROTTLE_SECONDS_MAX))
        if not answer.responses or not answer.responses[0].partitions:
            raise _Moved("the broker's answer lacks it")
        one = answer.responses[0].partitions[0]
        if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OutOfRange
        self._check(one.error_code, place)
        return Fetched(memoryview(one.records or b""), one.high_watermark)

    def _offsets_of(self, address: Address, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return what this broker tells, without the partitions that it does not lead any more."""
        topics: dict[str, list[dict[str, int]]] = {}
        for (name, partition), time_ms in sorted(times.items()):
            wanted = {"partition_index": partition, "timestamp": time_ms, "max_num_offsets": 1}
            topics.setdefault(name, []).append(wanted)
        with self._at(address) as connection:
            if not connection.finds_times and max(times.values()) >= 0:
                raise NoTimes("the broker finds no offsets by time, as those before 0.10.1: give offsets instead")
            asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
            answer = connection.ask(_LIST_OFFSETS, replica_id=HIGH_WATERMARK_REPLICA_ID, topics=asked)
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                place = (topic.name, one.partition_index)
                with suppress(_Moved):
                    self._check(one.error_code, place)
                    old_style = getattr(one, "old_style_offsets", None)
                    found[place] = old_style[0] if old_style else one.offset
        return found

    def _patiently(self, ask: Callable[[], Answer], what: str) -> Answer:
        """Ask, and ask again if a leader has moved, or brokers cannot be reached. Raises BrokerProblem."""
        problem: Exception | None = None
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_BETWEEN_TRIES_SECONDS[attempt - 1])
            try:
                return ask()
            except (OSError, EOFError, Unreachable, _Moved) as error:
                problem = error
            except WireError as error:
                raise BrokerProblem(f"{what}: an answer that cannot be read: {error}") from None
        raise BrokerProblem(f"{what} cannot be read: {problem}")

    def _leader(self, place: TopicPartition) -> Address:
        if place not in self._leaders:
            self._told_at[place[0]] = time.monotonic()
            answer = self._metadata([place[0]])
            addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            for found in answer.topics:
                for one in found.partitions:
                    if one.leader_id in addresses:
                        self._leaders[found.name, one.partition_index] = addresses[one.leader_id]
                    replicas = [addresses[node] for node in one.replica_nodes if node in addresses]
                    self._replicas[found.name, one.partition_index] = replicas
        leader = self._leaders.get(place)
        if leader is None:
            raise _Moved("it has no leader")
        return leader

    def _check(self, error_code: int, place: TopicPartition) -> None:
        """Raise _Moved or BrokerProblem for an error."""
        if error_code in _MOVED:
            self._leaders.pop(place, None)
            raise _Moved(f"the broker answers with code {error_code}")
        if error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise NoTimes("{}-{} is in format v0, which has no times: give offsets instead".format(*place))
        if error_code:
            raise BrokerProblem("{}-{}: the broker answers with code {}".format(*place, error_code))

    def _metadata(self, topics: Sequence[str] | None) -> Any:
        problem: Exception | None = None
        for address in self._bootstrap:
            try:
                with self._at(address) as connection:
                    return connection.metadata(topics)
            except (OSError, EOFError) as error:
                problem = error
            except WireError as error:
                raise BrokerProblem(f"the broker's metadata cannot be read: {error}") from None
        places = ", ".join(f"{host}:{port}" for host, port in self._bootstrap)
        raise Unreachable(f"no broker can be reached at {places}: {problem}")

    @contextmanager
    def _at(self, address: Address) -> Iterator[Connection]:
        """The connection to a broker. After an error it is not used again, and the broker's partitions are looked up
        anew."""
        try:
            if address not in self._connections:
                begin = self._begin_login
                login = None if begin is None else begin()
                self._connections[address] = Connection(address, self._client_id, self._tls, login)
            yield self._connections[address]
        except (OSError, EOFError, WireError):
            connection = self._connections.pop(address, None)
            if connection is not None:
                connection.close()
            self._leaders = {place: leader for place, leader in self._leaders.items() if leader != address}
            raise
