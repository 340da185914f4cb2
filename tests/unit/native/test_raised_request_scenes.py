"""Old requests through the proxy, but for Produce: over which connections they go, and what a reload changes."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.proxy.events import OldRequestRefused
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.line import request
from testkit.virtual.raising_scene import KAFKA_4, RaisingScene, message_set, metadata, produce
from testkit.virtual.releases import KEEPS_3_9

WITHOUT_ZOOKEEPER = replace(KAFKA_4, ranges={**KAFKA_4.ranges, ApiKey.OFFSET_FETCH: (1, 10)})
GROUP = b"\0\1g"
LISTS_OFFSETS = request(2, ApiKey.LIST_OFFSETS, 0, struct.pack(">ii", -1, 0))
NO_OFFSETS = struct.pack(">i", 0)


def offset_fetch(number: int) -> bytes:
    """Version 0: clients ask any broker."""
    return request(number, ApiKey.OFFSET_FETCH, 0, GROUP + struct.pack(">i", 0))


@pytest.mark.parametrize("is_own", [True, False])
def test_a_coordinator_is_asked_over_the_clients_own_connection_where_it_is_its_broker(is_own: bool) -> None:
    scene = RaisingScene(brokers=2, release=WITHOUT_ZOOKEEPER)
    own, other = scene.broker.number, next(one for one in scene.world.cluster.brokers if one != scene.broker.number)
    scene.send(offset_fetch(1))
    coordinator = struct.pack(">hi", 0, own if is_own else other) + b"\0\1h" + struct.pack(">i", 1)
    scene.answer(ApiKey.FIND_COORDINATOR, coordinator)
    assert scene.connects == (1 if is_own else 2)
    scene.answer(ApiKey.OFFSET_FETCH, struct.pack(">i", 0))
    assert scene.line.answers == [1]
    scene.assert_nothing_stays()


def set_translate(scene: RaisingScene, translate: str) -> None:
    """A reload."""
    scene.engine.old_client_settings = replace(scene.engine.old_client_settings, translate=translate)


@pytest.mark.parametrize(
    "waiting", [LISTS_OFFSETS, produce(2, message_set(b"value"))], ids=["lists offsets", "produces"]
)
def test_after_a_reload_an_old_request_whose_turn_comes_is_refused(waiting: bytes) -> None:
    scene = RaisingScene()
    scene.send(metadata(1), waiting, metadata(3))
    set_translate(scene, "never")
    scene.answer_metadata(1, scene.broker.number)
    scene.answer_metadata(1, scene.broker.number)
    assert scene.line.answers == [1, 2, 3]
    assert not scene.line.is_lost
    assert len([event for _, _, event in scene.proxy.events if isinstance(event, OldRequestRefused)]) == 1
    scene.assert_nothing_stays()


def test_after_a_reload_an_old_request_that_the_broker_serves_passes_as_it_came() -> None:
    scene = RaisingScene(release=KEEPS_3_9)
    set_translate(scene, "always")
    scene.send(metadata(1), LISTS_OFFSETS)
    set_translate(scene, "never")
    scene.answer_metadata(1, scene.broker.number)
    passed = scene.waiting(ApiKey.LIST_OFFSETS)
    assert passed.frames == [LISTS_OFFSETS[4:]]
    passed.answer(NO_OFFSETS)
    scene.run()
    assert scene.line.answers == [1, 2]
    scene.assert_nothing_stays()


def test_a_request_of_which_a_part_has_come_is_refused_after_a_reload() -> None:
    scene = RaisingScene()
    scene.send(LISTS_OFFSETS[:-1])
    set_translate(scene, "never")
    scene.send(LISTS_OFFSETS[-1:], metadata(3))
    scene.answer_metadata(1, scene.broker.number)
    assert scene.line.answers == [2, 3]
    scene.assert_nothing_stays()


def test_what_has_begun_ends_as_it_began_though_a_reload_ends_translation() -> None:
    scene = RaisingScene()
    scene.send(LISTS_OFFSETS)
    set_translate(scene, "never")
    scene.answer(ApiKey.LIST_OFFSETS, NO_OFFSETS)
    assert scene.line.answers == [2]
    set_translate(scene, "auto")
    scene.send(produce(3, message_set(b"value")))
    set_translate(scene, "never")
    scene.give_id()
    scene.answer_produce()
    assert scene.line.answers == [2, 3]
    assert scene.code() == ErrorCode.NONE
    scene.assert_nothing_stays()
