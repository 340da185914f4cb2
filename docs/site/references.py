"""The generated parts of the reference: made from the code when the site is built, and put where a page has the line
``<!-- generated: settings -->``, or the name of a limit in braces. Each function returns Markdown."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from idemproxy import DOCUMENTATION, client
from idemproxy.proxy import limits
from idemproxy.proxy.main import _parser
from idemproxy.proxy.settings.load import schema
from idemproxy.proxy.settings.reload import is_reloaded
from idemproxy.proxy.telemetry.metric_names import METRICS, SUPERVISOR_METRICS, Metric

ROOT: Final = Path(__file__).resolve().parents[2]
_MARK: Final = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)
_LIMIT: Final = re.compile(r"(?<!\{)\{([A-Z][A-Z_]{3,})\}(?!\})")
_HELP_COLUMNS: Final = 100


# ---------------------------------------------------------------------- settings
def settings() -> str:
    """Every setting of the configuration file: type, default, variable, whether it is taken over by a reload."""
    whole = schema()
    parts = []
    for name, about in whole["properties"].items():
        section = _section(about, whole)
        if section is None:
            parts.append(f"## {name}\n\n{_setting(name, about, whole)}")
            continue
        parts.append(f"## {name}\n\n{about.get('description') or section.get('description', '')}\n")
        parts += _settings_of(section, name, whole)
    return "\n\n".join(parts)


def _settings_of(section: Mapping[str, Any], place: str, whole: Mapping[str, Any]) -> Iterator[str]:
    for name, about in section["properties"].items():
        inner = _section(about, whole)
        if inner is None:
            yield f"### {place}.{name}\n\n{_setting(f'{place}.{name}', about, whole)}"
        else:
            text = about.get("description") or inner.get("description", "")
            yield f"### {place}.{name}\n\nA section. {text}"
            yield from _settings_of(inner, f"{place}.{name}", whole)


def _section(about: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the section that this setting is, or whose list it is."""
    found = re.search(r'"#/\$defs/(\w+)"', json.dumps(about))
    return None if found is None else whole["$defs"][found[1]]


def _setting(place: str, about: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    facts = [f"Type: {_type(about)}"]
    if place in ("upstream.bootstrap",):
        facts.append("required")
    else:
        facts.append(f"default: {_value(about.get('default'))}")
    if not place.startswith("listeners"):
        facts.append(f"variable: `IDEMPROXY_{place.replace('.', '__').upper()}`")
    facts.append("taken over by a reload" if is_reloaded(place) else "needs a restart")
    return f"{about.get('description', '').replace(chr(10), ' ')}\n\n{'; '.join(facts)}."


def _type(about: Mapping[str, Any]) -> str:
    if "anyOf" in about:
        return " or ".join(_type(one) for one in about["anyOf"] if one.get("type") != "null")
    if "enum" in about:
        return ", ".join(f"`{one}`" for one in about["enum"])
    if "const" in about:
        return f"`{about['const']}`"
    kind = {"integer": "whole number", "boolean": "`true` or `false`", "string": about.get("format", "text")}
    if isinstance(about.get("type"), list):
        return " or ".join(kind.get(one, one) for one in about["type"] if one != "null")
    if about.get("type") == "array":
        return f"list ({_type(about.get('items', {}))})"
    name = kind.get(about.get("type", ""), about.get("type", "text"))
    low, high = about.get("minimum", about.get("exclusiveMinimum")), about.get("maximum")
    if low is not None and high is not None:
        return f"{name} from {low:,} to {high:,}"
    return f"{name}, at least {low:,}" if low is not None else name


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`"


# ---------------------------------------------------------------------- command line
def command_line() -> str:
    """The help of every command, as the command prints it."""
    parts = [_fenced(_parser())]
    return "\n\n".join([*parts, *_commands(_parser(), "idemproxy", 2)])


def _commands(parser: argparse.ArgumentParser, name: str, depth: int) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                yield f"{'#' * depth} {name} {word}\n\n{_fenced(command)}"
                yield from _commands(command, f"{name} {word}", depth + 1)


def _fenced(parser: argparse.ArgumentParser) -> str:
    """Return the help as in a terminal of that width: argparse asks for it by this variable."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(_HELP_COLUMNS)
    try:
        return f"```text\n{parser.format_help().rstrip()}\n```"
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


# ---------------------------------------------------------------------- metrics
def metrics() -> str:
    """Every metric: its name at the admin port, meaning, kind and labels."""
    return f"{_metric_table(METRICS)}\n\n### Of a process with workers\n\n{_metric_table(SUPERVISOR_METRICS)}"


def _metric_table(rows: tuple[Metric, ...]) -> str:
    lines = ["| metric | meaning |", "| --- | --- |"]
    for metric in rows:
        labels = f" by {', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
        lines.append(f"| `{metric.prometheus_name}` | {_cell(metric.help)} *{metric.kind.capitalize()}{labels}.* |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# ---------------------------------------------------------------------- chart
def helm_values() -> str:
    """The chart's values, a table for each of its sections, from the page that helm-docs makes of values.yaml."""
    text = (ROOT / "charts/idemproxy/README.md").read_text()
    text = re.sub(rf"{re.escape(DOCUMENTATION)}/([\w/-]+)\.html", r"[\1](../\1.md)", text)
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.partition("\n## Values\n")[2].splitlines()
        if line.startswith("| ")
    ][1:]
    sections: dict[str, list[list[str]]] = {}
    for row in rows:
        sections.setdefault(row[0].partition(".")[0], []).append(row)
    single = [name for name, found in sections.items() if len(found) == 1]
    parts = ["## Top level", _value_table([sections[name][0] for name in single])]
    for name, found in sections.items():
        if name not in single:
            parts += [f"## {name}", _value_table(found)]
    return "\n\n".join(parts)


def _value_table(rows: list[list[str]]) -> str:
    lines = ["| value | meaning |", "| --- | --- |"]
    for key, kind, default, text in rows:
        lines.append(f"| `{key}` | {text} *{kind.capitalize()}, default {default}.* |")
    return "\n".join(lines)


# ---------------------------------------------------------------------- client
def client_api() -> str:
    """Every public class and function of ``idemproxy.client``, with its signature and its docstring."""
    found = {name: getattr(client, name) for name in client.__all__}
    classes = {name: one for name, one in found.items() if inspect.isclass(one)}
    errors = {name: one for name, one in classes.items() if issubclass(one, BaseException)}
    parts = ["## Functions and constants"]
    parts += [_function(name, one, 3) for name, one in found.items() if inspect.isfunction(one)]
    parts += [f"### {name}\n\n`{one!r}`" for name, one in found.items() if not callable(one)]
    parts.append("## Classes")
    parts += [_class(name, one) for name, one in classes.items() if name not in errors]
    parts.append("## Errors")
    parts += [f"### {name}\n\n{_text(one)}" for name, one in errors.items()]
    return "\n\n".join(parts)


def _class(name: str, one: type) -> str:
    parts = [f"### {name}", f"```python\n{name}{_signature(one)}\n```", _text(one)]
    for member, value in vars(one).items():
        if member.startswith("_"):
            continue
        if inspect.isfunction(value):
            parts.append(_function(f"{name}.{member}", value, 4))
        elif isinstance(value, property) and value.__doc__:
            parts.append(f"#### {name}.{member}\n\n{_text(value)}")
    return "\n\n".join(part for part in parts if part)


def _function(name: str, one: Callable[..., Any], depth: int) -> str:
    short = name.rpartition(".")[2]
    return f"{'#' * depth} {name}\n\n```python\n{short}{_signature(one)}\n```\n\n{_text(one)}".rstrip()


_STARS: Final[Mapping[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_SIGNATURE_COLUMNS: Final = 70


def _signature(one: Callable[..., Any]) -> str:
    """Return the parameters, each on a line of its own where they are long, and what is returned."""
    found = inspect.signature(one)
    shown = [
        f"{_STARS.get(name.kind, '')}{name.name}"
        + (f": {name.annotation}" if name.annotation is not name.empty else "")
        + (f" = {name.default!r}" if name.default is not name.empty else "")
        for name in found.parameters.values()
        if name.name != "self"
    ]
    kinds = [name.kind for name in found.parameters.values() if name.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = "" if found.return_annotation in (found.empty, None, "None") else f" -> {found.return_annotation}"
    line = f"({', '.join(shown)}){returned}"
    return (
        line if len(line) <= _SIGNATURE_COLUMNS else "(\n" + "".join(f"    {one},\n" for one in shown) + f"){returned}"
    )


def _text(one: object) -> str:
    return (inspect.cleandoc(one.__doc__ or "")).replace("``", "`")


# ---------------------------------------------------------------------- limits
def limit(name: str) -> str:
    """Return a limit of ``proxy/limits.py`` with its unit, and the setting of which it is the default.

    Raises AttributeError when there is no such limit."""
    setting = {field: f"limits.{field}" for field in schema()["$defs"]["LimitsSection"]["properties"]} | {
        "producer_expiry_seconds": "producers.expiry_seconds",
        "lines_per_minute_max": "log.lines_per_minute_max",
    }
    found = setting.get(_RENAMED.get(name, name.lower()))
    return _amount(name) if found is None else f"{_amount(name)} (`{found}`)"


_RENAMED: Final = {
    "SEQUENCERS_MAX": "producers_max",
    "PRODUCE_CONNECTIONS_PER_BROKER": "produce_connections_per_broker_max",
}


def _amount(name: str) -> str:
    value = getattr(limits, name)
    if "_BYTES" in name and value >= limits.KIB and value % limits.KIB == 0:
        return f"{value // limits.MIB} MiB" if value % limits.MIB == 0 else f"{value // limits.KIB} KiB"
    if name.endswith("_SHARE_MAX"):
        return f"{value:.0%}"
    if "SECONDS" in name:
        return f"{value:,g} s"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


# ---------------------------------------------------------------------- releases
def releases() -> str:
    """What is new in each version: the changelog without its title."""
    return (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].join(("## ", ""))


# ---------------------------------------------------------------------- old clients
_OLD_CLIENTS: Final = ROOT / "benchmarks" / "results" / "old_clients.jsonl"
_PARTS: Final = re.compile(r"(\d+)")
_READINGS: Final = {"group, start 2": "in a group", "simple": "alone", "times": "by time"}


def old_clients() -> str:
    """The clients that were tried in front of Kafka 4, of the last run of each that came out as it should."""
    found: dict[str, Mapping[str, Any]] = {}
    for line in map(json.loads, _OLD_CLIENTS.read_text().splitlines()):
        if not line["complaints"] and "not_run" not in line:
            found[line["client"]] = line
    rows = ["| client | produces | reads | rewritten |", "| --- | --- | --- | --- |"]
    for name, line in sorted(
        found.items(), key=lambda one: [int(n) if n.isdigit() else n for n in _PARTS.split(one[0])]
    ):
        done = line["done"]
        codecs = dict.fromkeys(one.removeprefix("produce ") for one in done if one.startswith("produce "))
        readings = [shown for one, shown in _READINGS.items() if one in done]
        cells = (name, ", ".join(codecs), ", ".join(readings) or "–", ", ".join(line["raised"]) or "–")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


MAKERS: Final[Mapping[str, Callable[[], str]]] = {
    "settings": settings,
    "command-line": command_line,
    "metrics": metrics,
    "helm-values": helm_values,
    "client-api": client_api,
    "releases": releases,
    "old-clients": old_clients,
}


def with_references(text: str) -> str:
    """Return a page with its generated parts, and with the value of each ``{LIMIT}``. Raises KeyError for a part that
    nobody makes, AttributeError for a limit that the code has not."""
    return _LIMIT.sub(lambda match: limit(match[1]), _MARK.sub(lambda match: MAKERS[match[1]](), text))
