"""What unit tests share: a process whose logging is as it was, and a count of what is read of logs."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from idemproxy.codecs import message_set
from testkit.stage.step_sizes import MessagesRead


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Handlers, level and the hook for what Python can hand to nobody are put back."""
    root = logging.getLogger()
    handlers, level, hook = root.handlers[:], root.level, sys.unraisablehook
    yield
    sys.unraisablehook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def messages_read(monkeypatch: pytest.MonkeyPatch) -> MessagesRead:
    """Counts every message that is read from now on."""
    counted = MessagesRead()
    read = vars(message_set)["read_message"]

    def counting(*place: Any) -> Any:
        counted.count += 1
        return read(*place)

    monkeypatch.setattr(message_set, "read_message", counting)
    return counted
