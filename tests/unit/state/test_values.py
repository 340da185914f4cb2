"""Frozen dataclasses that are frozen for the type checker only: compared and hashed like real ones."""

from dataclasses import dataclass

from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import WindowBatch
from idemproxy.values import value


@value(frozen=True, slots=True)
class Place:
    topic: str
    partition: int = 0


@dataclass(frozen=True, slots=True)
class RealPlace:
    topic: str
    partition: int = 0


def test_two_with_the_same_fields_are_equal_and_have_the_same_hash() -> None:
    assert Place("a", 1) == Place("a", 1)
    assert len({Place("a", 1), Place("a", 1), Place("a", 2)}) == 2
    assert hash(Place("a", 1)) == hash(RealPlace("a", 1))


def test_one_of_another_class_is_never_equal() -> None:
    place: object = Place("a", 1)
    identity: object = BatchIdentity(0, 1, 2)
    assert place != RealPlace("a", 1)
    assert identity != WindowBatch(0, 1, 2)


def test_it_has_no_other_attributes() -> None:
    assert not hasattr(Place("a"), "__dict__")
