"""What unit tests share: a process whose logging is as it was."""

import logging
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Handlers, level and the hook for what Python can hand to nobody are put back."""
    root = logging.getLogger()
    handlers, level, hook = root.handlers[:], root.level, sys.unraisablehook
    yield
    sys.unraisablehook = hook
    root.handlers[:] = handlers
    root.setLevel(level)
