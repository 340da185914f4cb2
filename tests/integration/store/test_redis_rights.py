"""The user at Redis that docs/how-to/sasl.md describes may do what proxies and commands do, and hardly more."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from idemproxy.client import Client
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.store.inspecting import Place, idemproxy, insist, lines_of
from testkit.real.store.redis_process import converse
from testkit.real.store.two_proxies_redis import ExternalRedis

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/sasl.md"
FOR_PROXIES, FOR_INSPECTION, FOR_NAMES = re.findall(r"^ACL SETUSER (.+)$", PAGE.read_text(), re.MULTILINE)
NAME, SECRET = FOR_PROXIES.split()[0], re.findall(r">(\S+)", FOR_PROXIES)[0]
SINCE_7_2 = {"+client|no-touch", "+client|setinfo"}
"""An earlier server does not know them, and refuses the whole line, as the page says."""
DATABASE = 1
"""Another one than the first, which has to be chosen."""
WISHES: list[tuple[str, ...]] = [
    ("AUTH", NAME, SECRET),
    ("GET", "somebody-elses"),
    ("SET", "somebody-elses", "1"),
    ("EVAL", "return 1", "0"),
    ("KEYS", "*"),
    ("CONFIG", "GET", "*"),
    ("FLUSHALL",),
    ("SCRIPT", "FLUSH"),
    ("ACL", "LIST"),
    ("SHUTDOWN",),
]


@pytest.fixture
def redis() -> Iterator[ExternalRedis]:
    with ExternalRedis("--user", *FOR_PROXIES.split()) as running:
        yield running


def granted(line: str) -> set[str]:
    """The commands of a line."""
    return set(re.findall(r"\+(\S+)", line))


def run(redis: ExternalRedis) -> set[str]:
    """The commands that the server has been sent since its start."""
    return set(re.findall(r"^cmdstat_(\S+?):", redis.call("INFO", "commandstats").decode(), re.MULTILINE))


def test_the_documented_redis_user_may_do_what_is_needed_and_nothing_else(
    legacy_broker: LegacyCluster, redis: ExternalRedis, place: Place, tmp_path: Path
) -> None:
    url = "redis://{}:{}@{}:{}/{}".format(NAME, SECRET, *redis.address, DATABASE)
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=("--redis", url)) as proxy:
        with RawClient(proxy.address) as client:
            producer_id = client.new_producer_id()
            assert insist(client, place, producer_id, 0) == 0
        proxy.kill()
        proxy.start()  # and ends the lease of the killed instance
        with RawClient(proxy.address) as client:
            assert insist(client, place, producer_id, 2) == 2
        assert [entry[7] for entry in redis.call("ACL", "LOG")] == [], "something was refused"
        commands, lives = run(redis), proxy.log.count("has data generation")
        redis.kill()
        redis.start()
        wait_until(lambda: proxy.log.count("has data generation") > lives, "the new data generation is seen", 30)
        with RawClient(proxy.address) as client:
            assert insist(client, place, producer_id, 2) == 2, "looked for in the log"
            assert insist(client, place, producer_id, 4) == 4

        refused = idemproxy("inspect", "--redis", url)
        assert (refused.returncode, "permissions" in refused.stderr) == (2, True), refused.stderr
        redis.call("ACL", "LOG", "RESET")
        version = re.search(rb"redis_version:7\.[01]\.", redis.call("INFO", "server"))
        redis.call("ACL", "SETUSER", *(part for part in FOR_INSPECTION.split() if not version or part not in SINCE_7_2))
        wait_until(lambda: any("1 quiet" in line for line in lines_of("--redis", url)), "the last commit is written")
        assert any(place[0] in line for line in lines_of("producer", producer_id, "--redis", url))
        forgotten = idemproxy("forget", "producer", producer_id, "--yes", "--redis", url)
        assert forgotten.stdout.endswith("forgotten on 1 of 1 partition\n"), forgotten.stdout
        brokers = "{}:{}".format(*legacy_broker.address(0))
        rebuilt = idemproxy("rebuild", "--upstream", brokers, "--topic", place[0], "--all", "--redis", url)
        said = rebuilt.stdout + rebuilt.stderr
        # Other tests write to other partitions of the topic: their producers are rebuilt as well.
        assert re.search(r"^written: [1-9]\d* complete, 0 ", rebuilt.stdout, re.MULTILINE), said
        assert any(place[0] in line for line in lines_of("producer", producer_id, "--redis", url)), said
        redis.call("ACL", "SETUSER", *FOR_NAMES.split())
        with RawClient(proxy.address) as client:
            error, named_id, _epoch = client.init_producer_id(0, "a name")
            assert error == 0
            assert insist(client, place, named_id, 0) >= 0
        with Client("{}:{}".format(*proxy.address)) as asking:
            assert asking.where_producers_stopped(*place)[named_id].last_sequence == 1
        commands, lives = commands | run(redis), proxy.log.count("has data generation")
        redis.kill()
        redis.start()
        for line in (FOR_INSPECTION, FOR_NAMES):
            redis.call("ACL", "SETUSER", *(part for part in line.split() if not version or part not in SINCE_7_2))
        wait_until(lambda: proxy.log.count("has data generation") > lives, "another data generation is seen", 30)
        with Client("{}:{}".format(*proxy.address)) as asking:
            assert asking.init_producer_id("a name").number != named_id, "what that id has there expires from now on"
        assert any("a name" in line for line in lines_of("names", "--redis", url))
        assert idemproxy("forget", "name", "a name", "--yes", "--redis", url).returncode == 0
        assert proxy.stop() == 0
    assert [entry[7] for entry in redis.call("ACL", "LOG")] == [], "something was refused"
    commands |= run(redis)
    unused = {*granted(" ".join(SINCE_7_2)), "object|idletime"} if version else set()
    needed = granted(FOR_PROXIES) | granted(FOR_INSPECTION) | granted(FOR_NAMES)
    assert needed <= commands | unused, "some of it is not needed"


def test_that_user_reaches_no_other_keys_and_runs_no_script_of_his_own(redis: ExternalRedis) -> None:
    with redis.open() as connection:
        said = [converse(connection, *parts) for parts in WISHES]
    assert said[0] == b"OK"
    assert all(str(reply).startswith("NOPERM") for reply in said[1:]), said


@pytest.mark.parametrize("missing", [set(), {"getrange"}, {"evalsha", "set"}, {"script|load"}])
def test_check_says_which_rights_are_missing_and_writes_nothing(
    legacy_broker: LegacyCluster, redis: ExternalRedis, tmp_path: Path, missing: set[str]
) -> None:
    redis.call("ACL", "SETUSER", NAME, *(f"-{command}" for command in missing))
    file = tmp_path / "idemproxy.yaml"
    broker, url = "{}:{}".format(*legacy_broker.address(0)), "redis://{}:{}@{}:{}".format(NAME, SECRET, *redis.address)
    file.write_text(yaml.safe_dump({"upstream": {"bootstrap": [broker]}, "redis": {"url": url}}))
    done = idemproxy("check", str(file), "--connect")
    assert done.returncode == bool(missing), done.stdout
    (line,) = (line for line in done.stdout.splitlines() if " redis 127" in line)
    assert line.startswith("PROBLEM" if missing else "ok")
    named = re.findall(r"may not (.*);", line)
    if "script|load" in missing:
        assert "script|load" in line
    else:
        assert set(named[0].lower().split(", ") if named else []) == missing
    assert redis.call("DBSIZE") == 0
