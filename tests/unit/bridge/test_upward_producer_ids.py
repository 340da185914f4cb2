"""The pool of producer ids: lent for one request, continued where it stopped, in the next epoch after a doubt."""

from __future__ import annotations

from idemproxy.producing.numbered_batch import Place, ProducerId
from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity
from idemproxy.proxy.bridge.upward.producer_ids import EPOCH_MAX, PLACES_PER_ID_MAX, LentId, ProducerIdPool

P, Q = Place("t", 0), Place("t", 1)
A, B = ClientIdentity("a", "client"), ClientIdentity("b", "client")


class Scene:
    """A pool, a broker that gives ids from 1 on, and what was woken."""

    def __init__(self, ids_max: int = 10, ids_per_ip_max: int = 10) -> None:
        self.pool = ProducerIdPool(ids_max, ids_per_ip_max)
        self.given = 0
        self.woken: list[ClientIdentity] = []

    def lend(self, client: ClientIdentity = A, *places: Place, preferred: int | None = None) -> LentId:
        lent = self.pool.lend(client, places or (P,), preferred)
        if lent is None:
            assert self.ask(client, *places)
            self.given += 1
            lent = self.pool.take_new(ProducerId(self.given), client)
        return lent

    def ask(self, client: ClientIdentity, *places: Place) -> bool:
        return self.pool.ask_or_wait(client, places or (P,), client, lambda: self.woken.append(client))


def test_an_id_that_came_back_continues_where_it_stopped() -> None:
    scene = Scene()
    lent = scene.lend()
    lent.next_sequences[P] = 7
    scene.pool.give_back(lent, [P])

    again = scene.lend(B)

    assert (again.producer_id, again.next_sequences) == (ProducerId(1), {P: 7})


def test_ten_thousand_connections_that_write_once_share_one_id() -> None:
    scene = Scene()
    for number in range(10_000):
        scene.pool.give_back(scene.lend(ClientIdentity("a", f"client {number}")), [P])

    assert (scene.given, scene.pool.known) == (1, 1)


def test_requests_at_one_time_have_an_id_each_up_to_the_limit() -> None:
    scene = Scene(ids_max=3)
    lent = [scene.lend(ClientIdentity("a", f"client {number}")) for number in range(3)]
    assert len({one.number for one in lent}) == 3

    assert scene.pool.lend(A, [P]) is None
    assert not scene.ask(A)
    assert not scene.ask(B)
    scene.pool.give_back(lent[1], [P])

    assert scene.woken == [A]
    assert scene.lend() is lent[1]


def test_a_connection_gets_its_own_id_again_if_it_is_idle() -> None:
    scene = Scene()
    first, second = scene.lend(A), scene.lend(B)
    scene.pool.give_back(first)
    scene.pool.give_back(second)

    assert scene.lend(A, preferred=first.number) is first


def test_an_unfinished_id_returns_in_its_next_epoch_from_sequence_0() -> None:
    scene = Scene()
    lent = scene.lend()
    lent.next_sequences[P] = 7
    scene.pool.give_back(lent, unfinished=[P])

    again = scene.lend()

    assert (again.producer_id, again.next_sequences) == (ProducerId(1, 1), {})


def test_an_unfinished_id_is_kept_for_the_client_and_partition() -> None:
    scene = Scene()
    scene.pool.give_back(scene.lend(A, P), unfinished=[P])

    other = scene.lend(B, P)
    assert other.number != 1
    scene.pool.give_back(other)
    mine = scene.lend(A, P)
    assert mine.number == 1

    scene.pool.give_back(mine, [P])
    assert scene.lend(B, P).number == 1


def test_a_client_waits_for_its_unfinished_id_while_another_request_has_it() -> None:
    scene = Scene()
    scene.pool.give_back(scene.lend(A, P), unfinished=[P])
    lent = scene.lend(A, Q, preferred=1)
    assert lent.number == 1

    assert scene.pool.lend(A, [P]) is None
    assert not scene.ask(A, P)
    scene.pool.give_back(lent, [Q])

    assert scene.woken == [A]
    assert scene.lend(A, P).number == 1


def test_a_client_with_something_unfinished_keeps_its_id_for_other_partitions() -> None:
    scene = Scene()
    other = scene.lend(B, Q)
    scene.pool.give_back(scene.lend(A, P), unfinished=[P])
    scene.pool.give_back(other, [Q])
    lent = scene.lend(A, Q, preferred=other.number)
    assert lent.producer_id == ProducerId(2, 1)
    scene.pool.give_back(lent, unfinished=[Q])

    assert scene.pool.lend(A, [P, Q]) is lent, "both late batches have it"


def test_where_ids_run_short_an_unfinished_one_is_lent_to_others_in_its_next_epoch() -> None:
    scene = Scene(ids_max=1)
    scene.pool.give_back(scene.lend(A, P), unfinished=[P])

    assert scene.lend(B, P).producer_id == ProducerId(1, 1)


def test_an_id_is_dropped_after_its_last_epoch() -> None:
    scene = Scene()
    for epoch in range(EPOCH_MAX + 1):
        lent = scene.lend()
        assert lent.producer_id == ProducerId(1, epoch)
        scene.pool.give_back(lent, unfinished=[P])

    assert scene.pool.known == 0
    assert scene.lend().producer_id == ProducerId(2)


def test_an_id_that_is_dropped_is_not_waited_for() -> None:
    scene = Scene()
    scene.pool.give_back(scene.lend(A, P), unfinished=[P])
    lent = scene.lend(A, P)
    assert not scene.ask(A, P)

    scene.pool.drop(lent)

    assert scene.woken == [A]
    assert scene.lend(A, P).producer_id == ProducerId(2)


def test_an_id_with_too_many_partitions_begins_again() -> None:
    scene = Scene()
    lent = scene.lend()
    lent.next_sequences.update((Place("t", number), 1) for number in range(PLACES_PER_ID_MAX + 1))
    scene.pool.give_back(lent)

    assert (scene.lend().producer_id, lent.next_sequences) == (ProducerId(1, 1), {})


def test_a_broker_that_gives_no_id_leaves_its_place_to_the_next_one() -> None:
    scene = Scene(ids_max=1)
    assert scene.ask(A)
    assert not scene.ask(B)

    scene.pool.not_given(A)

    assert scene.woken == [B]
    assert scene.ask(B)


def test_who_is_woken_too_late_passes_it_on() -> None:
    scene = Scene(ids_max=1)
    lent = scene.lend(ClientIdentity("a", "first"))
    assert not scene.ask(A)
    assert not scene.ask(B)
    scene.pool.give_back(lent)
    assert scene.woken == [A]

    scene.pool.wait_no_more(A, A)

    assert scene.woken == [A, B]


def test_what_is_remembered_of_unfinished_sets_is_bounded() -> None:
    pool = ProducerIdPool(10, unfinished_max=2)
    for number in range(1, 4):
        assert pool.ask_or_wait(A, [Place("t", number)], A, lambda: None)
        pool.give_back(pool.take_new(ProducerId(number), A), unfinished=[Place("t", number)])

    first = pool.lend(B, [P])
    assert first is not None
    assert first.number == 1


# ---------------------------------------------------------------------- addresses
def test_one_address_has_no_more_than_its_share_and_others_are_served() -> None:
    scene = Scene(ids_max=4, ids_per_ip_max=3)
    lent = [scene.lend() for _ in range(3)]

    assert scene.pool.lend(A, [P]) is None
    assert not scene.ask(A)
    other = scene.lend(B)
    scene.pool.give_back(other, [P])
    assert scene.woken == [], "it is not for the address that has its share"
    scene.pool.give_back(lent[0], [P])

    assert scene.woken == [A]
    assert scene.lend().number == lent[0].number


def test_where_addresses_are_not_counted_one_may_have_all_ids() -> None:
    counts = True
    pool = ProducerIdPool(ids_max=2, ids_per_ip_max=1, counts_addresses=lambda: counts)
    assert pool.ask_or_wait(A, [P], A, lambda: None)
    assert not pool.ask_or_wait(A, [P], A, lambda: None)
    counts = False
    assert pool.ask_or_wait(A, [P], A, lambda: None)

    assert not pool.ask_or_wait(A, [P], A, lambda: None)


def test_what_an_address_has_asked_for_counts_until_it_is_not_given() -> None:
    scene = Scene(ids_per_ip_max=1)
    assert scene.ask(A)
    assert not scene.ask(A)

    scene.pool.not_given(A)

    assert scene.woken == [A]
    assert scene.ask(A)


def test_an_id_that_is_dropped_leaves_its_place_in_the_share() -> None:
    scene = Scene(ids_per_ip_max=1)
    scene.pool.drop(scene.lend())

    assert scene.lend().producer_id == ProducerId(2)


def test_an_address_with_its_share_waits_for_its_unfinished_id_like_for_any() -> None:
    scene = Scene(ids_per_ip_max=1)
    scene.pool.give_back(scene.lend(A, P), unfinished=[P])
    other = scene.lend(A, Q)

    assert scene.pool.lend(A, [P]) is None
    assert not scene.ask(A, P)
    scene.pool.give_back(other, [Q])

    assert scene.woken == [A]
    assert scene.lend(A, P).number == 1


def test_addresses_that_wait_take_turns() -> None:
    scene = Scene(ids_max=1)
    lent = scene.lend(B)
    first, second = ClientIdentity("a", "first"), ClientIdentity("a", "second")
    assert not scene.ask(first)
    assert not scene.ask(second)
    assert not scene.ask(B)

    for _ in range(3):
        scene.pool.give_back(lent, [P])
        lent = scene.lend(scene.woken[-1])

    assert scene.woken == [first, B, second]
