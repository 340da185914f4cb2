"""Parses options of the pipeline's commands: NAME=VALUE and regular expressions. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence


class WrongOption(Exception):
    """The message is a sentence for a person, and names the option."""


def named_values(option: str, given: Sequence[str]) -> dict[str, str]:
    """Return what was given as NAME=VALUE. Raises WrongOption."""
    values = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise WrongOption(f"{option} {one}: NAME=VALUE is wanted")
        values[name] = value
    return values


def pattern_of(option: str, text: str) -> re.Pattern[str]:
    """Return the compiled expression. Raises WrongOption."""
    try:
        return re.compile(text)
    except re.error as problem:
        raise WrongOption(f"{option} {text}: {problem}") from None
