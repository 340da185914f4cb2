"""The handler of a connection, which its shell calls: it speaks what the client speaks. Sans-IO.

The shell (``shell.py``) moves bytes, says when, and ends; a handler knows what they mean. There are five: the proxy
acts for the client (``session/``), or only for what it produces (``native/engine_session.py``), the client's brokers
give it idempotence themselves (``native/session.py``), it speaks versions that they lack (``native/raising.py``), or it
authenticates at the broker first (``pass_through/``). A handler may be replaced while the connection is open; and one
that translates may stand in front of another, hand on what it is handed, and wrap the wire for the way back."""

# ruff: noqa: B027 - what is empty here is right for a handler that keeps nothing

from __future__ import annotations

from abc import ABC, abstractmethod

NAMELESS = "client"
"""The name of a client that has sent no client id."""


class Handler(ABC):
    """Of one connection. What is here is right for a handler that keeps nothing; ``received`` is the only thing that
    each has to say for itself. ``name``: the client id. ``software``: the client's library and its version, as it
    states them itself; "" if it does not. ``is_closed``: nothing is done for the client any more. ``is_idempotent``:
    the client has asked the proxy for a producer id, or used one of its. ``has_produced``: a produce of it was
    answered."""

    name = NAMELESS
    software = ""
    is_closed = False
    is_idempotent = False
    has_produced = False

    # ------------------------------------------------------------------ asked by the shell
    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet, also those that wait to be taken."""
        return 0

    @property
    def has_produce_in_flight(self) -> bool:
        """Is something under way that a drain waits for?"""
        return False

    @property
    def has_ready_answers(self) -> bool:
        """Are there answers of the broker that wait for one of the proxy?"""
        return False

    @property
    def has_enough(self) -> bool:
        """Is nothing more to be read now, for another reason than the client's own slowness?"""
        return False

    @property
    def is_owed_nothing(self) -> bool:
        """Is every request answered, as far as the client gets its answers after a FIN, or after garbage?"""
        return True

    @property
    def answers_after_fin(self) -> bool:
        """Is what a client has sent before its FIN still served and answered?"""
        return False

    # ------------------------------------------------------------------ called by the shell
    def begin(self) -> None:
        """The connection is open."""

    @abstractmethod
    def received(self, data: bytes) -> bool:
        """Take bytes of the client. True: look whether more is to be read of it. Raises WireError if what comes now
        cannot be read."""

    def go_on(self) -> None:
        """Take what waits, as far as it may be taken now."""

    def hold_upstream(self, is_held: bool) -> None:
        """Read nothing more of what a broker answers to the client, or resume."""

    def stop(self) -> None:
        """Nothing more comes of the client: of what has not arrived completely there will be no more."""

    def flush(self) -> None:
        """Hand over to the wire what is ready."""

    def forsake(self) -> None:
        """Take nothing more, and answer nothing. The connection is still open, and ends in a later step."""
        self.is_closed = True

    def end(self, *, is_lost: bool) -> None:
        """The connection has ended. ``is_lost``: the client has ended it."""
        self.is_closed = True
