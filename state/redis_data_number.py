"""The data number of what Redis has in its memory, which every proxy counts up, so that memory which went back in time
is noticed where a proxy lives on that has seen more (rule R10). Sans-IO.

Redis's ``run_id`` and ``master_replid`` stay the same when a virtual machine is reverted, and after some managed
fail-overs. The stored number does not: with the rest of the memory it returns to what it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .redis_greeting import Refuse, give_up_on
from .redis_link import RedisLink, Reply, pack
from .store import DATA_COUNT_BITS, StoreAway, data_number_key, data_number_of

FIRST_DATA_NUMBER_BITS = 30
DATA_NUMBER_STEP_BITS = 12
"""A new data number is a random number of the first size where nothing is known of an earlier one; else it is greater
than that by a random number of the second size. So data numbers only ever rise, and hundreds of thousands fit into
Redis's 63 bits. A count that runs over begins the next data number by itself."""
RANDOM_BYTES = 4
_Asked = tuple[RedisLink, str, Refuse, Callable[[int], None]]
_COUNT_MAX = (1 << DATA_COUNT_BITS) - 1


def _ignore(_reply: object) -> None:
    """Not looked at: the reply to the next command tells whether the connection stands."""


def first_value(random: bytes) -> bytes:
    """Return what to store where nothing is known of an earlier data number, made of ``RANDOM_BYTES``."""
    return _value_of(_up_to(random, FIRST_DATA_NUMBER_BITS))


def _value_of(data_number: int) -> bytes:
    return b"%d" % (data_number << DATA_COUNT_BITS)


def _up_to(random: bytes, bits: int) -> int:
    return 1 + int.from_bytes(random[:RANDOM_BYTES], "big") % (1 << bits)


class DataNumberCounter:
    """What one process has seen of it, over all its connections and proxy instances."""

    def __init__(self, cluster: str, random_bytes: Callable[[int], bytes], went_back: Callable[[], None]) -> None:
        """``went_back`` is called when Redis's memory is seen to be older than what this process saw before. Another
        life is written then, before ``counted`` is called: until then nothing else may be written."""
        self._key = data_number_key(cluster)
        self._random_bytes = random_bytes
        self._went_back = went_back
        self._server = ""
        self.newest = 0
        """The highest value that this process has seen."""

    def count(self, link: RedisLink, server: str, refuse: Refuse, counted: Callable[[int], None]) -> None:
        """Look, and count up by one. ``server``: which it is (``identity_of``). ``counted`` gets the number of the
        present data number, unless the link was reset, or ``refuse`` was called."""
        self._look((link, server, refuse, counted))

    # First a look, or those who notice it would raise the count for each other while their replies are lost.
    def _look(self, asked: _Asked) -> None:
        link = asked[0]
        link.call(pack(b"SET", self._key, self._new_value(), b"NX"), _ignore)
        link.call(pack(b"GET", self._key), partial(self._looked, asked))

    def _looked(self, asked: _Asked, reply: Reply | StoreAway) -> None:
        link, server, refuse, _counted = asked
        if not isinstance(reply, bytes):
            give_up_on(link, refuse, reply)
        elif not reply.isdigit():
            refuse(f"the key {self._key.decode()} in Redis has no number, so somebody else writes there: delete it")
        elif server == self._server and int(reply) < self.newest:
            self._begin(asked)
        else:  # what another server lacks shows in its identity already
            # Not INCR: a command with an amount can be tried in a way that writes nothing (``idemproxy check``).
            link.call(pack(b"INCRBY", self._key, b"1"), partial(self._raised, asked))

    def _raised(self, asked: _Asked, reply: Reply | StoreAway) -> None:
        link, server, refuse, counted = asked
        if type(reply) is not int:
            give_up_on(link, refuse, reply)
        elif server == self._server and reply <= self.newest:
            self._begin(asked)
        else:
            self._server, self.newest = server, reply
            counted(data_number_of(reply))

    def _begin(self, asked: _Asked) -> None:
        """Write another data number, and look at it."""
        if self.newest & _COUNT_MAX != _COUNT_MAX:
            self.newest |= _COUNT_MAX  # nothing of this data number counts any more, though the connection end here
            self._went_back()
        asked[0].call(pack(b"SET", self._key, self._new_value()), _ignore)
        self._look(asked)

    def _new_value(self) -> bytes:
        random = self._random_bytes(RANDOM_BYTES)
        if not self.newest:
            return first_value(random)
        return _value_of(data_number_of(self.newest) + _up_to(random, DATA_NUMBER_STEP_BITS))
