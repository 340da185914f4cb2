"""Which Redis the commands look at that ask it themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.proxy.commands.store_settings import redis_of, store_settings
from idemproxy.proxy.main import _parser, main
from idemproxy.proxy.settings.config import ConfigError, Settings
from idemproxy.state.redis_facts import RedisAddress

COMMANDS = (("inspect", "producers"), ("forget", "name", "orders"), ("hide", "list"), ("rebuild",))


def settings(*arguments: str) -> Settings:
    return store_settings(_parser().parse_args(arguments))


@pytest.mark.parametrize("command", COMMANDS)
def test_two_servers_are_refused(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--redis", "redis://h", "--data-directory", "data"]) == 2
    assert capsys.readouterr().err == "idemproxy: --redis and --data-directory name two servers: one of them\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_comes_before_the_server_of_the_file(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "idemproxy.yaml"
    file.write_text(
        "upstream: {bootstrap: ['file.example:9092']}\ncluster_name: orders\nredis: {url: 'redis://file.example'}\n"
    )
    of_file = settings(*command, "--config", str(file))
    assert (of_file.cluster, redis_of(of_file)) == ("orders", RedisAddress(("file.example", 6379)))
    given = settings(*command, "--config", str(file), "--redis", "redis://given.example", "--cluster-name", "other")
    assert (given.cluster, redis_of(given)) == ("other", RedisAddress(("given.example", 6379)))
    private = settings(*command, "--config", str(file), "--data-directory", str(tmp_path))
    with pytest.raises(ConfigError, match="no private Redis in "):
        redis_of(private)
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis/redis.socket").write_text("/run/redis.socket")
    assert redis_of(private) == RedisAddress("/run/redis.socket")


def test_only_a_command_that_asks_brokers_has_to_know_them(tmp_path: Path) -> None:
    assert settings("inspect", "--redis", "redis://h").redis == RedisAddress(("h", 6379))
    with pytest.raises(ConfigError, match="upstream"):
        settings("rebuild", "--redis", "redis://h")
    given = settings("rebuild", "--redis", "redis://h", "--upstream", "given.example:9092")
    assert given.upstream == (("given.example", 9092),)
