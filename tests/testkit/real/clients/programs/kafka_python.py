"""Loads whichever kafka-python is on the path, 3.x or 1.4. Changes nothing about it but where 1.4 finds its six."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


def load() -> ModuleType:
    """Return the package. The six that 1.4 carries stopped working in Python 3.12: the released one takes its place."""
    if importlib.util.find_spec("six") is not None:
        six = importlib.import_module("six")
        sys.modules["kafka.vendor.six"] = six
        sys.modules["kafka.vendor.six.moves"] = six.moves
    return importlib.import_module("kafka")


def python_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Return settings that came as JSON in the library's own types: a version is a tuple."""
    return {name: tuple(value) if name == "api_version" else value for name, value in given.items()}
