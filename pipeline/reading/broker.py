"""The cluster that is read, Kafka 0.8.2 to 4.x, or what a proxy shows of one, through ``client/``: what is asked there,
and what went wrong as one sentence for a person.

Blocks, one request at a time; each task has connections of its own. Writes nothing and joins no group.

Spark makes and plans a source in processes of their own, so the client, which takes long to import, is imported where
it is used.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

if TYPE_CHECKING:
    from ...client.asking import CountedTries
    from ...client.log_flows import Ends, Fetched
    from ...client.security import Sasl

Address = tuple[str, int]
TopicPartition = tuple[str, int]
Answer = TypeVar("Answer")

FETCH_BYTES: Final = 4 << 20
"""Bytes of one partition in one Fetch: larger ones are no faster, and a task holds several in memory."""
FETCH_BYTES_MAX: Final = 256 << 20
"""Before Fetch v3 a message comes only whole; what is asked for grows up to this."""
NEW_TOPIC_SECONDS: Final = 3.0
"""Brokers learn one after the other that a topic was created, and a proxy shows the cluster as it was a second ago."""
_BETWEEN_LOOKS_SECONDS: Final = 0.2
LATEST, EARLIEST = -1, -2
"""Times that stand for the ends of a log."""


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


class OutOfRange(Exception):
    """The offset is not in the log."""


class Cluster:
    """The cluster that some addresses belong to. A context manager: leaving closes its connections."""

    def __init__(self, bootstrap: Sequence[Address], access: Access) -> None:
        """Raises BrokerProblem if files of TLS cannot be used."""
        from ...client import asking, log_flows
        from ...client.blocking_connections import Connections, Connector
        from ...client.settings import ClientSettings
        from ...producing.numbered_batch import Place

        self._asking, self._flows, self._place = asking, log_flows, Place
        self._client_id = access.client_id
        self._shown = [f"{host}:{port}" for host, port in bootstrap]
        tls = None if access.tls is None else access.tls.context()
        settings = ClientSettings(self._shown, access.client_id, tls, access.sasl, reads_old_brokers=True)
        self._connections = Connections(Connector(settings))
        self._servers = asking.Servers(bootstrap)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()

    def partitions(self, expected: Collection[str] = ()) -> dict[str, list[int]]:
        """Return every topic with its partitions. One of which none can be seen (it is being made, or a right is
        missing) is left out: to read nothing of it would look like an empty topic. Raises BrokerProblem.

        ``expected``: topics that should be among them. While one is missing, the brokers are asked again, for
        ``NEW_TOPIC_SECONDS``: it may have been created a moment ago."""
        patience = time.monotonic() + NEW_TOPIC_SECONDS
        while True:
            found = self._run(self._flows.find_all_partitions(self._servers))
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
        wanted = {self._place(*place): time_ms for place, time_ms in times.items()}
        found = self._run(self._flows.find_offsets(self._servers, wanted, self._tries()), "offsets")
        return dict(found.items())

    def led(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that have a leader now. Raises BrokerProblem."""
        return [*self._run(self._flows.led(self._servers, [self._place(*place) for place in places]))]

    def brokers(self) -> list[Address]:
        """Return all that are there now. Raises BrokerProblem."""
        return self._run(self._flows.find_brokers(self._servers))

    def has_holes(self, topic: str) -> bool | None:
        """Return whether offsets may be missing in a topic: it is compacted, or a proxy may leave records out. None:
        the broker does not tell. Raises BrokerProblem."""
        return self._run(self._flows.has_holes(self._servers, topic, self._tries()), topic)

    def leader(self, topic: str, partition: int) -> Address:
        """Return the leader's address, from memory if it is known. Raises BrokerProblem."""
        place = self._place(topic, partition)
        asking = self._asking
        flow = asking.patiently(self._tries(), lambda: asking.find_leader(self._servers, place))
        leader: Address = self._run(flow, str(place))
        return leader

    def ends(self, topic: str, partition: int) -> Ends:
        """Ask the present leader where the log ends, and all other replicas whether they lead, too. Raises
        BrokerProblem."""
        place = self._place(topic, partition)
        return self._run(self._flows.find_ends(self._servers, place, self._tries()), str(place))

    def is_awake(self, broker: Address, place: TopicPartition) -> bool:
        """Does this broker answer a question about a partition, whether or not it leads that?"""
        return self._run(self._flows.is_awake(self._servers, broker, self._place(*place)))

    def fetch(self, topic: str, partition: int, offset: int, bytes_max: int = FETCH_BYTES) -> Fetched:
        """Return what is stored from the offset on. No records, though the high watermark is above the offset: nothing
        below it is left, as of compaction or hidden ranges. Raises OutOfRange, BrokerProblem."""
        place = self._place(topic, partition)
        return self._run(self._flows.fetch_stored(self._servers, place, offset, bytes_max, self._tries()), str(place))

    def _tries(self) -> CountedTries:
        return self._asking.CountedTries()

    def _run(self, flow: Coroutine[Any, Any, Answer], what: str = "") -> Answer:
        """Return what the flow returns. ``what``: is read. Raises OutOfRange, NoTimes, BrokerProblem."""
        from ...client.errors import (
            AuthenticationFailed,
            ConnectionFailed,
            OffsetOutOfRange,
            RequestRefused,
            TimesUnsupported,
        )
        from ...client.limits import THROTTLED_FETCH_SECONDS_MAX
        from ...codecs.error_codes import ErrorCode
        from ...producing.errors import ClientError

        try:
            return self._connections.run(flow)
        except OffsetOutOfRange:
            raise OutOfRange from None
        except AuthenticationFailed as error:
            raise BrokerProblem(str(error)) from None
        except ConnectionFailed as error:
            if what:
                raise BrokerProblem(f"{what} cannot be read: {error}") from None
            raise BrokerProblem(f"no broker can be reached at {', '.join(self._shown)}: {error}") from None
        except RequestRefused as error:
            if error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                raise BrokerProblem(
                    f"{what}: for {THROTTLED_FETCH_SECONDS_MAX:g} s the broker's quota for consumers has let nothing "
                    f"through: raise that of the client id {self._client_id!r} or of its user, or read with fewer tasks"
                ) from None
            raise BrokerProblem(f"{what} cannot be read: {error}") from None
        except TimesUnsupported as error:
            raise NoTimes(f"{error}: give offsets instead") from None
        except ClientError as error:
            raise BrokerProblem(str(error)) from None
