"""Puts the settings together: command line over environment over file over defaults, and all problems at once, each
with its place. Reads the file and the environment; decides nothing about what a setting means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from .addresses import Advertised, join_host_and_port
from .config import DEFAULT_ADMIN_VARIABLE, DEFAULT_LISTEN_VARIABLE, ConfigError, Settings
from .model import ENVIRONMENT_PREFIX, Configuration
from .natively import without_effect, without_effect_by_proxy
from .partial import Written
from .problems import JOURNAL_PATH, File, Place, Sources, dotted, keys_of
from .suggestions import meant

OPTIONS: Mapping[str, Place] = {
    "upstream": ("upstream", "bootstrap"),
    "redis": ("redis", "url"),
    "data_directory": ("data_directory",),
    "cluster_name": ("cluster_name",),
    "dropped_headers": ("producers", "dropped_headers"),
    "producer_expiry_seconds": ("producers", "expiry_seconds"),
    "client_retry_seconds_max": ("producers", "client_retry_seconds_max"),
    "journal": JOURNAL_PATH,
    "workers": ("workers",),
    "admin_bind": ("admin", "bind"),
    "log_level": ("log", "level"),
    "log_format": ("log", "format"),
}
"""Options of the command line that are just a setting. ``--listen`` and ``--advertised-host`` together make a
listener."""

_FOREIGN = re.compile(
    r"IDEMPROXY_(DEFAULT_(LISTEN|ADMIN_BIND)$|TEST_|CHAOS_|CACHE_DIR$|MAVEN_REPOSITORY$|CONFIG$)"
    r"|.*_(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_\w+)?)$"
)
"""Variables of ours that are no settings, and those that Kubernetes sets for a service of this name."""
_NAMES_IN_YAML = re.compile(r"(alias|tag|handle) ['\"].*", re.DOTALL)
"""YAML takes an unquoted password that begins with * or ! for an alias or a tag: what follows is not shown."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What was read. ``configuration`` None: it has mistakes; then ``written`` has the sections that are right."""

    configuration: Configuration | None
    written: Written
    sources: Sources
    _unplaced: tuple[str, ...]
    _placed: tuple[tuple[int, str], ...]

    def problems(self, more: Iterable[tuple[Place, str]] = ()) -> list[str]:
        """Return all sentences, in the order of the file's lines, together with other problems: place and message."""
        placed = [*self._placed, *(self.sources.sentence(place, message) for place, message in more)]
        return [*self._unplaced, *(sentence for _line, sentence in sorted(placed, key=lambda one: one[0]))]


def load(path: Path | None, options: Mapping[str, Any]) -> Settings:
    """Return the settings. ``options``: values of the command line by argparse's names, None where not given.

    Raises ConfigError with a line per problem.
    """
    return settings_of(examine(path, options))


def settings_of(found: Examined) -> Settings:
    """Return plain data. Raises ConfigError for what is wrong, for settings that have no effect in the mode that
    ``upstream.idempotence`` says, and when a file of a password has just gone."""
    if found.configuration is None:
        raise ConfigError(*found.problems())
    try:
        settings = found.configuration.to_settings()
    except (OSError, ValueError) as error:
        raise ConfigError(f"a file of a password cannot be read: {error}") from None
    looks = {"native": without_effect, "proxy": without_effect_by_proxy}
    if (look := looks.get(settings.idempotence)) is not None and (off := look(settings)):
        raise ConfigError(*found.problems(off))
    return settings


def load_configuration(path: Path | None, options: Mapping[str, Any]) -> Configuration:
    """Return the checked configuration, as ``load`` does it."""
    found = examine(path, options)
    if found.configuration is None:
        raise ConfigError(*found.problems())
    return found.configuration


def examine(path: Path | None, options: Mapping[str, Any]) -> Examined:
    """Return what was read and all that is wrong with it. Raises ConfigError where the file is no YAML of ours."""
    file = File() if path is None else _read(path)
    unplaced = [*file.problems, *_unknown_variables(), *_journal_twice()]
    environment: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    given = {place: f"--{name.replace('_', '-')}" for name, place in OPTIONS.items() if options.get(name) is not None}
    initial: dict[str, Any] = {}
    for name, place in OPTIONS.items():
        if options.get(name) is not None:
            _put(initial, place, options[name])

    class Loaded(Configuration):
        @model_validator(mode="before")
        @classmethod
        def _keep(cls, data: dict[str, Any]) -> dict[str, Any]:
            merged.update(data)
            return data

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
            unplaced.extend(_listeners_apart(options, environment, file, initial, given))
            return (
                InitSettingsSource(settings_cls, initial),
                InitSettingsSource(settings_cls, _with_sections(environment)),
                InitSettingsSource(settings_cls, _with_sections(file.data)),
                InitSettingsSource(settings_cls, _defaults_of_image()),
            )

    loaded: Configuration | None = None
    errors: list[ErrorDetails] = []
    try:
        loaded = Loaded()  # type: ignore[call-arg]
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
    written, sources = Written(merged, errors), Sources(file, environment, given)
    placed = [sentence for error in errors for sentence in sources.sentences_of(error)]
    if errors:
        placed += [sources.sentence(place, message) for place, message in written.clashes()]
    return Examined(None if unplaced else loaded, written, sources, tuple(unplaced), tuple(placed))


def schema() -> dict[str, Any]:
    """Return the JSON schema of the file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Configuration.model_json_schema()}


# ---------------------------------------------------------------------- sources
def _read(path: Path) -> File:
    file = File(str(path))
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
        what = _NAMES_IN_YAML.sub(r"\1", str(error.problem))
        raise ConfigError(f"{path}:{line}: this is no YAML: {what}") from None
    except RecursionError:
        raise ConfigError(f"{path}: this is no YAML of ours: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: this is no YAML: {error}") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"{path}:{node.start_mark.line + 1}: expected sections with names at the top")
    file.data = data
    return file


def _walk(node: yaml.Node, place: Place, file: File, above: set[int]) -> None:
    """Note the line of every setting, and complain about those that are there twice."""
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


def _with_sections(data: dict[str, Any]) -> dict[str, Any]:
    """Turn a journal that is given as a path into a section: as a text it would replace the whole section of a source
    of lower precedence."""
    journal = data.get("journal")
    return {**data, "journal": {"path": journal}} if isinstance(journal, str) else data


def _listeners_apart(
    options: Mapping[str, Any],
    environment: dict[str, Any],
    file: File,
    initial: dict[str, Any],
    given: dict[Place, str],
) -> Iterator[str]:
    """Take the listeners as a whole from one source. Put the one of the command line, if it has one, into ``initial``
    and ``given``; yield what is wrong."""
    if isinstance(environment.get("listeners"), dict):
        name = f"{ENVIRONMENT_PREFIX}LISTENERS"
        del environment["listeners"]
        yield f'{name}__...: listeners come as a whole, as in {name}=[{{"bind": "0.0.0.0:9092"}}]'
    listeners = _listener_of(options)
    if listeners is None:
        return
    option = "--advertised-host" if options.get("listen") is None else "--listen"
    if "listeners" in environment or "listeners" in file.data:
        yield f"{option}: the listeners are configured already, change them there"
    else:
        initial["listeners"] = [listeners]
        given[("listeners",)] = option


def _listener_of(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the one listener of ``--listen`` and ``--advertised-host``; None: neither is given. The caller refuses it
    together with listeners of the file or the environment, so it never replaces one with TLS."""
    listen, host = options.get("listen"), options.get("advertised_host")
    if listen is None and host is None:
        return None
    bind = os.environ.get(DEFAULT_LISTEN_VARIABLE) if listen is None else listen
    found: dict[str, Any] = {"bind": bind} if bind else {}
    if host is not None:
        found["advertised"] = join_host_and_port(host.strip("[]"), Advertised().port)
    return found


def _defaults_of_image() -> dict[str, Any]:
    listen, admin = os.environ.get(DEFAULT_LISTEN_VARIABLE), os.environ.get(DEFAULT_ADMIN_VARIABLE)
    found: dict[str, Any] = {"listeners": [{"bind": listen}]} if listen else {}
    return found | {"admin": {"bind": admin}} if admin else found


def _journal_twice() -> Iterator[str]:
    """Yield a problem if ``IDEMPROXY_JOURNAL`` is set together with variables of the section, which it would hide."""
    alone = f"{ENVIRONMENT_PREFIX}JOURNAL"
    given = [name for name in sorted(os.environ) if os.environ[name]]
    below = [name for name in given if name.upper().startswith(f"{alone}__")]
    if below and any(name.upper() == alone for name in given):
        yield f"{alone}: the path is given next to {below[0]}: give it as {alone}__PATH"


def _unknown_variables() -> Iterator[str]:
    for name in sorted(os.environ):
        upper = name.upper()
        if upper.startswith(ENVIRONMENT_PREFIX) and not _FOREIGN.match(upper):
            section = upper.split("__")[0]
            known = [f"{ENVIRONMENT_PREFIX}{field.upper()}" for field in Configuration.model_fields]
            if section not in known:
                one_each = {key.replace("__", "_"): key for key in _keys_in_sections()}
                close = f"; did you mean {one_each[upper]}?" if upper in one_each else meant(section, known)
                yield f"{name}: unknown variable{close}"


def _keys_in_sections() -> Iterator[str]:
    """Yield the variables of keys that stand in a section: two underscores, of which people write one."""
    for section, place in Configuration.model_fields.items():
        for key in keys_of(place.annotation):
            yield f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
