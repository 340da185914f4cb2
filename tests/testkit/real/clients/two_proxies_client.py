"""Producers that may go to any proxy: they have up to five batches in flight and send the same bytes until answered.

They judge the answers that they got against what is stored; which answers are allowed is the caller's to say.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

from idemproxy.codecs.produce import PartitionAnswer

from .raw_client import RawClient, batch

Address = tuple[str, int]
Place = tuple[str, int]
IN_FLIGHT_MAX = 5
RETRIABLE = frozenset({6, 7, 19})
FORBIDDEN_IN_DOUBT = frozenset({45, 47, 59})
_NOT_NOW = 14
"""The answer to InitProducerId while Redis is away."""
_RECORDS_MAX = 3
_AGAIN_SECONDS = 0.05
_NAMES = itertools.count()


class RovingProducer:
    """One idempotent producer on one partition. Not thread-safe."""

    def __init__(self, place: Place, *, timeout_ms: int = 30_000, request_seconds_max: float = 30.0) -> None:
        """``request_seconds_max``: an answer that is later than this is not waited for any more."""
        self.place = place
        self.name = f"p{next(_NAMES)}"
        self.producer_id = -1
        self.codes: Counter[int] = Counter()
        """Every code that it got; -1 for a connection that was lost, -2 for an answer that did not come in time."""
        self.told: dict[int, int] = {}
        """Base sequence -> the offset that was answered."""
        self.answered_at: dict[int, float] = {}
        self.unanswered: dict[int, bytes] = {}
        self.values: dict[int, list[bytes]] = {}
        self.final: list[tuple[int, PartitionAnswer]] = []
        """(base sequence, answer) of batches that were refused for good."""
        self._timeout_ms = timeout_ms
        self._request_seconds_max = request_seconds_max
        self._client: RawClient | None = None
        self._asked: list[int] = []
        self._next_sequence = 0

    # ------------------------------------------------------------------ connections
    def connect(self, address: Address) -> None:
        """Be connected there, and nowhere else. Raises OSError."""
        self.hang_up()
        self._client = RawClient(address, self._request_seconds_max)
        if self.producer_id < 0:
            error_code, self.producer_id, _ = self._client.init_producer_id()
            assert error_code in (0, _NOT_NOW), error_code

    def hang_up(self) -> None:
        """Close the connection, if there is one; what was asked on it is unanswered for ever."""
        self._asked.clear()
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def is_connected(self) -> bool:
        """As far as is known."""
        return self._client is not None

    # ------------------------------------------------------------------ batches
    def add(self, batches: int, random: Random | None = None) -> list[int]:
        """Have so many more to send, of one record or up to three; return their base sequences."""
        added = []
        for _ in range(batches):
            size = random.randint(1, _RECORDS_MAX) if random is not None else 1
            sequence = self._next_sequence
            self.values[sequence] = [f"{self.name}:{sequence + index}".encode() for index in range(size)]
            self.unanswered[sequence] = batch(self.values[sequence], producer_id=self.producer_id, sequence=sequence)
            self._next_sequence += size
            added.append(sequence)
        return added

    def send(self) -> None:
        """Send all that is unanswered, in order, and do not wait. Raises OSError."""
        assert self._client is not None
        for sequence, records in sorted(self.unanswered.items()):
            self._client.send_produce([(*self.place, records)], timeout_ms=self._timeout_ms)
            self._asked.append(sequence)

    def take(self) -> None:
        """Take the answers to all that was sent. Raises OSError, TimeoutError among them."""
        assert self._client is not None
        while self._asked:
            (answer,) = self._client.produce_answer()
            self._note(self._asked.pop(0), answer)

    def is_silent(self, seconds: float) -> bool:
        """Does no answer come within this time?"""
        assert self._client is not None
        return self._client.is_silent(seconds)

    def _note(self, sequence: int, answer: PartitionAnswer) -> None:
        self.codes[answer.error_code] += 1
        if answer.error_code == 0:
            self.told[sequence] = answer.base_offset
            self.answered_at[sequence] = time.monotonic()
            self.unanswered.pop(sequence, None)
        elif answer.error_code not in RETRIABLE:
            self.final.append((sequence, answer))
            self.unanswered.pop(sequence, None)

    def try_once(self, address: Callable[[], Address]) -> None:
        """Send what is unanswered and take the answers; a lost connection, or none, is noted."""
        try:
            if self._client is None or self.producer_id < 0:
                self.connect(address())
            self.send()
            self.take()
        except TimeoutError:
            self.codes[-2] += 1
            self.hang_up()
        except OSError:
            self.codes[-1] += 1
            self.hang_up()

    def insist(self, address: Callable[[], Address], seconds_max: float = 60.0) -> None:
        """Send again and again until everything is answered, or refused for good."""
        end = time.monotonic() + seconds_max
        while self.unanswered:
            assert time.monotonic() < end, f"{self.name}: {list(self.unanswered)} not answered, codes {self.codes}"
            self.try_once(address)
            if self.unanswered:
                time.sleep(_AGAIN_SECONDS)

    # ------------------------------------------------------------------ the verdict
    def complaints(self, stored: Sequence[tuple[int, bytes]]) -> list[str]:
        """Return what is wrong with (offset, value) of everything in its partition: each batch that was answered is
        there once, in order, at the offset it got; one that was not answered at most once; no code that says too
        much."""
        prefix = f"{self.name}:".encode()
        own = [(offset, value) for offset, value in stored if value.startswith(prefix)]
        offsets: dict[bytes, list[int]] = {}
        for offset, value in own:
            offsets.setdefault(value, []).append(offset)
        found = [f"{value!r} is stored at {places}" for value, places in offsets.items() if len(places) > 1]
        for sequence, told in self.told.items():
            wanted = {value: [told + index] for index, value in enumerate(self.values[sequence])}
            got = {value: offsets.get(value, []) for value in wanted}
            if got != wanted:
                found.append(f"{self.name} sequence {sequence}: told {told}, stored {got}")
        numbers = [int(value[len(prefix) :]) for _, value in own]
        if numbers != sorted(numbers):
            found.append(f"{self.name} is not stored in order")
        found += [f"{self.name} sequence {sequence} was refused: {answer}" for sequence, answer in self.final]
        if said := FORBIDDEN_IN_DOUBT & self.codes.keys():
            found.append(f"{self.name} was told {sorted(said)}")
        return found


class Load:
    """Roving producers, each in a thread, that run until they are stopped. A context manager.

    ``address``: where the producer with this index goes when it has no connection.
    """

    def __init__(
        self,
        places: Sequence[Place],
        address: Callable[[int], Address],
        *,
        seed: int = 1,
        pause_seconds: float = 0.02,
        hang_up_share: float = 0.0,
        timeout_ms: int = 10_000,
        request_seconds_max: float = 12.0,
    ) -> None:
        """``hang_up_share``: so often a producer leaves after it has sent, before it is answered."""
        self.producers = [
            RovingProducer(place, timeout_ms=timeout_ms, request_seconds_max=request_seconds_max) for place in places
        ]
        self._address = address
        self._seed = seed
        self._pause_seconds = pause_seconds
        self._hang_up_share = hang_up_share
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(index,), daemon=True) for index in range(len(places))]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(0.0 if error[0] is not None else 90.0)

    def stop(self, seconds_max: float = 90.0) -> None:
        """Send nothing new, and wait until everything is answered. Raises what a thread failed with."""
        self._stopping.set()
        end = time.monotonic() + seconds_max
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))
        if self._failures:
            raise self._failures[0]
        left = [one.name for one, thread in zip(self.producers, self._threads, strict=True) if thread.is_alive()]
        assert not left or seconds_max == 0, f"not answered: {left}"

    def progress(self) -> list[int]:
        """Batches of each producer that were answered so far."""
        return [len(one.told) for one in self.producers]

    def codes(self) -> Counter[int]:
        """Every code that any of them got."""
        return sum((Counter(one.codes) for one in self.producers), Counter())

    def all_go_on(self, batches: int = 3, seconds_max: float = 60.0) -> float:
        """Wait until each has had so many more answers; return the seconds that it took."""
        begun, before = time.monotonic(), self.progress()
        while any(now < then + batches for now, then in zip(self.progress(), before, strict=True)):
            if self._failures:
                raise self._failures[0]
            took = time.monotonic() - begun
            assert took < seconds_max, f"{self.progress()} after {before} in {took:.0f} s: {self.codes()}"
            time.sleep(0.01)
        return time.monotonic() - begun

    def complaints(self, stored: Mapping[Place, Sequence[tuple[int, bytes]]]) -> list[str]:
        """Return what is wrong, of all producers, and who else is in their partitions."""
        found = [complaint for one in self.producers for complaint in one.complaints(stored[one.place])]
        names = {f"{one.name}:".encode() for one in self.producers}
        for place in {one.place for one in self.producers}:
            strange = [value for _, value in stored[place] if not any(value.startswith(name) for name in names)]
            if strange:
                found.append(f"{place}: nobody sent {strange[:3]}")
        return found

    def _run(self, index: int) -> None:
        try:
            self._produce(index, self.producers[index], Random(self._seed * 1000 + index))
        except BaseException as error:
            self._failures.append(error)

    def _produce(self, index: int, producer: RovingProducer, random: Random) -> None:
        stop_at: float | None = None
        while True:
            if self._stopping.is_set():
                stop_at = stop_at or time.monotonic() + 90
                if not producer.unanswered or time.monotonic() > stop_at:
                    producer.hang_up()
                    return
            elif len(producer.unanswered) < IN_FLIGHT_MAX and producer.producer_id >= 0:
                producer.add(random.randint(1, IN_FLIGHT_MAX - len(producer.unanswered)), random)
            if producer.is_connected and random.random() < self._hang_up_share:
                self._send_and_leave(producer)
            before = len(producer.told)
            producer.try_once(lambda: self._address(index))
            time.sleep(self._pause_seconds if len(producer.told) > before else _AGAIN_SECONDS)

    def _send_and_leave(self, producer: RovingProducer) -> None:
        try:
            producer.send()
        except OSError:
            producer.codes[-1] += 1
        producer.hang_up()
