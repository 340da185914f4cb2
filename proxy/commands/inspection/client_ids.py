"""Client ids of the producers that ``inspect`` shows. They are not stored: running proxies are asked for them at their
admin ports. A client id is text that its client chose."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ... import limits
from .admin_ports import Address, AdminAnswer, UselessAnswer, ask_ports

_NOBODY: Final = (
    "client ids: no admin port was asked; --admin HOST:PORT names that of a running proxy, and so does admin.bind in "
    "the configuration (--config FILE)"
)


@dataclass(frozen=True, slots=True)
class ClientIds:
    """What all admin ports reported. ``producers``: how many were asked about. ``is_cut``: more are shown than may be
    asked about."""

    reported: Sequence[AdminAnswer[Mapping[int, str]]] = ()
    producers: int = 0
    is_cut: bool = False

    def of(self, producer_id: int) -> str | None:
        """Return the client id of a producer; None: no port reported it."""
        each = (one.content for one in self.reported if one.content is not None)
        return next((known[producer_id] for known in each if producer_id in known), None)

    @property
    def is_anybody_silent(self) -> bool:
        """Did one that was asked tell nothing?"""
        return any(one.why_not for one in self.reported)

    def line(self) -> str:
        """Return one line: which ports reported, and why others did not."""
        if not self.reported:
            return _NOBODY
        text = "client ids: " + "; ".join(map(self._of_one, self.reported))
        if self.is_cut:
            text += f"; asked for the first {limits.CLIENT_IDS_ASKED_MAX} lines only: --limit and --page show others"
        return text

    def _of_one(self, one: AdminAnswer[Mapping[int, str]]) -> str:
        if one.content is None:
            return f"{one.shown_address} did not report: {one.why_not}"
        others = "" if len(one.content) == self.producers else " (the others are not in its memory)"
        return f"{one.shown_address} reported {len(one.content)} of {self.producers}{others}"


def ask(addresses: Sequence[Address], producer_ids: Collection[int], *, is_cut: bool = False) -> ClientIds:
    """Ask every admin port for these producers."""
    wanted = ",".join(map(str, sorted(producer_ids)))

    def read(body: bytes) -> Mapping[int, str]:
        return {key: text for key, text in client_ids_in(body).items() if key in producer_ids}

    target = f"/api/v1/client_ids?producer_ids={wanted}"
    return ClientIds(ask_ports(addresses, target, limits.ADMIN_ANSWER_BYTES_MAX, read), len(producer_ids), is_cut)


def client_ids_in(body: bytes) -> dict[int, str]:
    """Return the client ids in an answer, by producer id. Raises UselessAnswer where it has none."""
    try:
        reported = json.loads(body)["client_ids"]
        if all(isinstance(text, str) for text in reported.values()):
            return {int(key): text for key, text in reported.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise UselessAnswer("its answer is not that of an admin port")
