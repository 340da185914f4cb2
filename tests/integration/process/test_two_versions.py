"""Two versions of the product on one Redis, as upgrade.md has it: the next one is a copy of this one with another
swap script, and one too far ahead also writes values that this one cannot read."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from idemproxy import __version__
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.store.inspecting import Place, insist, objects_of, send
from testkit.real.store.two_proxies_redis import ExternalRedis

pytestmark = pytest.mark.long

PACKAGE = Path(__file__).resolve().parents[3] / "src" / "idemproxy"
VERSION_LINE, SCRIPT_LINE = f'__version__ = "{__version__}"', "-- idemproxy swap, generation"
NEXT_VERSION, VERSION_TOO_FAR = f"{__version__}.post1", f"{__version__}.post9"
NEXT = (
    ("__init__.py", VERSION_LINE, f'__version__ = "{NEXT_VERSION}"'),
    ("state/redis_facts.py", SCRIPT_LINE, f"-- idemproxy swap of {NEXT_VERSION}, data generation"),
)
TOO_FAR = (
    ("__init__.py", VERSION_LINE, f'__version__ = "{VERSION_TOO_FAR}"'),
    ("state/redis_facts.py", SCRIPT_LINE, f"-- idemproxy swap of {VERSION_TOO_FAR}, data generation"),
    ("state/entry.py", "\nFORMAT = 3\n", "\nFORMAT = 4\n"),
    ("state/entry.py", "if form != FORMAT:", "if form not in (3, FORMAT):"),
)


class Version(ProxyProcess):
    """A proxy of another version."""

    def __init__(self, package: Path, directory: Path, upstream: tuple[str, int], options: tuple[str, ...]) -> None:
        super().__init__(directory, upstream, options=options)
        self._command = ["env", f"PYTHONPATH={package}", *self._command]


def made_of(folder: Path, version: str, edits: tuple[tuple[str, str, str], ...]) -> Path:
    """Write the package with these edits, and return what has to be on the path for it."""
    shutil.copytree(PACKAGE, folder / "idemproxy", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in edits:
        file = folder / "idemproxy" / name
        text = file.read_text()
        assert text.count(old) == 1, f"{name}: {old}"
        file.write_text(text.replace(old, new))
    said = subprocess.run(
        [sys.executable, "-m", "idemproxy", "--version"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert said.stdout == f"idemproxy {version}\n", said.stderr
    return folder


@dataclass(frozen=True)
class Neighbours:
    """This version and another one, before one broker and one Redis."""

    old: ProxyProcess
    new: ProxyProcess
    redis: ExternalRedis
    options: tuple[str, ...]


@pytest.fixture
def neighbours(request: pytest.FixtureRequest, legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[Neighbours]:
    """With the version and the edits that the test is parametrized with."""
    package = made_of(tmp_path / "package", *request.param)
    upstream = legacy_broker.address(0)
    with ExternalRedis() as redis:
        options = ("--redis", "redis://{}:{}".format(*redis.address))
        with (
            ProxyProcess(tmp_path / "old", upstream, options=options) as old,
            Version(package, tmp_path / "new", upstream, options) as new,
        ):
            yield Neighbours(old, new, redis, options)


@pytest.mark.parametrize("neighbours", [(NEXT_VERSION, NEXT)], indirect=True, ids=["the next one"])
def test_neighbours_share_their_producers_and_each_finishes_what_the_other_left_open(
    neighbours: Neighbours, place: Place
) -> None:
    old, new, options = neighbours.old, neighbours.new, neighbours.options
    with RawClient(old.address) as client:
        producer_id = client.new_producer_id()
        assert insist(client, place, producer_id, 0) == 0
    with RawClient(new.address) as client:
        assert insist(client, place, producer_id, 0) == 0, "a retry of what the old one has stored"
        assert insist(client, place, producer_id, 2) == 2
        ids = {producer_id, client.new_producer_id()}
    with RawClient(old.address) as client:
        ids.add(client.new_producer_id())
        assert len(ids) == 3, "both take blocks of ids out of one Redis"
        assert insist(client, place, producer_id, 2) == 2
        assert insist(client, place, producer_id, 4) == 4
    for ended, going_on, sequence in ((new, old, 6), (old, new, 8)):
        with RawClient(ended.address) as client:
            assert insist(client, place, producer_id, sequence) == sequence
        ended.kill()  # without a commit, perhaps
        with RawClient(going_on.address) as client:
            assert insist(client, place, producer_id, sequence) == sequence
        ended.start()
    with RawClient(old.address) as client:
        assert client.values(*place) == [b"%d" % number for number in range(10)]
    logs = old.log + new.log
    assert " ERROR " not in logs
    assert [row["state"] for row in objects_of("producer", producer_id, *options)] == ["quiet"]


@pytest.mark.parametrize("neighbours", [(VERSION_TOO_FAR, TOO_FAR)], indirect=True, ids=["too far"])
def test_an_entry_of_a_newer_format_waits_untouched_for_a_newer_proxy(neighbours: Neighbours, place: Place) -> None:
    old, new, redis, options = neighbours.old, neighbours.new, neighbours.redis, neighbours.options
    with RawClient(new.address) as client:
        producer_id = client.new_producer_id()
        assert insist(client, place, producer_id, 0) == 0

    key = entry_key("default", producer_id, *place)
    wait_until(lambda: int.from_bytes(redis.call("GET", key)[1:9], "big") == 2, "the commit is written")
    before = redis.call("GET", key)
    assert before[0] == 4
    assert [row["state"] for row in objects_of("producer", producer_id, *options)] == ["damaged"]
    with RawClient(old.address) as client:
        assert send(client, place, producer_id, 2)[0] == 7, "try again"
        other = client.new_producer_id()
        assert insist(client, place, other, 0) == 2, "all others go on"
    assert redis.call("GET", key) == before, "nothing is overwritten"
    assert str(producer_id) in old.wait_for_log(f" ERROR .*{producer_id}.*format 4")
    with RawClient(new.address) as client:
        assert insist(client, place, producer_id, 2) == 4
        assert insist(client, place, other, 2) == 6, "what the old one has written can be read"
    assert " ERROR " not in new.log
