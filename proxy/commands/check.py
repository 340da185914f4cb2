"""``idemproxy check`` and ``idemproxy schema``: report what a configuration means and whether it would work, and
end with a verdict. Starts nothing, changes nothing; the output has no secret in it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...codecs.kernel import TOLD
from ..settings.config import ConfigError, Settings
from .colours import coloured
from .parsing import Parser, explained
from .run_arguments import add_settings

if TYPE_CHECKING:
    from ..process.findings import Finding
    from ..settings.model import Configuration

    Commands = argparse._SubParsersAction[Parser]

COMMANDS = ("check", "schema")
_SIGNS = {
    "ok": ("ok      ", "green"),
    "note": ("note    ", "green"),
    "warning": ("warning ", "yellow"),
    "problem": ("PROBLEM ", "red"),
}
_WRONG, _UNUSABLE = 2, 1


@dataclass(frozen=True, slots=True)
class _Report:
    """What was found. ``problems``: why the configuration is wrong, a sentence each; ``effective``: the configuration
    with all defaults, without secrets, None where it is wrong."""

    problems: Sequence[str] = ()
    findings: Sequence[Finding] = field(default_factory=list)
    effective: dict[str, Any] | None = None
    is_connected: bool = False

    @property
    def status(self) -> int:
        """The exit status: 0 fine, 1 something cannot be reached or used, 2 the configuration is wrong."""
        if self.problems:
            return _WRONG
        return _UNUSABLE if self.count("problem") else 0

    @property
    def verdict(self) -> str:
        """The whole result in one line."""
        if self.problems:
            return f"configuration is not valid: {_numbered(len(self.problems), 'problem')}"
        if found := self.count("problem"):
            return f"configuration is valid, but it would not work: {_numbered(found, 'problem')}"
        text = "configuration is valid"
        if self.is_connected:
            text += ", and what it names can be used"
        warnings = self.count("warning")
        return f"{text}; {_numbered(warnings, 'warning')}" if warnings else text

    def count(self, sign: str) -> int:
        """How many findings have this sign?"""
        return sum(finding.sign == sign for finding in self.findings)


def add_commands(commands: Commands) -> None:
    """Add both commands to the command line's."""
    check = commands.add_parser(
        "check",
        help="say what a configuration means, and all that is wrong with it",
        epilog="Exit status: 0 fine, 1 something cannot be reached or used, 2 the configuration is wrong.",
    )
    check.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        nargs="?",
        help=explained("The configuration, as with --config", "idemproxy.yaml"),
    )
    what = check.add_argument_group("what is done, and what is printed")
    what.add_argument(
        "--connect",
        action="store_true",
        help=explained(
            "Also try Redis, every broker, and the ports that would be opened; if a proxy answers at admin.bind, sum "
            "up its old clients"
        ),
    )
    what.add_argument(
        "--effective",
        action="store_true",
        help=explained("Print the configuration with all defaults, as YAML; the rest becomes comments"),
    )
    what.add_argument(
        "--quiet", action="store_true", help=explained("Print only what is wrong; the exit status says the rest")
    )
    what.add_argument("--json", action="store_true", help=explained("Print one JSON object for machines"))
    add_settings(check)
    commands.add_parser("schema", help="print the JSON schema of the configuration")


def run_check(options: argparse.Namespace) -> int:
    """Return the exit status of ``_Report``."""
    if options.command == "schema":
        from ..settings.load import schema

        print(json.dumps(schema(), indent=2))
        return 0
    report = _look(options)
    if options.json:
        _print_json(report, options.effective)
    elif report.problems:
        for sentence in report.problems:
            print(f"idemproxy: {sentence}", file=sys.stderr)
        if not options.quiet:
            print(coloured(report.verdict, "red", sys.stderr), file=sys.stderr)
    else:
        _print(report, is_quiet=options.quiet, is_effective=options.effective)
    return report.status


def _look(options: argparse.Namespace) -> _Report:
    from ..process.findings import Finding, all_findings

    try:
        configuration, settings = _read(options)
    except OSError as error:
        return _Report((f"a file of a password cannot be read: {error}",))
    except ConfigError as error:
        return _Report(error.problems)
    findings = [Finding("ok", "checksums and conversion", TOLD)]
    if options.connect:
        from .check_connect import try_everything

        findings += try_everything(settings)
    else:
        from ..process.surroundings import facts_here

        findings += all_findings(facts_here(settings))
    return _Report((), findings, configuration.model_dump(mode="json"), options.connect)


def _read(options: argparse.Namespace) -> tuple[Configuration, Settings]:
    from ..settings.load import examine, settings_of
    from .check_files import file_problems

    found = examine(options.file or options.config, vars(options))
    problems = found.problems(file_problems(found.written.partial()))
    if problems or found.configuration is None:
        raise ConfigError(*problems)
    return found.configuration, settings_of(found)


def _print(report: _Report, *, is_quiet: bool, is_effective: bool) -> None:
    """Print the results, the configuration if it is wanted, and the verdict; with the configuration all else is a
    comment, so that the whole can be read as YAML."""
    start = "# " if is_effective else ""
    for finding in report.findings:
        if finding.sign != "ok" or not is_quiet:
            sign, colour = _SIGNS[finding.sign]
            print(f"{start}{coloured(sign, colour, sys.stdout)}{finding.what}: {finding.text}")
    if is_effective:
        import yaml

        print(yaml.safe_dump(report.effective, sort_keys=False, allow_unicode=True), end="")
    if not is_quiet:
        print(f"{start}{coloured(report.verdict, 'red' if report.status else 'green', sys.stdout)}")


def _print_json(report: _Report, is_effective: bool) -> None:
    found = {
        "valid": not report.problems,
        "verdict": report.verdict,
        "problems": list(report.problems),
        "findings": [finding._asdict() for finding in report.findings],
    }
    print(json.dumps(found | ({"configuration": report.effective} if is_effective else {})))


def _numbered(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
