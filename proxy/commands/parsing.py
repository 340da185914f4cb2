"""The frame of the command line: a parser whose help is in groups and whose errors suggest what a misspelt word may
have meant, and completion for shells. Knows no command."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, NoReturn

from ..settings.suggestions import meant
from .colours import coloured

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "idemproxy"
_OF_FILES = ("FILE", "DIR")
_CHOICES = re.compile(r"\{(.+)\}")
_HEADING = re.compile(r"^[^\s].*:$", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


class Parser(argparse.ArgumentParser):
    """``argparse``'s parser without abbreviations: a script that uses one would break when an option is added."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "allow_abbrev": False})
        self.color = False  # of Python 3.14: here every version has the same colours

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown words here instead of in the caller: this parser knows which of its options may have been
        meant."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(_unknown(unknown[0], self._option_string_actions))
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [] if action.choices is None else [str(choice) for choice in action.choices]
        if choices and value not in choices:
            raise argparse.ArgumentError(action, f"unknown: {value}{meant(str(value), choices)}")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, and where to find help; argparse would print the usage of all options
        first."""
        self.exit(2, f"{PROGRAM}: {message.removeprefix('argument ')}\nwhat there is: {self.prog} --help\n")

    def print_help(self, file: Any = None) -> None:
        """Print the help; coloured on a terminal."""
        out: IO[str] = sys.stdout if file is None else file
        text = _HEADING.sub(lambda found: coloured(found[0], "bold", out), self.format_help())
        out.write(_OPTION.sub(lambda found: coloured(found[0], "cyan", out), text))


def explained(sentence: str, example: str = "", default: object = None) -> str:
    """Return the help of one option: a sentence, an example, and what holds without it."""
    text = f"{sentence}."
    if example:
        text += f" Example: {example}."
    if default is not None:
        text += f" (default: {default})"
    return text.replace("%", "%%")


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and end; return at once where none does."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete
    from argcomplete.completers import ChoicesCompleter, FilesCompleter, SuppressCompleter

    for action in _actions(parser):
        offered = _CHOICES.fullmatch(action.metavar) if isinstance(action.metavar, str) else None
        if action.metavar in _OF_FILES:
            action.completer = FilesCompleter()  # type: ignore[attr-defined]
        elif offered is not None:
            action.completer = ChoicesCompleter(dict.fromkeys(offered[1].split(","), ""))  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, default_completer=SuppressCompleter())


def completion_script(shell: str) -> str:
    """Return what a shell evaluates to complete our words. ``shell``: one of ``SHELLS``."""
    from argcomplete.shell_integration import shellcode

    text: str = shellcode([PROGRAM], shell=shell)
    return text


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)


def _unknown(word: str, options: Sequence[str] | dict[str, Any]) -> str:
    if word.startswith("-"):
        return f"unknown option {word}{meant(word.partition('=')[0], list(options), lists_all=False)}"
    return f"{word!r} is one word too many"
