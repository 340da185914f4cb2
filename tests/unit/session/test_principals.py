"""A producer id belongs to the principal that it was issued to: nobody else learns anything of it, or moves it."""

from dataclasses import dataclass
from functools import partial

import pytest

from idemproxy.proxy.bridge.init_producer_id import InitProducerIdRequest
from idemproxy.proxy.flow.effects import Append
from idemproxy.state.entry import NO_PRINCIPAL, principal_of
from idemproxy.state.producer_ids import block_of, pack_block, unpack_block
from idemproxy.state.store import block_key
from testkit.stage.sequencer import BLOCK_KEY, DATA_GENERATION, KEY, Client, Stage
from testkit.virtual.world import World, WorldSettings

FOREIGN = 49
OWNER, THIEF = "User:owner", "User:thief"


def a_stage(*, issued_to: str | None = OWNER) -> Stage:
    stage = Stage()
    stage.values[BLOCK_KEY] = pack_block(DATA_GENERATION, 0, principal_of(issued_to))
    return stage


def beside(first: Stage) -> Stage:
    """Another proxy on the same store and log."""
    second = Stage()
    second.values, second.log, second.now = first.values, first.log, first.now
    return second


def test_what_was_issued_to_a_principal_serves_him_and_his_other_connections() -> None:
    stage = a_stage()
    assert stage.send(Client(OWNER), 0).offset == 0
    stage.run(1)
    assert stage.send(Client(OWNER), 1).offset == 1
    stage.run(1)
    assert stage.send(Client(OWNER), 0).offset == 0


@pytest.mark.promise("producer-id-owner")
@pytest.mark.parametrize("thief", [THIEF, None])
@pytest.mark.parametrize(("sequence", "epoch"), [(0, 0), (1, 0), (2, 0), (0, 1), (9, 0)])
def test_nobody_else_learns_anything_or_moves_anything(thief: str | None, sequence: int, epoch: int) -> None:
    stage = a_stage()
    owner = Client(OWNER)
    stage.send(owner, 0)
    stage.run(1)
    stage.send(owner, 1)
    stage.run(1)
    before = stage.entry()
    taken = stage.send(Client(thief), sequence, epoch=epoch)
    stage.run(1)
    assert (taken.code, taken.offset) == (FOREIGN, -1)
    assert stage.entry() == before
    assert stage.send(owner, 2).offset == 2


def test_an_id_that_has_written_nothing_here_is_its_owners_all_the_same() -> None:
    stage = a_stage()
    taken = stage.send(Client(THIEF), 0)
    stage.run(1)
    assert taken.code == FOREIGN
    assert not stage.stored_values()
    assert stage.send(Client(OWNER), 0).offset == 0


@pytest.mark.promise("producer-id-owner")
def test_a_thief_does_not_join_the_owners_batch_while_it_is_out() -> None:
    stage = a_stage()
    stage.outcomes.append(stage.loses_answer)
    mine, stolen = stage.send(Client(OWNER), 0), stage.send(Client(THIEF), 0)
    stage.run(10)
    assert (mine.offset, stolen.code) == (0, FOREIGN)
    assert stage.stored_values() == [b"value 0"]


def test_a_thief_with_a_newer_epoch_does_not_stop_the_owners_batch() -> None:
    stage = a_stage()
    owner = Client(OWNER)
    stage.send(owner, 0)
    stage.run(1)
    stage.before[Append] = lambda _effect: stage.send(Client(THIEF), 0, epoch=9)
    mine = stage.send(owner, 1)
    stage.run(1)
    assert mine.offset == 1


def test_an_entry_rebuilt_from_the_log_still_belongs_to_its_owner() -> None:
    stage = a_stage()
    stage.send(Client(OWNER), 0)
    stage.run(1)
    del stage.values[KEY]
    stage.values[BLOCK_KEY] = pack_block(bytes(16), 0, principal_of(OWNER))  # of an earlier data generation
    again = beside(stage)
    retry = again.send(Client(OWNER), 0)
    again.run(10)
    assert retry.offset == 0
    third = beside(again)
    taken = third.send(Client(THIEF), 1)
    third.run(1)
    assert taken.code == FOREIGN


def test_an_id_issued_to_nobody_belongs_to_the_first_authenticated_client() -> None:
    stage = a_stage(issued_to=None)
    stage.send(Client(), 0)
    stage.run(1)
    assert stage.entry().principal == NO_PRINCIPAL
    stage.send(Client(OWNER), 1)
    stage.run(1)
    assert stage.entry().principal == principal_of(OWNER)
    taken = stage.send(Client(THIEF), 2)
    stage.run(1)
    assert taken.code == FOREIGN


@dataclass(frozen=True)
class Asker:
    """Who asks for a producer id."""

    principal: bytes
    is_closed: bool = False
    address: str = "client"


def test_every_principal_gets_ids_of_blocks_of_its_own() -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    names = (OWNER, THIEF, None, OWNER)
    issued: list[int] = []

    def are_issued(count: int) -> bool:
        return len(issued) == count

    for count, name in enumerate(names, 1):
        world.proxies[0].engine.init_producer_id(
            *(InitProducerIdRequest(None, 0), 0, None, Asker(principal_of(name))),
            lambda _code, producer_id, _epoch: issued.append(producer_id),
        )
        assert world.network.run(1, partial(are_issued, count))
    blocks = [block_of(producer_id) for producer_id in issued]
    assert len(set(blocks)) == 3
    assert issued[3] == issued[0] + 1
    for name, block in zip(names, blocks, strict=True):
        stored = unpack_block(world.redis.data[block_key(world.proxies[0].engine.statistics().cluster, block)].value)
        assert stored is not None
        assert stored.principal == principal_of(name)
