"""Describes what is wrong with a configuration: a sentence with the place, which is an option, a variable, or file,
line and name. Shows no value that may be a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from .model import ENVIRONMENT_PREFIX, Configuration
from .suggestions import meant

Place = tuple[str | int, ...]
"""Where a setting stands: names, and numbers in lists."""

JOURNAL_PATH: Place = ("journal", "path")
"""The journal may also be given as a path alone, without a section."""
_SHOWN_MAX = 60
_UPSTREAM_MISSING = (
    f": a broker of the cluster, HOST:PORT (--upstream, {ENVIRONMENT_PREFIX}UPSTREAM__BOOTSTRAP, or upstream.bootstrap "
    "in a file)"
)
_PHRASES = (
    ("Input should be greater than or equal to ", "expected at least "),
    ("Input should be less than or equal to ", "expected at most "),
    ("Input should be a valid list", "expected a list: a line that begins with - for each, or [ ] around it"),
    ("Input should be ", "expected "),
    (", unable to parse string as an integer", ""),
    (", unable to parse string as a number", ""),
)
_SECRET = re.compile(r"password|url|file")


@dataclass(slots=True)
class File:
    """A configuration file: its content, and the line of each setting."""

    name: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def line_of(self, place: Place) -> int | None:
        """The line of a setting, or of the section that it would be in."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where settings come from. ``given``: options of the command line by the places that they set."""

    file: File
    environment: Mapping[str, Any]
    given: Mapping[Place, str]

    def sentence(self, place: Place, message: str, *, is_missing: bool = False) -> tuple[int, str]:
        """Return the line of the file (0 for what is not in it), and a sentence with the place."""
        option = next((text for start, text in self.given.items() if place[: len(start)] == start), None)
        if option is not None:
            return 0, f"{option}: {message}"
        place = self._as_written(place)
        known = _variable_of(self.environment, place)
        if known is not None and not is_missing:
            rest = dotted(place[known:])
            return 0, f"{_variable(place[:known])}: {rest}{': ' if rest else ''}{message}"
        line = self.file.line_of(place)
        where = f"{self.file.name}:{line}: " if line is not None else f"{self.file.name}: " if self.file.name else ""
        return line or 0, f"{where}{dotted(place)}: {message}"

    def _as_written(self, place: Place) -> Place:
        """Return the place as the user wrote it: ``journal`` for ``journal.path`` where the path is given alone."""
        if place != JOURNAL_PATH or _variable_of(self.environment, place) == len(place):
            return place
        section = self.environment.get("journal") or self.file.data.get("journal")
        return place if isinstance(section, dict) else place[:1]

    def sentences_of(self, error: ErrorDetails) -> list[tuple[int, str]]:
        """The same for an error of pydantic, whose message may have several problems, one a line."""
        place, is_missing = error["loc"], error["type"] == "missing"
        if error["type"] == "extra_forbidden" and (known := _variable_of(self.environment, place)) == len(place):
            return [(0, f"{_variable(place[:known])}: unknown variable{_variable_meant(place)}")]
        return [self.sentence(place, one, is_missing=is_missing) for one in message_of(error).split("\n")]


def _variable(place: Place) -> str:
    """Return the whole name of the variable that sets what is at a place."""
    return f"{ENVIRONMENT_PREFIX}{'__'.join(map(str, place)).upper()}"


def _variable_meant(place: Place) -> str:
    return meant(_variable(place), [_variable((*place[:-1], name)) for name in _siblings(place)])


def dotted(place: Place) -> str:
    """Return a place as people write it: ``listeners[0].tls.cert_file``."""
    text = ""
    for part in place:
        name = part if isinstance(part, str) and part.isprintable() else repr(part)
        text += f"[{part}]" if isinstance(part, int) else f".{name}" if text else name
    return text


def message_of(error: ErrorDetails) -> str:
    """Return what is wrong, without the place."""
    place, kind = error["loc"], error["type"]
    if kind == "extra_forbidden":
        return f"unknown key{meant(str(place[-1]), _siblings(place))}"
    if kind == "missing":
        return "is missing" + (_UPSTREAM_MISSING if place[0] == "upstream" else "")
    if kind == "model_type":
        return f"expected a section with names: {', '.join(_siblings((*place, '')))}"
    value = error.get("input")
    message = "expected HOST:PORT" if kind == "string_type" and place[-1] == "bind" else _expected(error)
    if kind == "float_parsing" and str(place[-1]).endswith("_seconds"):
        message += " of seconds, without a unit"
    is_leaf = isinstance(value, str | int | float) and (kind == "string_type" or not kind.endswith("_type"))
    shown = is_leaf and kind != "value_error" and not _SECRET.search(str(place[-1])) and len(repr(value)) <= _SHOWN_MAX
    return message + (f", not {value!r}" if shown else "")


def _expected(error: ErrorDetails) -> str:
    """Return pydantic's message as a person would say it."""
    message: str = error["msg"].removeprefix("Value error, ")
    if error["type"] == "literal_error":
        return message.replace("Input should be ", "expected ").replace("'", "")
    for theirs, ours in _PHRASES:
        message = message.replace(theirs, ours)
    return message if message[1:2].isupper() else message[:1].lower() + message[1:]


def _variable_of(environment: Any, place: Place) -> int | None:
    """Return how many parts of the place are in the name of the variable that sets it; None if no variable does."""
    data = environment
    for index, part in enumerate(place):
        if not isinstance(data, dict):
            return index  # a text for a whole list
        if part not in data:
            return None
        data = data[part]
    return None if isinstance(data, dict) else len(place)


def _siblings(place: Place) -> list[str]:
    """Return the keys that may be in the same section."""
    model: Any = Configuration
    for part in place[:-1]:
        if isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields)


def keys_of(annotation: Any) -> list[str]:
    """Return the keys of a section; none of what is no section."""
    model = _model_in(annotation)
    return [] if model is None else list(model.model_fields)


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, getattr(annotation, "__args__", ()))), None)
