"""What a flow can ask of the outside. Typed requests only: nothing here performs them.

A flow is an ``async def`` that awaits nothing but these. The runner (``runner.py``) passes each effect to a handler and
sends the result back in, so the same flow runs on sockets and in the simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any, Generic, TypeVar

from ...codecs.batch_marker import Identity
from ...codecs.steps import Steps
from ...reactor import Buffer
from ...state.store import NameCheck, StoreAway, SwapResult
from ...values import value
from ..admission.long_work import Done
from ..bridge.asks import Question
from .form import Form
from .outcome import Outcome

T = TypeVar("T")


class Effect(Generic[T]):
    """Something that is done outside of a flow; awaiting it gives the result."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect[Any], Any, T]:
        result: T = yield self
        return result


class Wakeup:
    """Wakes a flow that pauses on it; a call while no flow pauses is remembered."""

    __slots__ = ("listener", "rung")

    def __init__(self) -> None:
        self.rung = False
        self.listener: Callable[[], None] | None = None

    def ring(self) -> None:
        """Wake the flow that pauses on this, or the next one that will."""
        if self.listener is None:
            self.rung = True
        else:
            self.listener()


@value(frozen=True, slots=True)
class Unanswered:
    """A question without an answer: nothing is known."""

    reason: str


@value(frozen=True, slots=True)
class Read(Effect[bytes | None | StoreAway]):
    """The stored value of a key, None when absent."""

    key: bytes


@value(frozen=True, slots=True)
class Swap(Effect[SwapResult]):
    """Write ``value`` if the stored version is ``expected_version`` (0: absent), and ``name`` holds (rule R22).
    ``ttl_ms`` 0: no expiry; ``store.KEEP_TTL``: it expires when it would have."""

    key: bytes
    expected_version: int
    value: bytes
    ttl_ms: int
    name: NameCheck | None = None


@value(frozen=True, slots=True)
class NamedEntries(Effect[list[bytes] | StoreAway]):
    """The keys of the entries that producers with a name have on a partition, ``count_max`` at most. ``index``: the key
    of that partition's list."""

    index: bytes
    count_max: int


@value(frozen=True, slots=True)
class ExpireAll(Effect[bool | StoreAway]):
    """Let all entries in an index expire: ``Store.expire_all``."""

    index: bytes
    ttl_ms: int
    now_ms: int
    renews: bool


@value(frozen=True, slots=True)
class ListName(Effect[bool | StoreAway]):
    """Add a name to those of a principal: ``Store.list_name``."""

    names: bytes
    member: bytes
    ttl_ms: int
    now_ms: int
    count_max: int | None


@value(frozen=True, slots=True)
class MemberAlive(Effect[bool | StoreAway]):
    """Does the proxy instance still hold its lease (rule R1)?"""

    instance_id: bytes


@value(frozen=True, slots=True)
class Append(Effect[Outcome]):
    """Append one message set to a partition, at most once.

    ``may_send``: asked in the step of the send itself, for the deadline and for clients that have gone (rules R4, R17);
    a text is the reason why not. ``timeout_ms``: the client's. ``sender``: takes turns with others that wait for the
    same partition.
    """

    broker_id: int
    topic: str
    partition: int
    message_set: Buffer
    timeout_ms: int
    may_send: Callable[[], str | None]
    identities: tuple[Identity, ...] = ()
    sender: str = ""
    form: Form = Form.WRAPPER_V1


@value(frozen=True, slots=True)
class Ask(Effect[T | Unanswered]):
    """A question to one broker, over a connection of the proxy's own (``broker.Broker.ask``)."""

    broker_id: int
    question: Question[T]


@value(frozen=True, slots=True)
class QuiescenceCheck(Effect[bool | Unanswered]):
    """Until a broker has passed the quiescence check for one second from now on (True). It ends without that after some
    seconds (``limits.QUIESCENCE_WAIT_SECONDS``): Unanswered if the broker cannot be asked, False if it answers too
    late. ``topic``, ``partition``: what it can be asked about."""

    broker_id: int
    topic: str
    partition: int


@value(frozen=True, slots=True)
class Leader(Effect[int | None]):
    """The broker that leads the partition now; None if none is known. ``refresh``: what is known is out of date."""

    topic: str
    partition: int
    refresh: bool = False


@value(frozen=True, slots=True)
class Replicas(Effect[Collection[int]]):
    """The brokers that have the partition, as last learned: each of them may be its leader, or believe that it is."""

    topic: str
    partition: int


@value(frozen=True, slots=True)
class Wait(Effect[None]):
    """Some time passes."""

    seconds: float


@value(frozen=True, slots=True)
class Pause(Effect[bool]):
    """Until the bell rings (True), or so many seconds have passed (False)."""

    bell: Wakeup
    seconds: float


@value(frozen=True, slots=True)
class Work(Effect[Done[T]]):
    """Do long work in steps, with turns for others: see ``long_work.py``."""

    start: Callable[[], Steps[T]]
    sender: str


@value(frozen=True, slots=True)
class Now(Effect[float]):
    """Seconds on the reactor's clock."""


async def in_steps(start: Callable[[], Steps[T]], sender: str, *, is_late: bool = False) -> T:
    """Return the result of the steps. If there is more than one, or ``is_late``, they are done by ``Work``, with turns
    for others. Raises what they raise. ``start`` begins them, perhaps twice."""
    if not is_late:
        steps = start()
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        steps.close()
        del steps
    return (await Work(start, sender)).result()
