"""Loads whichever kafka-python is on the path, 3.x or 1.4. Changes nothing about it but where 1.4 finds its six."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType


def load() -> ModuleType:
    """Return the package. The six that 1.4 carries stopped working in Python 3.12: the released one takes its place."""
    if importlib.util.find_spec("six") is not None:
        six = importlib.import_module("six")
        sys.modules["kafka.vendor.six"] = six
        sys.modules["kafka.vendor.six.moves"] = six.moves
    return importlib.import_module("kafka")
