"""``idemproxy check``: all that would stop a start, in one go, each with its place; nothing is changed by looking."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.proxy.commands import check_connect
from idemproxy.proxy.main import main
from idemproxy.proxy.process.findings import Finding
from testkit.real.tls.certificates import Authority

NOBODY = 65_534
Said = pytest.CaptureFixture[str]


def said_of(said: Said, path: Path, text: str) -> list[str]:
    """The complaints about such a file, without the name of the program and of the file."""
    path.write_text(text)
    status = main(["check", os.fspath(path)])
    lines = said.readouterr().err.splitlines()
    assert status == (2 if lines else 0)
    if lines:
        assert lines.pop().startswith("configuration is not valid: ")
    return [line.removeprefix("idemproxy: ").removeprefix(f"{path}:") for line in lines]


@contextmanager
def with_few_rights() -> Iterator[None]:
    """As somebody for whom the rights of files count."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "c.yaml"


@pytest.fixture
def locked() -> Iterator[Path]:
    """A directory that everybody may enter and read, and a user with few rights may not write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        yield Path(name)
        Path(name).chmod(0o755)


# ---------------------------------------------------------------------- the admin port
@pytest.mark.parametrize(
    ("listener", "admin", "problem"),
    [
        ("{}", "{}", None),
        ("{bind: '127.0.0.1:9092'}", "127.0.0.1:9092", "port 9092 is the bootstrap port of listener 'clients'"),
        ("{bind: '0.0.0.0:9092'}", "127.0.0.1:9092", "port 9092 is the bootstrap port of listener 'clients'"),
        ("{bind: '127.0.0.1:9092'}", "[::]:9092", "port 9092 is the bootstrap port of listener 'clients'"),
        ("{bind: '127.0.0.1:9092'}", "10.0.0.1:9092", None),
        ("{bind: 'h:1'}", "h:4", "port 4 is that of broker 2 at listener 'clients'"),
        ("{bind: 'h:1', broker_ids: '7,1001', name: a}", "h:3", "port 3 is that of broker 1001 at listener 'a'"),
        ("{bind: 'h:1', broker_ids: '7,1001'}", "h:4", None),
        ("{bind: 'h:1', first_broker_port: 65530}", "h:65535", "port 65535 is that of broker 5 at listener 'clients'"),
    ],
)
def test_an_admin_port_that_is_a_listeners_is_refused_with_its_place(
    path: Path, capsys: Said, listener: str, admin: str, problem: str | None
) -> None:
    bind = "" if admin == "{}" else f"bind: '{admin}'"
    said = said_of(capsys, path, f"upstream: {{bootstrap: [k:1]}}\nlisteners: [{listener}]\nadmin: {{{bind}}}\n")
    assert said == ([] if problem is None else [f"3: admin: {problem}"])


def test_run_refuses_it_in_the_same_words(path: Path, capsys: Said) -> None:
    assert main(["run", "--upstream", "k:1", "--listen", "127.0.0.1:5000", "--admin-bind", "127.0.0.1:5001"]) == 78
    said = capsys.readouterr().err
    assert said == "idemproxy: admin: port 5001 is that of broker 0 at listener 'clients'\n"
    assert not (path.parent / "data").exists()


# ---------------------------------------------------------------------- data directory and journal
def test_what_run_would_make_may_be_missing_and_is_not_made(path: Path, capsys: Said) -> None:
    text = "upstream: {bootstrap: [k:1]}\ndata_directory: a/b/c\njournal: j\n"
    assert said_of(capsys, path, text) == []
    assert [one.name for one in path.parent.iterdir()] == ["c.yaml"]
    for name in ("a", "a/b", "a/b/c"):
        (path.parent / name).mkdir()
    (path.parent / "j").touch()
    (path.parent / "a/b/c/proxy.lock").touch()
    assert said_of(capsys, path, text) == []


def test_an_unusable_data_directory_or_journal_is_reported_with_the_line(path: Path, capsys: Said) -> None:
    (path.parent / "file").touch()
    (path.parent / "folder").mkdir()
    (path.parent / "gone").symlink_to("nowhere")
    start = "upstream: {bootstrap: [k:1]}\n"
    for name, culprit in (("file", "file"), ("file/below", "file"), ("gone", "gone")):
        (said,) = said_of(capsys, path, f"{start}data_directory: {name}\n")
        assert said == f"2: data_directory: the data directory {name} cannot be used: {culprit} is no directory"
    for name, problem in (
        ("folder", "it is a directory"),
        ("missing/j", "missing is missing"),
        ("file/j", "file is no directory"),
    ):
        (said,) = said_of(capsys, path, f"{start}journal: {name}\n")
        assert said == f"2: journal: {name} cannot be written: {problem}"


def test_an_unusable_journal_is_reported_with_the_variable_that_names_it(
    path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDEMPROXY_JOURNAL", "missing/j")
    (said,) = said_of(capsys, path, "upstream: {bootstrap: [k:1]}\n")
    assert said == "IDEMPROXY_JOURNAL: missing/j cannot be written: missing is missing"


def test_an_unwritable_data_directory_or_journal_is_reported(
    locked: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDEMPROXY_UPSTREAM__BOOTSTRAP", "k:1")
    monkeypatch.setenv("IDEMPROXY_DATA_DIRECTORY", f"{locked}/a/b")
    monkeypatch.setenv("IDEMPROXY_JOURNAL", f"{locked}/j")
    with with_few_rights():
        assert main(["check"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"idemproxy: IDEMPROXY_DATA_DIRECTORY: the data directory {locked}/a/b cannot be used: "
        f"{locked} may not be written",
        f"idemproxy: IDEMPROXY_JOURNAL: {locked}/j cannot be written: {locked} may not be written",
        "configuration is not valid: 2 problems",
    ]


def test_unwritable_files_of_an_earlier_process_are_reported(
    locked: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDEMPROXY_UPSTREAM__BOOTSTRAP", "k:1")
    monkeypatch.setenv("IDEMPROXY_DATA_DIRECTORY", f"{locked}/data")
    monkeypatch.setenv("IDEMPROXY_JOURNAL", f"{locked}/j")
    (locked / "data").mkdir()
    (locked / "data").chmod(0o777)
    for file in (locked / "data/proxy.lock", locked / "j"):
        file.touch()
        file.chmod(0o444)
    with with_few_rights():
        assert main(["check"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"idemproxy: IDEMPROXY_DATA_DIRECTORY: the data directory {locked}/data cannot be used: "
        f"{locked}/data/proxy.lock may not be written",
        f"idemproxy: IDEMPROXY_JOURNAL: {locked}/j cannot be written: it may not be written",
        "configuration is not valid: 2 problems",
    ]


# ---------------------------------------------------------------------- what was tried
@pytest.mark.parametrize(("signs", "status"), [(("ok",), 0), (("ok", "warning"), 0), (("warning", "problem", "ok"), 1)])
def test_findings_follow_the_configuration_and_only_a_problem_is_a_failure(
    path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, signs: tuple[str, ...], status: int
) -> None:
    monkeypatch.setattr(
        check_connect, "try_everything", lambda _settings: [Finding(one, "redis", "x") for one in signs]
    )
    path.write_text("upstream: {bootstrap: [k:1]}\n")
    assert main(["check", os.fspath(path), "--connect"]) == status
    kernel, *found, verdict = capsys.readouterr().out.splitlines()
    assert kernel.startswith("ok      checksums and conversion: ")
    shown = {"ok": "ok      redis: x", "warning": "warning redis: x", "problem": "PROBLEM redis: x"}
    assert found == [shown[one] for one in signs]
    assert verdict == VERDICTS[signs]


VERDICTS = {
    ("ok",): "configuration is valid, and what it names can be used",
    ("ok", "warning"): "configuration is valid, and what it names can be used; 1 warning",
    ("warning", "problem", "ok"): "configuration is valid, but it would not work: 1 problem",
}


def test_an_unreachable_broker_is_reported_with_the_origin_of_its_address() -> None:
    away = Finding("problem", "broker 0 at kafka-0:9092", "cannot connect: connection refused: nothing listens there")
    assert check_connect._advertised(away).text == (
        "cannot connect: connection refused: nothing listens there; the cluster names this address (the broker's "
        "advertised.listeners)"
    )
    for other in (Finding("ok", "broker 0 at k:1", "Kafka 0.10.2"), away._replace(text="too old: Kafka 0.9")):
        assert check_connect._advertised(other) == other


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("an answer cannot be read: frame size: this is an alert of TLS: TLS is spoken there", "set upstream.tls, "),
        ("this listener of the broker takes no SASL", "remove upstream.sasl, "),
    ],
)
def test_a_listener_that_speaks_something_else_is_reported_with_the_setting(reason: str, remedy: str) -> None:
    found = Finding("problem", "upstream k:1", reason)
    assert check_connect._with_remedy(found).text.startswith(f"{reason}; {remedy}")
    for other in (found._replace(sign="ok"), found._replace(text="no answer within 5 s")):
        assert check_connect._with_remedy(other) == other


def test_the_last_line_is_the_verdict_and_the_configuration_is_shown_only_on_demand(path: Path, capsys: Said) -> None:
    path.write_text("upstream: {bootstrap: [k:1]}\n")
    assert main(["check", os.fspath(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "configuration is valid"
    assert not any("bootstrap" in line for line in lines)
    assert main(["check", os.fspath(path), "--effective"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "# configuration is valid"
    assert yaml.safe_load(out)["upstream"]["bootstrap"] == ["k:1"]


def test_check_with_quiet_prints_nothing_but_problems(path: Path, capsys: Said) -> None:
    path.write_text("upstream: {bootstrap: [k:1]}\n")
    assert main(["check", os.fspath(path), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    path.write_text("upstream: {bootstrap: [k]}\n")
    assert main(["check", os.fspath(path), "--quiet"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.partition("upstream")[2] for line in said.err.splitlines()] == [
        ".bootstrap[0]: expected HOST:PORT, with a port from 1 to 65535, not 'k'"
    ]


def test_machines_get_one_object_whether_it_is_right_or_wrong(path: Path, capsys: Said) -> None:
    path.write_text("upstream: {bootstrap: [k:1]}\nredis: {url: 'redis://me:secret@h'}\n")
    assert main(["check", os.fspath(path), "--json", "--effective"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out)
    assert (found["valid"], found["verdict"], found["problems"]) == (True, "configuration is valid", [])
    assert [set(one) for one in found["findings"]] == [{"sign", "what", "text"}]
    assert found["configuration"]["upstream"]["bootstrap"] == ["k:1"]
    assert "secret" not in out
    path.write_text("nonsense: 1\nupstream: {bootstrap: [k:1]}\n")
    assert main(["check", os.fspath(path), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], len(found["problems"]), "configuration" in found) == (False, 1, False)


def test_the_options_of_run_are_checked_as_well(path: Path, capsys: Said) -> None:
    assert main(["check", "--upstream", "k:1,l", "--listen", "h:70000"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "idemproxy: --upstream: expected HOST:PORT, with a port from 1 to 65535, not 'l'",
        "idemproxy: --listen: expected HOST:PORT, with a port from 1 to 65535, not 'h:70000'",
        "configuration is not valid: 2 problems",
    ]


# ---------------------------------------------------------------------- all at once
def test_certificates_secrets_and_directories_are_looked_at_though_other_keys_are_wrong(
    path: Path, capsys: Said
) -> None:
    authority = Authority(path.parent)
    own, other = authority.issue("own"), authority.issue("other")
    (path.parent / "secret").write_bytes(b"\xff")
    listener = {"cert_file": str(own.cert), "key_file": str(other.key), "minimum_verson": "1.3"}
    upstream = {"ca_file": str(own.key)}
    text = yaml.safe_dump({"upstream": {"tls": upstream, "bootstrap": ["k:1"]}}, sort_keys=False)
    text += yaml.safe_dump({"listeners": [{"bind": "h:nonsense", "tls": listener}]}, sort_keys=False)
    text += "redis: {url: 'redis://h', password_file: secret}\nlog: {levl: info}\njournal: missing/j\n"
    assert [one[: len(wanted)] for one, wanted in zip(said_of(capsys, path, text), WANTED, strict=True)] == WANTED


WANTED = [
    "2: upstream.tls: ca_file ",
    "7: listeners[0].bind: expected HOST:PORT, with a port from 1 to 65535, not 'h:nonsense'",
    "8: listeners[0].tls: the key in ",
    "11: listeners[0].tls.minimum_verson: unknown key; did you mean minimum_version?",
    "12: redis.password_file: secret is no UTF-8 text",
    "13: log.levl: unknown key; did you mean level?",
    "14: journal: missing/j cannot be written",
]


def test_tls_settings_for_old_brokers_are_accepted_despite_a_mistake_elsewhere(path: Path, capsys: Said) -> None:
    upstream = "upstream: {bootstrap: ['k:1'], tls: {security_level: 0, minimum_version: '1.0', ca_file: gone}}\n"
    upstream_said, mistake = said_of(capsys, path, upstream + "log: {levl: info}\n")
    assert upstream_said.startswith("1: upstream.tls.ca_file: ")
    assert mistake == "2: log.levl: unknown key; did you mean level?"
    assert said_of(capsys, path, upstream.replace(", ca_file: gone", "") + "log: {levl: info}\n") == [mistake]


@pytest.mark.parametrize("elsewhere", ["", "log: {level: loud}\n"])
@pytest.mark.parametrize("third", ["", ", {bind: nowhere, name: c}", ", {bind: 'h:5000', name: c, colour: red}", ", 7"])
def test_valid_listeners_are_compared_despite_invalid_ones_and_nothing_is_reported_twice(
    path: Path, capsys: Said, third: str, elsewhere: str
) -> None:
    text = f"upstream: {{bootstrap: [k:1]}}\nlisteners: [{{bind: 'h:1'}}, {{bind: 'h:1'}}{third}]\n{elsewhere}"
    said = said_of(capsys, path, f"{text}admin: {{bind: 'h:5000'}}\n")
    clashes = [one for one in said if "both want port 1: " in one]
    assert len(clashes) == 1
    assert sum("two listeners have the name 'clients'" in one for one in said) == 1
    assert sum("port 5000 is the bootstrap port of listener 'c'" in one for one in said) == ("colour" in third)
    assert len(said) <= 5


@pytest.mark.parametrize("wrong", ["", "redis: 1\n"])
def test_unauthenticated_clients_are_reported_though_something_else_is_wrong(
    path: Path, capsys: Said, wrong: str
) -> None:
    login: dict[str, Any] = {"mechanism": "PLAIN", "username": "u", "password": "p"}
    for listener, upstream in (({}, {"nonsense": 1}), ({"colour": 1}, {})):
        text = yaml.safe_dump({"upstream": {"bootstrap": ["k:1"], "sasl": login, **upstream}, "listeners": [listener]})
        said = said_of(capsys, path, text + wrong)
        assert sum("would act at the brokers with the rights of the proxy's own principal" in one for one in said) == 1


def test_an_empty_password_is_reported_with_its_place_among_other_mistakes(path: Path, capsys: Said) -> None:
    (path.parent / "secret").touch()
    sasl = "{mechanism: PLAIN, username: u, password_file: secret}"
    said = said_of(capsys, path, f"upstream: {{bootstrap: [k:1], sasl: {sasl}}}\nlog: {{level: loud}}\n")
    assert said[0] == "1: upstream.sasl: the password is empty or has a zero byte"
    assert said[1].startswith("2: log.level: ")
