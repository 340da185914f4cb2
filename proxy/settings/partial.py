"""What can be checked in a configuration that has mistakes elsewhere: sections that are right in themselves, or would
be without a misspelt key. Finds contradictions among them; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .config import DEFAULT_DATA_DIRECTORY
from .fields import Section, from_text
from .model import AdminSection, ListenerSection, UpstreamSection, admin_problem, listener_problems
from .tls import TlsClient, TlsServer
from .tls_section import ClientTlsSection, ServerTlsSection, UpstreamTlsSection

Place = tuple[str | int, ...]
_Section = TypeVar("_Section", bound=Section)


@dataclass(frozen=True, slots=True)
class Partial:
    """Plain data of what is right: TLS by its place, and files; None: not given, or wrong."""

    tls: Mapping[Place, TlsServer | TlsClient]
    data_directory: Path | None
    journal: Path | None


class Written:
    """A configuration as it was written, and what is wrong with it."""

    def __init__(self, data: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> None:
        self._data = {**data, "listeners": from_text(data.get("listeners"))}
        self._unknown = {error["loc"] for error in errors if error["type"] == "extra_forbidden"}
        self._wrong = [(error["loc"], error["msg"]) for error in errors if error["type"] != "extra_forbidden"]

    def partial(self) -> Partial:
        """Return what is right. Reads files of passwords; raises OSError when one has just gone."""
        tls: dict[Place, TlsServer | TlsClient] = {}
        for place in self._listener_places():
            if (server := self._section(ServerTlsSection, (*place, "tls"))) is not None:
                tls[*place, "tls"] = server.to_settings()
        if (upstream := self._section(UpstreamTlsSection, ("upstream", "tls"))) is not None:
            tls["upstream", "tls"] = upstream.to_settings()
        if (redis := self._section(ClientTlsSection, ("redis", "tls"))) is not None:
            tls["redis", "tls"] = redis.to_settings()
        return Partial(tls, self._path(("data_directory",), DEFAULT_DATA_DIRECTORY), self._journal())

    def clashes(self) -> list[tuple[Place, str]]:
        """Return places and messages of contradictions between sections. Where a section has errors, pydantic does not
        check these; those that are among the errors already are left out."""
        listeners = self._listeners()
        upstream = self._section(UpstreamSection, ("upstream",))
        found: list[tuple[Place, str]] = [(("listeners",), one) for one in listener_problems(listeners, upstream)]
        admin = self._section(AdminSection, ("admin",))
        if admin is not None and (problem := admin_problem(admin, listeners)) is not None:
            found.append((("admin",), problem))
        return [one for one in found if not self._is_reported(*one)]

    def _is_reported(self, place: Place, message: str) -> bool:
        """Is this among the errors?"""
        return any(where == place and message in text for where, text in self._wrong)

    def _value(self, place: Place) -> Any:
        """Return what is written at a place; None if nothing."""
        found: Any = self._data
        for part in place:
            if isinstance(found, list) and isinstance(part, int):
                found = found[part]
            else:
                found = found.get(part) if isinstance(found, dict) else None
        return found

    def _section(self, model: type[_Section], place: Place) -> _Section | None:
        """Return the section at a place without its misspelt keys; None if there is none or something else is wrong
        with it."""
        found = self._value(place)
        if not isinstance(found, dict) or any(where[: len(place)] == place for where, _ in self._wrong):
            return None
        try:
            return model.model_validate(self._known(found, place))
        except ValidationError:
            return None  # it may be right once the misspelt key is corrected

    def _listener_places(self) -> list[Place]:
        """Where listeners are configured."""
        found = self._value(("listeners",))
        return [("listeners", number) for number in range(len(found))] if isinstance(found, list) else []

    def _listeners(self) -> list[ListenerSection]:
        """Return the listeners that are right; the default one if none are configured."""
        if self._value(("listeners",)) is None:
            return [ListenerSection()]
        return [one for place in self._listener_places() if (one := self._section(ListenerSection, place)) is not None]

    def _journal(self) -> Path | None:
        """Return the path of the journal, which may stand alone."""
        is_section = isinstance(self._value(("journal",)), dict)
        return self._path(("journal", "path") if is_section else ("journal",))

    def _path(self, place: Place, default: str | None = None) -> Path | None:
        """Return a path."""
        found = self._value(place)
        found = default if found is None else found
        return Path(found) if isinstance(found, str | Path) and found and "\0" not in str(found) else None

    def _known(self, value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            keys = [key for key in value if (*place, key) not in self._unknown]
            return {key: self._known(value[key], (*place, key)) for key in keys}
        if isinstance(value, list):
            return [self._known(one, (*place, number)) for number, one in enumerate(value)]
        return value
