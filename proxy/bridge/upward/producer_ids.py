"""The producer ids under which batches of clients without one are written. Pure: asks no broker.

An id is lent for one request of one connection, and comes back with the sequences that its next request begins with. So
connections that take turns share ids: brokers keep an entry for each id and partition for a day
(``producer.id.expiration.ms``), and there are no more ids than requests at one time.

An id of which something may still arrive comes back in its next epoch, from sequence 0, and is kept for the client's
next request to that partition: a broker that has seen the next epoch there refuses what arrives late
(INVALID_PRODUCER_EPOCH). Where ids run short others get it as well. One address has no more than its share at a time:
what its brokers do not answer holds up no other address. The epoch is counted here, as Kafka's own
producer does (``TransactionManager.bumpIdempotentProducerEpoch``): without a transactional id InitProducerId ignores
id and epoch, and gives another id (``TransactionCoordinator.handleInitProducerId``; so do 3.9.1 and 4.3.1).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ....producing.numbered_batch import Place, ProducerId
from ... import limits
from .departed_clients import ClientIdentity

PLACES_PER_ID_MAX: Final = 2_000
"""Partitions whose sequences are kept for an id, 200 KB in all. With more it begins its next epoch, where all are 0."""
UNFINISHED_MAX: Final = 10_000
"""Sets of clients whose outcome was not known when their time was over, 2 MB in all. Of one that is forgotten, a batch
may come late and be taken after the client's retry."""
EPOCH_MAX: Final = 2**15 - 1
"""After it an id is dropped: some 100 bytes more at each leader, after 32,000 unknown outcomes."""


@dataclass(slots=True, eq=False)
class LentId:
    """A producer id while one request has it. ``next_sequences``: of partitions that it has written; others begin with
    0. ``client``: who had it last."""

    producer_id: ProducerId
    client: ClientIdentity
    next_sequences: dict[Place, int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The producer id without its epoch."""
        return self.producer_id.number


_Wakes = OrderedDict[object, Callable[[], None]]


class ProducerIdPool:
    """All producer ids of one proxy process in front of one cluster."""

    def __init__(
        self,
        ids_max: int = limits.OLD_PRODUCER_IDS_MAX,
        ids_per_ip_max: int = limits.OLD_PRODUCER_IDS_PER_IP_MAX,
        unfinished_max: int = UNFINISHED_MAX,
        counts_addresses: Callable[[], bool] = lambda: True,
    ) -> None:
        """``counts_addresses``: False where a load balancer hides them. Then all clients may have all ids."""
        self._ids_max = ids_max
        self._ids_per_ip_max = ids_per_ip_max
        self._unfinished_max = unfinished_max
        self._counts_addresses = counts_addresses
        self._idle: OrderedDict[int, LentId] = OrderedDict()
        """The last one was used last."""
        self._reserved: OrderedDict[int, LentId] = OrderedDict()
        """Those of the idle ones under which something may still arrive."""
        self._unfinished: OrderedDict[tuple[ClientIdentity, Place], int] = OrderedDict()
        """By client and partition: the id under which something may still arrive there."""
        self._unfinished_by_id: Counter[int] = Counter()
        self._known = 0
        """Ids that are idle, reserved, lent, or asked for."""
        self._used: Counter[str] = Counter()
        """By address, how many are lent to its clients, or asked for."""
        self._waiting: OrderedDict[str, _Wakes] = OrderedDict()
        """For any id, by address, which take turns."""
        self._waiting_for: dict[int, _Wakes] = {}
        """For an id that is lent."""

    @property
    def known(self) -> int:
        """How many ids are idle, reserved, lent, or asked for."""
        return self._known

    def lend(self, client: ClientIdentity, places: Iterable[Place], preferred: int | None = None) -> LentId | None:
        """Return an id for a request of this client to these partitions: the one under which an earlier batch of it may
        still arrive there, and no other one; else one under which such a batch may arrive in another partition, or a
        request to both would need two; else ``preferred``, else the one that was used last. None: there is none, or its
        address has its share.
        """
        if self._has_share(client.address):
            return None
        found: LentId | None = None
        number = self._unfinished_of(client, places)
        if number is not None:
            found = self._reserved.pop(number, None) or self._idle.pop(number, None)
        elif (number := self._reserved_for(client, preferred)) is not None:
            found = self._reserved.pop(number)
        elif preferred is not None and preferred in self._idle:
            found = self._idle.pop(preferred)
        elif self._idle:
            _, found = self._idle.popitem()
        elif self._reserved and self._known >= self._ids_max:
            _, found = self._reserved.popitem(last=False)
        if found is not None:
            found.client = client
            self._used[client.address] += 1
        return found

    def may_write(self, lent: LentId, place: Place) -> bool:
        """False: an earlier batch of this client may still arrive there under another id, and is refused only after a
        later one under that id."""
        return self._unfinished.get((lent.client, place), lent.number) == lent.number

    def ask_or_wait(
        self, client: ClientIdentity, places: Iterable[Place], who: object, wake: Callable[[], None]
    ) -> bool:
        """``lend`` has returned none. True: a broker is to be asked for another one, and the caller owes ``take_new``
        or ``not_given``. False: ``wake`` is called once it is worth the trouble to call ``lend`` again; waiting ends
        with ``wait_no_more``."""
        number = self._unfinished_of(client, places)
        if self._has_share(client.address) or (number is None and self._known >= self._ids_max):
            self._waiting.setdefault(client.address, OrderedDict())[who] = wake
            return False
        if number is not None:
            self._waiting_for.setdefault(number, OrderedDict())[who] = wake
            return False
        self._known += 1
        self._used[client.address] += 1
        return True

    def take_new(self, producer_id: ProducerId, client: ClientIdentity) -> LentId:
        """A broker has given an id; it is lent at once."""
        return LentId(producer_id, client)

    def not_given(self, client: ClientIdentity) -> None:
        """A broker has given none to this client."""
        self._known -= 1
        self._no_longer_used(client)
        self._wake_one()

    def give_back(self, lent: LentId, written: Iterable[Place] = (), unfinished: Iterable[Place] = ()) -> None:
        """A request has ended. ``written``: partitions whose brokers have its last batch. ``unfinished``: those that a
        batch of it may still reach."""
        for place in written:
            self._forget_unfinished((lent.client, place))
        is_unfinished = False
        for place in unfinished:
            is_unfinished = True
            self._forget_unfinished((lent.client, place))
            self._unfinished[lent.client, place] = lent.number
            self._unfinished_by_id[lent.number] += 1
            if len(self._unfinished) > self._unfinished_max:
                self._forget_unfinished(next(iter(self._unfinished)))
        if (is_unfinished or len(lent.next_sequences) > PLACES_PER_ID_MAX) and not self.begin_next_epoch(lent):
            return
        self._no_longer_used(lent.client)
        idle = self._reserved if lent.number in self._unfinished_by_id else self._idle
        idle[lent.number] = lent
        self._wake_those_for(lent.number)
        self._wake_one()

    def begin_next_epoch(self, lent: LentId) -> bool:
        """Let all sequences begin with 0 again, in the next epoch. False: it had the last one, and was dropped."""
        if lent.producer_id.epoch >= EPOCH_MAX:
            self.drop(lent)
            return False
        lent.producer_id = ProducerId(lent.number, lent.producer_id.epoch + 1)
        lent.next_sequences.clear()
        return True

    def drop(self, lent: LentId) -> None:
        """An id is used no more: somebody else writes under it, or it had its last epoch."""
        for key in [key for key, number in self._unfinished.items() if number == lent.number]:
            self._forget_unfinished(key)
        self._wake_those_for(lent.number)
        self.not_given(lent.client)

    def wait_no_more(self, client: ClientIdentity, who: object) -> None:
        """It has an id, or its time is over: then the id that it was woken for is another's."""
        of_address = self._waiting.get(client.address, OrderedDict())
        of_address.pop(who, None)
        if not of_address:
            self._waiting.pop(client.address, None)
        for number, of_id in list(self._waiting_for.items()):
            of_id.pop(who, None)
            if not of_id:
                del self._waiting_for[number]
        if self._idle or self._reserved or self._known < self._ids_max:
            self._wake_one()

    # ------------------------------------------------------------------ inside
    def _has_share(self, address: str) -> bool:
        """Do the clients of this address have as many as they may?"""
        return self._used[address] >= self._ids_per_ip_max and self._counts_addresses()

    def _no_longer_used(self, client: ClientIdentity) -> None:
        self._used[client.address] -= 1
        if not self._used[client.address]:
            del self._used[client.address]

    def _reserved_for(self, client: ClientIdentity, preferred: int | None) -> int | None:
        if preferred is not None and preferred in self._reserved and self._reserved[preferred].client == client:
            return preferred
        return next((number for number, one in self._reserved.items() if one.client == client), None)

    def _unfinished_of(self, client: ClientIdentity, places: Iterable[Place]) -> int | None:
        found = (self._unfinished.get((client, place)) for place in places)
        return next((number for number in found if number is not None), None)

    def _forget_unfinished(self, key: tuple[ClientIdentity, Place]) -> None:
        number = self._unfinished.pop(key, None)
        if number is None:
            return
        self._unfinished_by_id[number] -= 1
        if not self._unfinished_by_id[number]:
            del self._unfinished_by_id[number]
            if number in self._reserved:
                self._idle[number] = self._reserved.pop(number)

    def _wake_those_for(self, number: int) -> None:
        for wake in list(self._waiting_for.pop(number, {}).values()):
            wake()

    def _wake_one(self) -> None:
        """Of the address whose turn it is, but for those that have their share. There are few of these at a time."""
        for address, of_address in self._waiting.items():
            if not self._has_share(address):
                _, wake = of_address.popitem(last=False)
                self._waiting.move_to_end(address)
                if not of_address:
                    del self._waiting[address]
                wake()
                return


class ProducerIdPools(NamedTuple):
    """A broker counts sequences by partition, and a request names the topic or its id, of which nothing here knows
    that they belong together. So each producer id is used with one of both."""

    by_name: ProducerIdPool
    by_topic_id: ProducerIdPool
