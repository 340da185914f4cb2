"""The consequences of brokers that cannot be served: what is logged, and when the process ends because of them.

Takes what ``served.py`` found about each broker; ends nothing itself, ``server.py`` does. A start ends when no broker
can be served, or when the configured addresses belong to several clusters; a proxy that serves others logs it once for
each broker and continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..broker.broker import BOOTSTRAP_ID, Broker
from ..broker.served import Kind
from ..events import OperatorMessage, Report

_ONE_CLUSTER = "Name addresses of one cluster only (upstream.bootstrap)"


class UnservedBrokers:
    """What one process does about brokers that cannot be served."""

    def __init__(self, brokers: Callable[[], Sequence[Broker]], report: Report, end: Callable[[str], None]) -> None:
        """``brokers``: all known ones, before that the configured addresses. ``end`` gets the sentence that says why
        the process ends with an error."""
        self._brokers = brokers
        self._report = report
        self._end = end
        self._is_serving = False

    def refused(self, broker: Broker) -> None:
        """A broker cannot be served, for another reason than before."""
        assert broker.refusal is not None
        kind = broker.refusal.kind
        if kind is Kind.OTHER_CLUSTER and broker.id == BOOTSTRAP_ID and not self._is_serving:
            # Else which cluster is served would depend on which of the addresses answers first.
            self._end(f"{broker.why_refused}, and another address there answered first. {_ONE_CLUSTER}")
        elif self._is_serving or kind in (Kind.UNSURE, Kind.OTHER_CLUSTER):
            self._tell(broker)
        elif all(one.refusal is not None for one in self._brokers()):
            self._end_start()

    def waited(self) -> None:
        """The start has waited long enough for brokers that do not answer."""
        if not any(one.is_ready for one in self._brokers()):
            self._end_start()

    def serving(self) -> None:
        """Clients are served from now on."""
        if not self._is_serving:
            self._is_serving = True
            for broker in self._refused():
                self._tell(broker)

    # ------------------------------------------------------------------ inside
    def _refused(self) -> list[Broker]:
        return [one for one in self._brokers() if one.refusal is not None and one.refusal.kind is Kind.UNSERVED]

    def _end_start(self) -> None:
        if found := self._refused():
            self._end(_sentence(found))

    def _tell(self, broker: Broker) -> None:
        """Log it under a configured address only if that is not a known broker's: that one is logged by itself."""
        if broker.id != BOOTSTRAP_ID or all(one is broker or one.address != broker.address for one in self._brokers()):
            self._report(OperatorMessage("error", broker.why_refused))


def _sentence(brokers: Iterable[Broker]) -> str:
    """Return one sentence; brokers of the same kind are named together."""
    names: dict[str, list[str]] = {}
    for broker in brokers:
        assert broker.refusal is not None
        names.setdefault(broker.refusal.reason, []).append(broker.name)
    return "; ".join(f"{', '.join(found)} cannot be served: {reason}" for reason, found in names.items())
