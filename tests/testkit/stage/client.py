"""Parts of the client without sockets: a link that is ready, a cluster, flows that are answered by hand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from idemproxy.client.asking import Ask, AskAtOnce, Disconnect, Now, Offered, Servers, Sleep
from idemproxy.client.link import Link
from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.producing.cluster import Cluster
from idemproxy.producing.errors import ClientError
from idemproxy.producing.numbered_batch import Place

ADDRESS = ("bootstrap", 9092)
BROKERS = {0: ("broker", 9093), 1: ("broker", 9094)}
API_VERSIONS = 18
Reply = Callable[[Ask], Any]


def api_versions(ranges: Mapping[int, tuple[int, int]], correlation_id: int = 1) -> bytes:
    """Return the frame of an answer to ApiVersions 0."""
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in ranges.items()]
    body = messages.encode_response(API_VERSIONS, 0, error_code=0, api_keys=keys)
    return frame(correlation_id.to_bytes(4, "big"), body)


def ready_link(ranges: Mapping[int, tuple[int, int]], client_id: str = "client") -> Link:
    """Return a link to a server that has these APIs."""
    link = Link(client_id, None)
    link.start()
    assert link.greeted(api_versions(ranges)) == b""
    assert link.is_ready
    return link


def cluster_with_leader(*places: Place, leader: int = 0) -> Cluster:
    """Return a view in which one broker leads these partitions."""
    partitions: dict[str, tuple[int, ...]] = {}
    for place in places:
        partitions[place.topic] = (*partitions.get(place.topic, ()), place.partition)
    return Cluster(BROKERS, dict.fromkeys(places, leader), partitions, {})


def ask_of(flow: Callable[[Servers, float], Coroutine[Any, Any, Any]]) -> Ask:
    """Return the first question of a flow."""
    running = flow(Servers([ADDRESS]), 1.0)
    try:
        effect = running.send(None)
        while not isinstance(effect, Ask):
            effect = running.send(0.0)
        return effect
    finally:
        running.close()


class FlowRun:
    """Performs a flow's effects: questions are answered by a function, waits pass at once. ``seconds_of_an_answer``:
    how long each is waited for."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.now = 0.0
        self.seconds_of_an_answer = 0.0
        self.asked: list[Ask] = []
        self.offered: dict[int, tuple[int, int]] = {1: (0, 5)}
        """What servers say that they have: as a proxy that leaves hidden messages out."""

    def run(self, flow: Coroutine[Any, Any, Any]) -> Any:
        """Return what the flow returns."""
        try:
            effect = flow.send(None)
            while True:
                try:
                    answer = self._perform(effect)
                except ClientError as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(answer)
        except StopIteration as end:
            return end.value

    def _perform(self, effect: Any) -> Any:
        if isinstance(effect, Sleep):
            self.now += effect.seconds
            return None
        if isinstance(effect, Now):
            return self.now
        if isinstance(effect, Offered):
            return self.offered
        if isinstance(effect, Disconnect):
            return None
        if isinstance(effect, AskAtOnce):
            return [
                self._perform(Ask(effect.address, effect.api_key, effect.versions, effect.what, fields))
                for fields in effect.requests
            ]
        assert isinstance(effect, Ask)
        self.asked.append(effect)
        self.now += self.seconds_of_an_answer
        reply = self._reply(effect)
        if isinstance(reply, ClientError):
            raise reply
        return reply


def answer(api_key: int, api_version: int, /, **fields: Any) -> Any:
    """Return a decoded answer."""
    return messages.decode_response(api_key, api_version, messages.encode_response(api_key, api_version, **fields))


def metadata(leaders: Mapping[Place, int], errors: Sequence[tuple[str, int]] = ()) -> Any:
    """Return a decoded answer to Metadata 1."""
    topics = [
        {"error_code": 0, "name": place.topic, "is_internal": False,
         "partitions": [{"error_code": 0, "partition_index": place.partition, "leader_id": leader,
                         "replica_nodes": [], "isr_nodes": []}]}
        for place, leader in leaders.items()
    ]  # fmt: skip
    topics += [{"error_code": code, "name": name, "is_internal": False, "partitions": []} for name, code in errors]
    brokers = [{"node_id": node, "host": host, "port": port, "rack": None} for node, (host, port) in BROKERS.items()]
    return answer(3, 1, brokers=brokers, controller_id=0, topics=topics)
