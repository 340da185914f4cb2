"""A client's own connection to its broker: the client's requests are forwarded in order, and in between one borrower
(``produce_connections.py``) has it alone, to send a batch. Sans-IO.

It is lent when all requests that were sent before have been answered; from the moment that the borrower wants it until
it is given back, the client's own requests wait (rule R3). When the client goes, the connection stays as long as its
borrower needs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...reactor import Buffer, Reactor
from ..bridge.base import Chunks
from ..connection.shell import ConnectionShell
from ..session.pipe import Answered, Pipe
from ..versions import ApiKey

_Request = tuple[int, int, Chunks, Answered | None]


def _nobody_to_tell(_reason: str) -> None:
    """It has ended before."""


class Borrower(Protocol):
    """Who wants the connection alone from time to time."""

    @property
    def has_work(self) -> bool:
        """Is there something to send though the client has gone?"""
        ...

    def lent(self) -> None:
        """It has the connection: it sends one request, or gives the connection back."""
        ...

    def client_left(self) -> None: ...

    def ended(self, reason: str) -> None:
        """The connection is over, for whatever reason."""
        ...


class ClientConnection:
    """The connection of one client."""

    def __init__(self, reactor: Reactor) -> None:
        self.broken: Callable[[str], None] = _nobody_to_tell
        """Called with the reason when the broker's side has ended, unless the client had gone before."""
        self.is_lent = False
        self.is_leaving = False
        """The client has gone."""
        self.borrower: Borrower | None = None
        """None: nobody wants it any more."""
        self.pipe = Pipe(reactor, self._lost)
        """The endpoint towards the broker."""
        self.pipe.answers_came = self._answers_came
        self._is_wanted = False
        self._behind: deque[_Request] = deque()
        self._is_last_silent = False
        self._wants_hold = False
        self._is_fenced = False
        self._may_send: Callable[[], bool]
        self._is_barrier_out = False

    # ------------------------------------------------------------------ for the client
    @property
    def is_closed(self) -> bool:
        """Is it over?"""
        return self.pipe.is_closed

    @property
    def backlog_bytes(self) -> int:
        """Bytes of the client's requests that the broker does not take (``Pipe.backlog_bytes``)."""
        return self.pipe.backlog_bytes

    def share(self, client: ConnectionShell) -> None:
        """See ``Pipe.share``."""
        self.pipe.share(client)

    def request(self, api_key: int, api_version: int, body: Chunks, answered: Answered | None) -> None:
        """Send a request on, or keep it until the connection is the client's again."""
        if not self._is_wanted and not self.is_lent:
            self._pass_on(api_key, api_version, body, answered)
            return
        self._behind.append((api_key, api_version, body, answered))
        if answered is None:
            self.pipe.count_waiting(sum(map(len, body)))

    def hold(self, is_held: bool) -> None:
        """See ``Pipe.hold``; but what the borrower waits for is read."""
        self._wants_hold = is_held
        self._read_or_not()

    def close(self) -> None:
        """The client has gone. The connection stays as long as its borrower has it, or has work."""
        if self.is_closed:
            return
        if not self.is_leaving:
            self.is_leaving = True
            self._read_or_not()  # else what has to be answered before it can end never would be
            if self.borrower is not None:
                self.borrower.client_left()
        self._leave_if_done()

    # ------------------------------------------------------------------ for the borrower
    def borrow(self) -> None:
        """From now on requests of the client wait. It is lent once everything before them has been answered, perhaps at
        once."""
        self._is_wanted = True
        self._lend()

    def send_alone(self, chunks: tuple[Buffer, ...], answered: Answered) -> None:
        """Send one whole request; its answer comes with its header."""
        assert self.is_lent
        self.pipe.send_whole(chunks, answered)

    def fence(self, may_send: Callable[[], bool]) -> None:
        """Rule R4, for what is sent while it is lent: the client's own requests need no lease."""
        self._may_send = may_send
        if not self._is_fenced:
            self._is_fenced = True
            self.pipe.fence(lambda: not self.is_lent or self._may_send())

    def give_back(self) -> None:
        """The client's requests resume: what has waited leaves."""
        if self.is_lent:
            self.is_lent = False
            self._go_on()

    def reset(self, reason: str) -> None:
        """Drop the connection, and the client with it: it comes again, and shows the broker again who it is."""
        self.borrower = None  # who asks for this knows
        if not self.is_closed:
            self.pipe.reset(reason)

    # ------------------------------------------------------------------ inside
    def _pass_on(self, api_key: int, api_version: int, body: Chunks, answered: Answered | None) -> None:
        self._is_last_silent = answered is None
        self.pipe.request(api_key, api_version, body, answered)

    def _go_on(self) -> None:
        self._read_or_not()
        behind, self._behind = self._behind, deque()
        for api_key, api_version, body, answered in behind:
            if answered is None:
                self.pipe.count_waiting(-sum(map(len, body)))
            if answered is None or not self.is_leaving:
                self._pass_on(api_key, api_version, body, answered)
        self._lend()
        self._leave_if_done()

    def _read_or_not(self) -> None:
        self.pipe.hold(self._wants_hold and not self.is_lent and not self.is_leaving)

    def _answers_came(self) -> None:
        if self.is_lent or self.is_leaving:
            self._read_or_not()  # also if a large answer came right before
        self._lend()
        self._leave_if_done()

    def _lost(self, reason: str) -> None:
        broken = self.broken
        self._forget()
        broken(reason)
        self._tell_ended(reason)

    def _forget(self) -> None:
        self.is_lent = self._is_wanted = False
        self._behind.clear()
        self.broken = _nobody_to_tell  # or it and its client would refer to each other

    def _tell_ended(self, reason: str) -> None:
        borrower, self.borrower = self.borrower, None  # or the two would refer to each other
        if borrower is not None:
            borrower.ended(reason)

    def _lend(self) -> None:
        if not self._is_wanted or self.is_lent or self.is_closed or not self.pipe.is_quiet or self.borrower is None:
            return
        if self._is_last_silent:  # it may still lie in the broker
            self._ask_behind()
            return
        self._is_wanted = False
        self.is_lent = True
        self._read_or_not()
        self.borrower.lent()

    def _leave_if_done(self) -> None:
        if not self.is_leaving or self.is_lent or self.is_closed or self._is_barrier_out:
            return
        if self.borrower is not None and self.borrower.has_work:
            return
        if self._behind:  # the borrower that wanted it alone wants it no more
            self._is_wanted = False
            self._go_on()
        elif self._is_fenced and self._is_last_silent:  # closing such a connection drops what the broker has not read
            self._ask_behind()
        else:
            self._forget()
            self.pipe.close()
            self._tell_ended("the client has gone")

    def _ask_behind(self) -> None:
        """Send an ApiVersions: its answer shows that the broker has worked through the requests with acks=0 before
        it."""
        self._is_last_silent = False
        self._is_barrier_out = True

        def answered(_body: memoryview) -> None:
            self._is_barrier_out = False

        self.pipe.request(ApiKey.API_VERSIONS, 0, [b""], answered)
