"""What the tests of the store share: a real redis-server and one proxy's store on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.real.store.proxy_instance import Proxy
from testkit.real.store.redis_process import RedisProcess
from testkit.stage.select_reactor import SelectReactor


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose path is short enough for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="ip") as path:
        yield Path(path)


@pytest.fixture
def server(directory: Path) -> Iterator[RedisProcess]:
    with RedisProcess(directory) as process:
        yield process


@pytest.fixture
def reactor() -> Iterator[SelectReactor]:
    with SelectReactor() as reactor:
        yield reactor


@pytest.fixture
def proxy(server: RedisProcess, reactor: SelectReactor) -> Proxy:
    return Proxy(reactor, server.socket_path).ready()
