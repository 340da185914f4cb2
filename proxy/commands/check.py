"""``idemproxy check`` and ``idemproxy schema``: report what a configuration means and whether it would work. Starts
nothing, changes nothing; the output has no secret in it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...codecs.kernel import TOLD
from ..settings.config import CONFIG_VARIABLE, ConfigError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

COMMANDS = ("check", "schema")
_SIGNS = {"ok": "ok      ", "warning": "warning ", "problem": "PROBLEM "}


def add_commands(commands: Commands) -> None:
    """Add both commands to the command line's."""
    check = commands.add_parser("check", help="say what a configuration means, and all that is wrong with it")
    check.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        nargs="?",
        default=os.environ.get(CONFIG_VARIABLE) or None,
        help=f"the configuration (default: ${CONFIG_VARIABLE}, or the other variables alone)",
    )
    check.add_argument("--connect", action="store_true", help="also try Redis and every broker")
    commands.add_parser("schema", help="print the JSON schema of the configuration")


def run_check(options: argparse.Namespace) -> int:
    """Return the exit status: 0 fine, 1 something cannot be reached or used, 2 the configuration is wrong."""
    import yaml

    from ..settings.load import examine, schema, settings_of

    if options.command == "schema":
        print(json.dumps(schema(), indent=2))
        return 0
    try:
        from .check_files import file_problems

        found = examine(options.file, {})
        problems = found.problems(file_problems(found.written.partial()))
        if problems or found.configuration is None:
            raise ConfigError(*problems)
        configuration, settings = found.configuration, settings_of(found.configuration)
    except OSError as error:
        print(f"idemproxy: a file of a password cannot be read: {error}", file=sys.stderr)
        return 2
    except ConfigError as error:
        for sentence in error.problems:
            print(f"idemproxy: {sentence}", file=sys.stderr)
        return 2
    print(f"# checksums and conversion: {TOLD}")
    print(yaml.safe_dump(configuration.model_dump(mode="json"), sort_keys=False, allow_unicode=True), end="")
    if not options.connect:
        return 0
    from .check_connect import try_everything

    print()
    findings = try_everything(settings)
    for finding in findings:
        print(f"{_SIGNS[finding.sign]}{finding.what}: {finding.text}")
    return int(any(finding.sign == "problem" for finding in findings))
