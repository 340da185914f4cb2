"""Puts the settings together: command line over environment over file over defaults, and all problems at once, each
with its place. Reads the file and the environment; decides nothing about what a setting means."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from .addresses import Advertised, join_host_and_port
from .config import ConfigError, Settings
from .model import ENVIRONMENT_PREFIX, Configuration

Place = tuple[str | int, ...]

OPTIONS: Mapping[str, Place] = {
    "upstream": ("upstream", "bootstrap"),
    "redis": ("redis", "url"),
    "data_dir": ("data_directory",),
    "cluster": ("cluster",),
    "dropped_headers": ("producers", "dropped_headers"),
    "producer_expiry_seconds": ("producers", "expiry_seconds"),
    "retry_horizon_seconds": ("producers", "retry_horizon_seconds"),
    "merge_producers": ("producers", "merge"),
    "journal": ("journal",),
    "admin": ("admin", "bind"),
    "log_level": ("log", "level"),
    "log_format": ("log", "format"),
}
"""Options of the command line that are nothing but a setting. ``--listen`` and ``--advertise`` make a listener."""

_FOREIGN = re.compile(
    r"IDEMPROXY_(TEST_|CHAOS_|CACHE_DIR$|MAVEN_REPOSITORY$|CONFIG$)|.*_(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_\w+)?)$"
)
"""Ours for other things than settings, and what Kubernetes puts there for a service of this name."""
_NAMED_IN_YAML = re.compile(r"(alias|tag|handle) ['\"].*", re.DOTALL)
"""A password that begins with * or ! and stands there without quotes is one of these to YAML."""
_SHOWN_MAX = 60
_SECRET = re.compile(r"password|url|file")


@dataclass(slots=True)
class _File:
    """A configuration file: what it says and where."""

    name: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def line_of(self, place: Place) -> int | None:
        """The line of a setting, or of what it would stand in."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


def load(path: Path | None, options: Mapping[str, Any]) -> Settings:
    """Return the settings. ``options``: values of the command line by argparse's names, None where not given.

    Raises ConfigError with a line per problem.
    """
    configuration = load_configuration(path, options)
    try:
        return configuration.to_settings()
    except (OSError, ValueError) as error:
        raise ConfigError(f"a file of a password cannot be read: {error}") from None


def load_configuration(path: Path | None, options: Mapping[str, Any]) -> Configuration:
    """Return the checked configuration, as ``load`` does it."""
    file = _File() if path is None else _read(path)
    problems = [*file.problems, *_unknown_variables()]
    environment: dict[str, Any] = {}
    given = {place: f"--{name.replace('_', '-')}" for name, place in OPTIONS.items() if options.get(name) is not None}
    initial: dict[str, Any] = {}
    for name, place in OPTIONS.items():
        if options.get(name) is not None:
            _put(initial, place, options[name])

    class Loaded(Configuration):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            environment.update(env_settings())
            if isinstance(environment.get("listeners"), dict):
                name = f"{ENVIRONMENT_PREFIX}LISTENERS"
                problems.append(f'{name}__...: listeners come as a whole, as in {name}=[{{"bind": "0.0.0.0:9092"}}]')
                del environment["listeners"]
            listeners = _listener_of(options)
            if listeners is not None and ("listeners" in environment or "listeners" in file.data):
                option = "--advertise" if options.get("listen") is None else "--listen"
                problems.append(f"{option}: the listeners are configured already, change them there")
            elif listeners is not None:
                initial["listeners"] = [listeners]
                given[("listeners",)] = "--listen" if options.get("listen") is not None else "--advertise"
            return (
                InitSettingsSource(settings_cls, initial),
                InitSettingsSource(settings_cls, environment),
                InitSettingsSource(settings_cls, file.data),
            )

    try:
        loaded = Loaded()  # type: ignore[call-arg]
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        told = [_told(one, file, environment, given) for one in details]
        problems += [sentence for _line, sentence in sorted(told, key=lambda one: one[0])]
    if problems:
        raise ConfigError(*problems)
    return loaded


def schema() -> dict[str, Any]:
    """Return the JSON schema of the file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Configuration.model_json_schema()}


# ---------------------------------------------------------------------- sources
def _read(path: Path) -> _File:
    file = _File(str(path))
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no UTF-8 text") from None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return file
        _walk(node, (), file, set())
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        what = _NAMED_IN_YAML.sub(r"\1", str(error.problem))
        raise ConfigError(f"{path}:{line}: this is no YAML: {what}") from None
    except RecursionError:
        raise ConfigError(f"{path}: this is no YAML of ours: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: this is no YAML: {error}") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"{path}:{node.start_mark.line + 1}: sections with names are wanted at the top")
    file.data = data
    return file


def _walk(node: yaml.Node, place: Place, file: _File, above: set[int]) -> None:
    """Write down the line of everything, and complain about what is said twice."""
    file.lines.setdefault(place, node.start_mark.line + 1)
    if id(node) in above:
        raise yaml.MarkedYAMLError(problem="it contains itself", problem_mark=node.start_mark)
    inside = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*place, index), file, inside)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            below = (*place, name)
            line = key.start_mark.line + 1
            if below in file.lines and name != "<<":
                earlier = file.lines[below]
                file.problems.append(f"{file.name}:{line}: {dotted(below)}: is there already in line {earlier}")
            file.lines[below] = line
            _walk(value, below, file, inside)


def _put(data: dict[str, Any], place: Place, value: Any) -> None:
    for name in place[:-1]:
        data = data.setdefault(str(name), {})
    data[str(place[-1])] = value


def _listener_of(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The one listener of ``--listen`` and ``--advertise``. It never stands for one that has TLS in the file."""
    listen, host = options.get("listen"), options.get("advertise")
    if listen is None and host is None:
        return None
    found: dict[str, Any] = {} if listen is None else {"bind": listen}
    if host is not None:
        found["advertised"] = join_host_and_port(host.strip("[]"), Advertised().port)
    return found


def _unknown_variables() -> Iterator[str]:
    for name in sorted(os.environ):
        upper = name.upper()
        if upper.startswith(ENVIRONMENT_PREFIX) and not _FOREIGN.match(upper):
            first = upper.removeprefix(ENVIRONMENT_PREFIX).split("__")[0].lower()
            if first not in Configuration.model_fields:
                yield f"{name}: unknown variable{_meant(first, list(Configuration.model_fields))}"


# ---------------------------------------------------------------------- problems
def dotted(place: Place) -> str:
    """Return a place as people write it: ``listeners[0].tls.cert_file``."""
    text = ""
    for part in place:
        name = part if isinstance(part, str) and part.isprintable() else repr(part)
        text += f"[{part}]" if isinstance(part, int) else f".{name}" if text else name
    return text


def _told(
    error: ErrorDetails, file: _File, environment: Mapping[str, Any], given: Mapping[Place, str]
) -> tuple[int, str]:
    """Return the line of the file, 0 for what is not in it, and a sentence with the place."""
    place, kind = error["loc"], error["type"]
    message = _message(error)
    option = next((text for start, text in given.items() if place[: len(start)] == start), None)
    if option is not None:
        return 0, f"{option}: {message}"
    known = _variable_of(environment, place)
    if known is not None and kind != "missing":
        rest = dotted(place[known:])
        variable = f"{ENVIRONMENT_PREFIX}{'__'.join(map(str, place[:known])).upper()}"
        return 0, f"{variable}: {rest}{': ' if rest else ''}{message}"
    line = file.line_of(place)
    where = f"{file.name}:{line}: " if line is not None else f"{file.name}: " if file.name else ""
    return line or 0, f"{where}{dotted(place)}: {message}"


def _message(error: ErrorDetails) -> str:
    place, kind = error["loc"], error["type"]
    message: str = error["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"unknown key{_meant(str(place[-1]), _siblings(place))}"
    if kind == "missing":
        hint = " (a broker of the cluster, HOST:PORT: --upstream, or upstream.bootstrap in a file)"
        return "is missing" + (hint if place[0] == "upstream" else "")
    value = error.get("input")
    if kind == "model_type":
        return "a section is wanted: names with values"
    is_leaf = isinstance(value, str | int | float) and (kind == "string_type" or not kind.endswith("_type"))
    shown = is_leaf and kind != "value_error" and not _SECRET.search(str(place[-1])) and len(repr(value)) <= _SHOWN_MAX
    return message[:1].lower() + message[1:] + (f", not {value!r}" if shown else "")


def _variable_of(environment: Any, place: Place) -> int | None:
    """How many parts of the place the variable's name has that says this; None: no variable does."""
    data = environment
    for index, part in enumerate(place):
        if not isinstance(data, dict):
            return index  # a text for a whole list
        if part not in data:
            return None
        data = data[part]
    return None if isinstance(data, dict) else len(place)


def _siblings(place: Place) -> list[str]:
    """The keys that may stand where this one stands."""
    model: Any = Configuration
    for part in place[:-1]:
        if isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields)


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, getattr(annotation, "__args__", ()))), None)


def _meant(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
