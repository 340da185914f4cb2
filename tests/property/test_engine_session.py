"""A client of the engine in front of brokers that store format v2, with requests of all kinds in any order, in any
pieces, and answers at any time: every request is answered, in order, and nothing stays."""

from __future__ import annotations

import random
import struct

import pytest

from idemproxy.codecs.produce import PartitionAnswer, encode_response, parse_request
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.broker_end import BrokerEnd
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates
from testkit.virtual.engine_scene import INIT, EngineScene, plain, produce
from testkit.virtual.line import request
from testkit.virtual.raising_scene import fetch
from testkit.virtual.world import TOPIC

FETCH = 11
REQUESTS = 60
PIECES = (1, 7, 300, 5000, 100_000)


class Client:
    """``sent``: correlation ids of the requests that want an answer."""

    def __init__(self, scene: EngineScene, chance: random.Random) -> None:
        self.scene, self.chance = scene, chance
        self.sent: list[int] = []
        self.appended = self.plain = 0

    def request(self, number: int) -> bytes:
        kind = self.chance.choice(("own", "own", "own", "fetch", "plain", "mixed", "silent", "init", "refused"))
        if kind != "silent":
            self.sent.append(number)
        if kind == "fetch":
            return fetch(number, FETCH)
        if kind == "init":
            return INIT[:8] + number.to_bytes(4, "big") + INIT[12:]
        if kind == "refused":
            return request(number, ApiKey.FETCH, 16, b"")
        if kind in ("plain", "silent"):
            self.plain += 1
            return produce(number, plain(), acks=0 if kind == "silent" else -1)
        own = self.scene.own(self.appended, bytes(self.chance.choice((10, 10, 10, 70_000))))
        self.appended += 1
        if kind == "own":
            return produce(number, own, version=self.chance.choice((3, 8, 12)))
        self.plain += 1
        parts = [own, plain(partition=1)]
        self.chance.shuffle(parts)
        return produce(number, *parts)


def answer(end: BrokerEnd) -> bool:
    """Answer the oldest request. Returns whether it was a Produce."""
    frame = end.frames[0]
    if end.keys[0] != ApiKey.PRODUCE:
        end.answer(bytes(random.Random(len(frame)).choice((3, 100, 90_000))))
        return False
    asked = parse_request(frame, 8 + 2 + int.from_bytes(frame[8:10], "big"), 8)
    if asked.acks == 0:
        end.drop()
    else:
        parts = [PartitionAnswer(one.topic, one.partition, 0, 5) for one in asked.partitions]
        end.answer(encode_response(8, parts))
    return True


@pytest.mark.parametrize("seed", range(25))
def test_all_requests_are_answered_in_order(seed: int) -> None:
    chance, scene = random.Random(seed), EngineScene()
    kinds = BrokerFault.SLOW, BrokerFault.LATE_ANSWER
    scene.world.cluster.rates = BrokerFaultRates(share=chance.choice((0, 0.3, 0.8)), kinds=kinds, slow=(0.01, 0.3))
    client = Client(scene, chance)
    stream = b"".join(client.request(number) for number in range(1, REQUESTS + 1))
    passed = 0
    while stream:
        size = chance.choice(PIECES)
        assert scene.line.wire is not None
        scene.line.wire.send(stream[:size])
        stream = stream[size:]
        if size > 7 or chance.random() < 0.1:
            scene.run(chance.choice((0.0, 0.01, 0.5)))
        while scene.ends and scene.ends[-1].keys and chance.random() < 0.7:
            passed += answer(scene.ends[-1])
    for _ in range(400):
        scene.run(0.5)
        while scene.ends and scene.ends[-1].keys:
            passed += answer(scene.ends[-1])
        if scene.line.answers == client.sent and passed == client.plain:
            break
    assert scene.line.answers == client.sent
    assert (scene.stored(), passed) == (client.appended, client.plain)
    assert struct.pack(">h", len(TOPIC)) + TOPIC.encode() in scene.line.data
    assert len(scene.ends) == 1
    scene.assert_nothing_stays()
