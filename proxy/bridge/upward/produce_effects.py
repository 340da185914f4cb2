"""What ``RaisedProduce`` asks its shell to do: frozen values. They are done in their order; what the calls that follow
return may be done in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....codecs.steps import Steps
from ....reactor import Buffer
from ....values import value


@value(frozen=True, slots=True)
class RunSteps:
    """Run these steps, from their start if they were broken off, and call ``worked`` with ``number`` and what they
    return. They raise nothing."""

    number: int
    start: Callable[[], Steps[Any]]


@value(frozen=True, slots=True)
class SendProduce:
    """Send a Produce request to a broker, over the connection of this client alone, which is opened if there is none.
    Then call ``answered`` with ``number`` and the body of the answer; or ``lost`` once the connection has ended, or
    could not be opened."""

    number: int
    broker: int
    api_version: int
    body: tuple[Buffer, ...]


@value(frozen=True, slots=True)
class AskProducerId:
    """Send InitProducerId to a broker over the same connection, with the client's rights. Then call ``answered_id``
    with the body of the answer, or ``lost``."""

    broker: int
    api_version: int
    body: bytes


@value(frozen=True, slots=True)
class AskLeaders:
    """Ask any broker who leads the partitions of these topics. Then call ``learned``, or ``not_learned``. ``are_ids``:
    of topics, in hexadecimal digits, and the answer names them so."""

    topics: tuple[str, ...]
    are_ids: bool = False


@value(frozen=True, slots=True)
class DisconnectBroker:
    """Close the connection to a broker, if there is one: what is out on it is not waited for. ``lost`` is not to be
    called."""

    broker: int


@value(frozen=True, slots=True)
class AnswerClient:
    """The body of the answer to the request that was begun."""

    body: bytes


@value(frozen=True, slots=True)
class CloseClient:
    """End the client's connection: the request can not be read, or it wants no answer and has failed. Of one that has
    gone nothing more is to be begun."""

    reason: str


Effect = RunSteps | SendProduce | AskProducerId | AskLeaders | DisconnectBroker | AnswerClient | CloseClient
