"""The settings from command line, environment and file: what counts above what, and what is said about mistakes."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from idemproxy.proxy.settings.addresses import Advertised, Listener
from idemproxy.proxy.settings.config import Caps, ConfigError, JournalSettings, Settings, TopicDefaults
from idemproxy.proxy.settings.load import OPTIONS, load, load_configuration, schema
from idemproxy.proxy.settings.model import Configuration
from idemproxy.proxy.settings.reload import changes
from idemproxy.state.redis_facts import RedisAddress

ROOT = Path(__file__).resolve().parents[3]
UPSTREAM = {"upstream": "kafka:9092"}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDEMPROXY_TEST_REDIS", "IDEMPROXY_CACHE_DIR"):
        monkeypatch.setenv(name, "something else of ours")


def problems(path: Path | None, options: Mapping[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, options)
    return list(caught.value.problems)


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return path


# ---------------------------------------------------------------------- what counts
def test_the_defaults_are_those_of_the_plain_settings() -> None:
    assert load(None, UPSTREAM) == Settings(
        upstream=(("kafka", 9092),), listeners=(Listener("clients", "127.0.0.1", 9092, 9093),)
    )


def test_the_command_line_stands_above_the_environment_above_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(
        tmp_path,
        "upstream: {bootstrap: [file:1]}\ncluster_name: file\nlimits: {connections_max: 1, producers_max: 1}\n"
        "log: {level: debug, format: json}\n",
    )
    monkeypatch.setenv("IDEMPROXY_CLUSTER_NAME", "environment")
    monkeypatch.setenv("IDEMPROXY_LIMITS__CONNECTIONS_MAX", "2")
    monkeypatch.setenv("idemproxy_log__level", "error")
    found = load(path, {"upstream": "option:3", "cluster_name": "option"})
    assert found.upstream == (("option", 3),)
    assert found.cluster == "option"
    assert found.limits == Caps(connections_max=2, producers_max=1)
    assert (found.log_level, found.log_format) == ("error", "json")


def test_lists_stand_with_commas_in_a_variable_or_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDEMPROXY_PRODUCERS__DROPPED_HEADERS", "x-*, b3,")
    monkeypatch.setenv("IDEMPROXY_LISTENERS", '[{"bind": "[::]:1000", "broker_ids": 3}]')
    found = load(None, {"upstream": "a:1, [::1]:2"})
    assert found.upstream == (("a", 1), ("::1", 2))
    assert found.dropped_headers == ("x-*", "b3")
    assert found.listeners == (Listener("clients", "::", 1000, 1001, (3,)),)


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDEMPROXY_REDIS__URL", "")
    monkeypatch.setenv("IDEMPROXY_CLUSTER_NAME", "")
    assert load(None, UPSTREAM) == load(None, UPSTREAM | {"cluster_name": "default"})


def test_every_option_is_a_setting_of_the_file() -> None:
    for place in OPTIONS.values():
        model: Any = Configuration
        for part in place:
            annotation = model.model_fields[str(part)].annotation
            model = next(
                (one for one in (annotation, *getattr(annotation, "__args__", ())) if hasattr(one, "model_fields")),
                None,
            )
        assert model is None, place


def test_listen_and_advertise_make_the_one_listener() -> None:
    found = load(None, UPSTREAM | {"listen": "[::1]:5000", "advertised_host": "kafka.example"})
    assert found.listeners == (Listener("clients", "::1", 5000, 5001, advertised=Advertised("kafka.example")),)
    assert load(None, UPSTREAM | {"advertised_host": "2001:db8::1"}).listeners[0].place_of(0, "") == (
        "2001:db8::1",
        9093,
    )


@pytest.mark.parametrize("option", [{"listen": "127.0.0.1:1"}, {"advertised_host": "me"}])
def test_listen_and_advertise_never_stand_for_configured_listeners(tmp_path: Path, option: Mapping[str, str]) -> None:
    path = file(tmp_path, "upstream: {bootstrap: [a:1]}\nlisteners: [{bind: 127.0.0.1:2}]\n")
    option_name = next(iter(option)).replace("_", "-")
    assert problems(path, option) == [f"--{option_name}: the listeners are configured already, change them there"]


def test_the_login_of_redis_comes_from_url_variable_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("p:@ss\n")
    path = file(tmp_path, f"redis: {{url: redis://h:1/2, username: me, password_file: {secret}}}\n")
    assert load(path, UPSTREAM).redis == RedisAddress(("h", 1), "me", "p:@ss", 2)
    monkeypatch.setenv("IDEMPROXY_REDIS__PASSWORD", "from-variable")
    found = load(None, UPSTREAM | {"redis": "unix:///run/redis.sock"}).redis
    assert found == RedisAddress("/run/redis.sock", None, "from-variable")
    assert problems(path, UPSTREAM) == [
        f"{path}:1: redis: the password is said twice: in url, password or password_file"
    ]


def test_a_password_may_come_out_of_a_pipe() -> None:
    for place, options in (("redis", {"redis": "redis://h"}), ("upstream_sasl", {})):
        reader, writer = os.pipe()
        os.write(writer, b"from the pipe\n")
        os.close(writer)
        section = (
            "redis" if place == "redis" else "upstream: {allow_unauthenticated_clients: true, bootstrap: [a:1], sasl"
        )
        rest = "}" if place == "redis" else ", mechanism: PLAIN, username: u}}"
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as written:
            written.write(f"{section}: {{password_file: /dev/fd/{reader}{rest}\n")
            written.flush()
            found = load(Path(written.name), UPSTREAM | options)
        os.close(reader)
        assert getattr(found, place).password == "from the pipe"


# ---------------------------------------------------------------------- mistakes
def test_all_mistakes_are_reported_at_once_each_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(
        tmp_path,
        """\
upstream:
  bootstrap: [kafka-1:9092, kafka-2]
  tsl: {}
listeners:
  - bind: 0.0.0.0:9092
    advertised: broker-{id}.example
  - bind: 127.0.0.1:20000
    tls: {key_file: /nowhere}
limits:
  connections_max: many
  connections_max: 10
log: {level: loud}
nonsense: 1
""",
    )
    monkeypatch.setenv("IDEMPROXY_LIMITS__DRAIN_SECOND", "1")
    monkeypatch.setenv("IDEMPROXY_LIMITS__PRODUCERS_MAX", "-1")
    monkeypatch.setenv("IDEMPROXY_REDDIS__URL", "redis://secret")
    known = ", ".join(Configuration.model_fields)
    assert problems(path, {"cluster_name": "a b"}) == [
        f"{path}:11: limits.connections_max: is there already in line 10",
        "IDEMPROXY_REDDIS__URL: unknown variable; did you mean IDEMPROXY_REDIS?",
        "--cluster-name: expected letters, digits, dots, underscores and hyphens, at most 64",
        "IDEMPROXY_LIMITS__PRODUCERS_MAX: expected at least 1, not '-1'",
        "IDEMPROXY_LIMITS__DRAIN_SECOND: unknown variable; did you mean IDEMPROXY_LIMITS__DRAIN_SECONDS?",
        f"{path}:2: upstream.bootstrap[1]: expected HOST:PORT, with a port from 1 to 65535, not 'kafka-2'",
        f"{path}:3: upstream.tsl: unknown key; did you mean tls?",
        f"{path}:6: listeners[0].advertised: expected HOST:PORT, with a port from 1 to 65535, "
        "not 'broker-{id}.example'",
        f"{path}:8: listeners[1].tls.key_file: /nowhere cannot be read: No such file or directory",
        f"{path}:8: listeners[1].tls.cert_file: is missing",
        f"{path}:12: log.level: expected debug, info, warning or error, not 'loud'",
        f"{path}:13: nonsense: unknown key; there are {known}",
    ]


def test_without_a_cluster_one_line_says_what_is_wanted() -> None:
    (line,) = problems(None, {})
    assert line.startswith("upstream: is missing: a broker of the cluster, HOST:PORT (--upstream, IDEMPROXY_UPSTREAM__")


@pytest.mark.parametrize(
    ("listeners", "sentence"),
    [
        ("[]", "list should have at least 1 item"),
        ("[{bind: '[::1]:9092'}, {bind: '127.0.0.1:9100', name: b}]", ""),
        ("[{bind: '0.0.0.0:9092'}, {bind: '127.0.0.1:9100', name: b}]", "both want port 9100: list the brokers"),
        ("[{bind: 'h:1'}, {bind: 'g:1'}]", "two listeners have the name 'clients'"),
        ("[{routing: sni}]", "listeners[0]: routing sni needs {id} in the host of advertised"),
        ("[{bootstrap_name: a}]", "bootstrap_name is for routing sni"),
        ("[{bind: 'h:9092', first_broker_port: 9092}]", "port 9092 would be the bootstrap port and a broker's port"),
        ("[{bind: 'h:65535'}]", "the brokers' ports would end at"),
        ("[{first_broker_port: 65536}]", "expected at most 65535"),
        ("[{name: 'a b'}]", "should match pattern"),
    ],
)
def test_listeners_that_do_not_fit_together_are_reported(tmp_path: Path, listeners: str, sentence: str) -> None:
    path = file(tmp_path, f"upstream: {{bootstrap: [a:1]}}\nlisteners: {listeners}\n")
    if sentence:
        assert sentence in "\n".join(problems(path, {}))
    else:
        assert len(load(path, {}).listeners) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", r"c.yaml:1: this is no YAML: expected the node content"),
        ("a: b: c", r"c.yaml:1: this is no YAML: mapping values are not allowed here"),
        ("- 1", r"c.yaml:1: expected sections with names at the top"),
        ("text", r"c.yaml:1: expected sections with names at the top"),
        ("1: 2", r"c.yaml:1: expected sections with names at the top"),
        ("a: &a [*a]", r"c.yaml:1: this is no YAML: it contains itself"),
        ("a: !!python/object:os.system 1", r"c.yaml:1: this is no YAML: could not determine a constructor"),
        ("\0", r"c.yaml: this is no YAML"),
        ("a: " + 3000 * "[", r"c.yaml: this is no YAML of ours: it is nested too deeply"),
    ],
)
def test_a_file_that_is_no_configuration_is_reported_with_the_line(tmp_path: Path, text: str, sentence: str) -> None:
    (line,) = problems(file(tmp_path, text), UPSTREAM)
    assert sentence in line


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    assert problems(tmp_path / "gone.yaml", {}) == [
        f"{tmp_path / 'gone.yaml'}: cannot be read: No such file or directory"
    ]
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe")
    assert problems(tmp_path / "c.yaml", {}) == [f"{tmp_path / 'c.yaml'}: is no UTF-8 text"]


def test_a_variable_cannot_change_a_part_of_the_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDEMPROXY_LISTENERS__0__BIND", "127.0.0.1:1")
    (line,) = problems(None, UPSTREAM)
    assert line.startswith("IDEMPROXY_LISTENERS__...: listeners come as a whole, as in IDEMPROXY_LISTENERS=[{")


def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    assert load(file(tmp_path, "# nothing yet\n"), UPSTREAM) == load(None, UPSTREAM)


def test_what_kubernetes_puts_into_the_environment_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "IDEMPROXY_SERVICE_HOST",
        "IDEMPROXY_SERVICE_PORT_KAFKA",
        "IDEMPROXY_PORT",
        "IDEMPROXY_PORT_9092_TCP_ADDR",
        "IDEMPROXY_ADMIN_PORT",
        "IDEMPROXY_REDIS_MASTER_SERVICE_PORT",
    ):
        monkeypatch.setenv(name, "tcp://10.0.0.1:9092")
    assert load(None, UPSTREAM).listeners[0].port == 9092


# ---------------------------------------------------------------------- secrets
def test_no_secret_is_shown_in_settings_problems_or_what_check_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDEMPROXY_REDIS__PASSWORD", "hunter2")
    configuration = load_configuration(None, UPSTREAM | {"redis": "redis://h"})
    assert configuration.to_settings().redis == RedisAddress(("h", 6379), None, "hunter2")
    assert "hunter2" not in repr(configuration)
    assert "hunter2" not in repr(configuration.to_settings())
    assert "hunter2" not in json.dumps(configuration.model_dump(mode="json"))
    for url in ("redis://u:hunter2@h:bad", "http://u:hunter2@h"):
        found = problems(None, UPSTREAM | {"redis": url})
        assert len(found) == 1
        assert "hunter2" not in found[0]
    shown = load_configuration(None, UPSTREAM | {"redis": "unix:///x"}).model_dump(mode="json")["redis"]
    assert shown["password"] == "**********"
    assert shown["url"] == "unix:///x"


A_LIST = "expected a list: a line that begins with - for each, or [ ] around it"


@pytest.mark.parametrize("workers", ["two", "0", "65", "1.5", "[1]"])
def test_a_number_of_workers_that_is_none_is_one_sentence(tmp_path: Path, workers: str) -> None:
    path = file(tmp_path, f"workers: {workers}\n")
    (problem,) = problems(path, UPSTREAM)
    assert problem.startswith(f"{path}:1: workers: expected auto, or a number from 1 to 64")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("upstream: {bootstrap: ['PLAINTEXT://k:9092']}", "'PLAINTEXT://k:9092': expected HOST:PORT, without PLAINTEXT://"),
        ("upstream: {bootstrap: [k:1]}\nlimits: {drain_seconds: 25s}",
         "limits.drain_seconds: expected a valid number of seconds, without a unit, not '25s'"),
        ("upstream: {bootstrap: [k:1]}\nlisteners: [{bind: 9092}]", "listeners[0].bind: expected HOST:PORT"),
    ],
)  # fmt: skip
def test_a_usual_mistake_is_reported_with_what_is_wanted(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = problems(file(tmp_path, f"{text}\n"), {})
    assert problem in found


def test_a_variable_with_one_underscore_for_two_is_reported_with_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDEMPROXY_UPSTREAM_BOOTSTRAP", "k:1")
    assert "IDEMPROXY_UPSTREAM_BOOTSTRAP: unknown variable; did you mean IDEMPROXY_UPSTREAM__BOOTSTRAP?" in problems(
        None, UPSTREAM
    )


def test_a_secret_in_the_wrong_place_is_not_shown_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, "redis: redis://u:hunter2@h\nlisteners: 'key_password: hunter2'\nadmin: [hunter2]\n")
    assert problems(path, UPSTREAM) == [
        f"{path}:1: redis: expected a section with names: url, username, password, password_file, tls",
        f"{path}:2: listeners: {A_LIST}",
        f"{path}:3: admin: expected a section with names: bind",
    ]
    assert problems(None, {"upstream": "redis://u:hunter2@h"}) == [
        "--upstream: a text with an @: expected HOST:PORT, without redis://"
    ]
    monkeypatch.setenv("IDEMPROXY_LISTENERS", "[{tls: {key_password: hunter2}")
    assert problems(None, UPSTREAM) == [f"IDEMPROXY_LISTENERS: {A_LIST}"]


@pytest.mark.parametrize("written", ["!hunter2", "!hunter2'", "!hunter2!now", "*hunter2"])
def test_a_password_that_is_something_else_to_yaml_is_not_shown(tmp_path: Path, written: str) -> None:
    (problem,) = problems(file(tmp_path, f"redis:\n  password: {written}\n"), UPSTREAM)
    assert "yaml:2: this is no YAML: " in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("password", ["p%40ss", "p@:ss", "p\tss"])
def test_the_password_of_a_url_is_masked(password: str) -> None:
    configuration = load_configuration(None, UPSTREAM | {"redis": f"redis://u:{password}@h:1"})
    assert configuration.model_dump(mode="json")["redis"]["url"] == "redis://u:**********@h:1"


def test_of_a_url_that_is_none_nothing_is_shown() -> None:
    assert problems(None, UPSTREAM | {"redis": "redis://:1[hunter2]@h"}) == ["--redis: this is no URL"]


# ---------------------------------------------------------------------- schema and documentation
def test_the_committed_schema_is_that_of_the_settings() -> None:
    committed = json.loads((ROOT / "docs/configuration.schema.json").read_text())
    assert committed == schema(), "idemproxy schema > docs/configuration.schema.json"


def test_every_setting_has_a_text() -> None:
    for section, definition in {"": schema(), **schema()["$defs"]}.items():
        for name, about in definition["properties"].items():
            assert about.get("description") or "$ref" in json.dumps(about), f"{section}.{name}"


def test_every_configuration_in_the_documentation_is_good(tmp_path: Path) -> None:
    documentation = (ROOT / "docs/reference/settings.md").read_text()
    examples = re.findall(r"^```yaml\n(.*?)^```", documentation, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 2
    (tmp_path / "some-file").write_text("something")
    for example in examples:
        text = re.sub(r"(?<=_file: )[^\s,}]+", str(tmp_path / "some-file"), example)
        given = {} if "\nupstream:" in f"\n{text}" else UPSTREAM
        load(file(tmp_path, text), given)


def test_every_variable_in_the_documentation_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    documentation = (ROOT / "docs/reference/settings.md").read_text()
    variables = re.findall(r"^(IDEMPROXY_\w+)=(.+)$", documentation, re.MULTILINE)
    assert len(variables) >= 5
    for name, value in variables:
        monkeypatch.setenv(name, value)
    found = load(None, {})
    assert found.cluster == "orders"
    assert found.limits.connections_max == 20_000


# ---------------------------------------------------------------------- what may be reloaded
def test_settings_that_may_change_at_runtime_are_distinguished_from_others() -> None:
    old = load(None, UPSTREAM | {"redis": "redis://h"})
    assert changes(old, old) == changes(old, replace(old))
    new = replace(
        old,
        limits=Caps(drain_seconds=1.0),
        log_level="debug",
        dropped_headers=("x",),
        producer_expiry_seconds=1,
        client_retry_seconds_max=700,
        upstream=(("other", 1),),
        redis=RedisAddress(("g", 6379), "me", "secret", 1),
        append_reservations=False,
        topics=TopicDefaults(12, 3),
        conditional_topics=("wal-*",),
        hidden_ranges_topic="second-copies",
        listeners=(replace(old.listeners[0], host="::1", port=1, advertised=Advertised("me")),),
    )
    found = changes(old, new)
    assert set(found.taken) == {
        "limits.drain_seconds",
        "topics.default_partitions",
        "topics.default_replication_factor",
        "log.level",
        "producers.dropped_headers",
        "producers.expiry_seconds",
        "producers.client_retry_seconds_max",
        "redis.username",
        "redis.password",
    }
    assert set(found.refused) == {
        "upstream.bootstrap",
        "redis.url",
        "producers.append_reservations",
        "topics.conditional",
        "hidden_ranges.topic",
        "listeners[0].bind",
        "listeners[0].advertised",
    }
    assert len(found.refused) == 7, "each once"
    assert changes(old, replace(old, redis=None)).refused == ("redis",)
    assert changes(old, replace(old, listeners=(old.listeners[0],) * 2)).refused == ("listeners",)


# ---------------------------------------------------------------------- the image
def test_what_the_image_says_is_a_default_below_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container nobody reaches 127.0.0.1, and its health check asks the admin port."""
    dockerfile = (Path(__file__).resolve().parents[3] / "Dockerfile").read_text()
    said = dict(re.findall(r"(IDEMPROXY_DEFAULT_\w+)=(\S+)", dockerfile))
    assert len(said) == 2
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    found = load(None, UPSTREAM)
    assert (found.listeners[0].host, found.listeners[0].port, found.admin) == ("0.0.0.0", 9092, ("127.0.0.1", 9644))
    named = load(None, UPSTREAM | {"advertised_host": "proxy.example"})
    assert (named.listeners[0].host, named.listeners[0].advertised.host) == ("0.0.0.0", "proxy.example")
    path = file(tmp_path, "listeners: [{bind: '127.0.0.1:5000'}]\nadmin: {bind: '127.0.0.1:6000'}\n")
    own = load(path, UPSTREAM)
    assert (own.listeners[0].port, own.admin) == (5000, ("127.0.0.1", 6000))
    assert load(None, UPSTREAM | {"listen": "127.0.0.1:7000"}).listeners[0].host == "127.0.0.1"


def test_the_topic_of_hidden_ranges_has_a_name_that_brokers_take(tmp_path: Path) -> None:
    assert load(None, UPSTREAM).hidden_ranges_topic is None
    text = "hidden_ranges: {topic: second-copies}\n"
    assert load(file(tmp_path, f"upstream: {{bootstrap: [h:1]}}\n{text}"), {}).hidden_ranges_topic == "second-copies"
    assert problems(file(tmp_path, "upstream: {bootstrap: [h:1]}\nhidden_ranges: {topic: a/b}\n"), {})


# ---------------------------------------------------------------------- the journal
@pytest.mark.parametrize(
    ("written", "options", "found"),
    [
        ("journal: a/j", {}, JournalSettings(Path("a/j"))),
        ("journal: {path: a, keep_files: 3}", {}, JournalSettings(Path("a"), keep_files=3)),
        ("journal: {path: a, required: true}", {"journal": "b"}, JournalSettings(Path("b"), required=True)),
        ("journal: a", {"journal": "b"}, JournalSettings(Path("b"))),
        ("journal:", {}, None),
        ("log: {}", {"journal": "b"}, JournalSettings(Path("b"))),
    ],
)
def test_journals_are_path_or_section_and_a_path_option_keeps_the_rest(
    tmp_path: Path, written: str, options: Mapping[str, str], found: JournalSettings | None
) -> None:
    path = file(tmp_path, f"upstream: {{bootstrap: [a:1]}}\n{written}\n")
    assert load(path, options).journal == found


def test_variables_of_the_journal_stand_above_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, "upstream: {bootstrap: [a:1]}\njournal: {path: a, required: true, fsync_seconds: 0.5}\n")
    monkeypatch.setenv("IDEMPROXY_JOURNAL", "b")
    assert load(path, {}).journal == JournalSettings(Path("b"), required=True, fsync_seconds=0.5)
    monkeypatch.delenv("IDEMPROXY_JOURNAL")
    monkeypatch.setenv("IDEMPROXY_JOURNAL__REQUIRED", "false")
    monkeypatch.setenv("idemproxy_journal__rotate_bytes", "7")
    assert load(path, {}).journal == JournalSettings(Path("a"), rotate_bytes=7, fsync_seconds=0.5)
    monkeypatch.setenv("IDEMPROXY_JOURNAL", "b")
    assert problems(path, {}) == [
        "IDEMPROXY_JOURNAL: the path is given next to IDEMPROXY_JOURNAL__REQUIRED: give it as IDEMPROXY_JOURNAL__PATH",
    ]


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("{keep_files: 3}", "journal.path: is missing"),
        ("{path: a, keep_file: 3}", "journal.keep_file: unknown key; did you mean keep_files?"),
        ("{path: a, rotate_bytes: -1}", "journal.rotate_bytes: expected at least 0, not -1"),
        (
            "[a]",
            "journal: expected a section with names: path, rotate_bytes, keep_files, fsync_seconds, required",
        ),
    ],
)
def test_a_mistake_in_a_journal_section_is_reported_with_the_line(tmp_path: Path, written: str, sentence: str) -> None:
    path = file(tmp_path, f"upstream: {{bootstrap: [a:1]}}\njournal: {written}\n")
    assert problems(path, {}) == [f"{path}:2: {sentence}"]


def test_all_of_a_journal_but_its_path_may_change_while_it_runs() -> None:
    old = replace(load(None, UPSTREAM), journal=JournalSettings(Path("a")))
    new = replace(old, journal=JournalSettings(Path("a"), 1, 2, 3.0, True))
    names = ("rotate_bytes", "keep_files", "fsync_seconds", "required")
    assert changes(old, new).taken == tuple(f"journal.{name}" for name in names)
    assert changes(old, new).refused == ()
    assert changes(old, replace(old, journal=JournalSettings(Path("b")))).refused == ("journal.path",)
    assert changes(old, replace(old, journal=None)).refused == ("journal",)
