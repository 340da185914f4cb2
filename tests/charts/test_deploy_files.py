"""What deploy/ has for machines without Kubernetes: the unit for systemd, and the file for Docker Compose. Each is put
before the programs or schemas that read it elsewhere, and what it gives the proxy before the proxy itself."""

from __future__ import annotations

import base64
import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from charts.go_tools import folder_of
from charts.rendering import CHART

from idemproxy.demo.ports import free_ports
from idemproxy.proxy import limits
from idemproxy.proxy.process.run import WRONG_CONFIGURATION
from idemproxy.proxy.settings.load import load
from idemproxy.state.redis_server import WAIT_SECONDS_MAX
from runs.alert_rules import ALERTS, RULES, rules_text

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/idemproxy.service"
UNIT_CONFIGURATION = ROOT / "deploy/systemd/idemproxy.yaml"
COMPOSE = ROOT / "deploy/compose/compose.yaml"
COMPOSE_SCHEMA = "github.com/compose-spec/compose-go/v2/schema"
GIVEN = {"UPSTREAM": "kafka1.example:9092,kafka2.example:9092", "ADVERTISED_HOST": "proxy.example"}


def unit() -> dict[str, dict[str, str]]:
    """The unit's sections. None of its keys is there twice, which systemd would allow."""
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return {name: dict(parser[name]) for name in parser.sections()}


# ---------------------------------------------------------------------- systemd
def test_systemd_understands_every_line_of_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.fail("systemd-analyze is missing: take Debian's package systemd", pytrace=False)
    command = Path(sys.executable).parent / "idemproxy"
    copied = tmp_path / UNIT.name
    copied.write_text(UNIT.read_text().replace("/opt/idemproxy/bin/idemproxy", str(command)))
    done = subprocess.run([program, "verify", "--man=no", copied], capture_output=True, text=True, timeout=60)
    said = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert (done.returncode, said) == (0, [])
    copied.write_text(copied.read_text().replace("KillMode=mixed", "KillMode=mixt"))
    wrong = subprocess.run([program, "verify", "--man=no", copied], capture_output=True, text=True, timeout=60)
    assert "mixt" in wrong.stderr, "it looks at nothing"


def test_the_unit_gives_the_proxy_the_time_and_the_files_that_it_needs() -> None:
    service = unit()["Service"]
    assert int(service["TimeoutStopSec"]) >= limits.DRAIN_SECONDS + 25 + WAIT_SECONDS_MAX
    assert int(service["LimitNOFILE"]) >= 2 * limits.CONNECTIONS_MAX
    assert service["KillMode"] == "mixed"
    assert service["WorkingDirectory"] == f"%S/{service['StateDirectory']}"


def test_the_unit_starts_our_command_with_a_file_that_it_takes() -> None:
    _program, *words = unit()["Service"]["ExecStart"].split()
    assert words == ["run", "--config", f"/etc/idemproxy/{UNIT_CONFIGURATION.name}"]
    settings = load(UNIT_CONFIGURATION, {})
    assert [host for host, _ in settings.upstream] == ["kafka1.example", "kafka2.example"]
    assert not settings.data_directory.is_absolute(), "it lies in the state directory"


def test_what_the_unit_starts_takes_its_signals(tmp_path: Path) -> None:
    """As systemd would: in the state directory, its command to reload, SIGTERM to end. A small Debian has a shell and
    no ``/bin/kill``, so what reloads has to find nothing on its PATH."""
    service = unit()["Service"]
    first, admin = free_ports(2)
    file = tmp_path / "idemproxy.yaml"
    file.write_text(
        UNIT_CONFIGURATION.read_text()
        .replace("kafka1.example:9092, kafka2.example:9092", "127.0.0.1:1")
        .replace("0.0.0.0:9092", f"127.0.0.1:{first}")
        .replace("redis:\n  url: redis://redis.example:6379/0\n", "")
        .replace("9644", str(admin))
    )
    words = service["ExecStart"].replace("/etc/idemproxy/idemproxy.yaml", str(file)).split()
    state = tmp_path / "state"
    state.mkdir()
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "idemproxy", *words[1:]]
        process = subprocess.Popen(command, cwd=state, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not _lives(admin):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        reload = shlex.split(service["ExecReload"].replace("${MAINPID}", str(process.pid)))
        assert subprocess.run(reload, env={"PATH": os.fspath(tmp_path)}, timeout=60).returncode == 0
        while "reload" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        assert (state / "data").is_dir()
    finally:
        process.terminate()
        assert process.wait(60) == 0, (tmp_path / "log").read_text()


def _lives(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_unit_never_restarts_a_wrong_configuration_and_starts_without_timeout() -> None:
    service = unit()["Service"]
    assert service["RestartPreventExitStatus"] == str(WRONG_CONFIGURATION)
    assert (service["Type"], service["NotifyAccess"], service["TimeoutStartSec"]) == ("notify", "all", "infinity")


# ---------------------------------------------------------------------- Prometheus and Grafana
def test_the_rules_are_those_of_the_chart_and_need_no_label_of_kubernetes(promtool: Path) -> None:
    assert RULES.read_text() == rules_text(), "make alert-rules"
    assert not re.search(r"\b(pods?|namespace|SELECTOR|[A-Z]+_SECONDS|PODS_WANTED)\b", RULES.read_text())
    assert len(yaml.safe_load(RULES.read_text())["groups"][0]["rules"]) == len(yaml.safe_load(ALERTS.read_text())) - 1
    checked = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_dashboard_is_that_of_the_chart() -> None:
    found = ROOT / "deploy/grafana/idemproxy.json"
    assert json.loads(found.read_text()) == json.loads((CHART / "files/dashboard.json").read_text())


# ---------------------------------------------------------------------- Docker Compose
def composed(given: dict[str, str]) -> dict[str, Any]:
    """The file with its variables put in, as Compose does it: ``${NAME:-default}`` and ``${NAME:?message}``."""

    def put_in(match: re.Match[str]) -> str:
        name, kind, text = match.groups()
        if name in given:
            return given[name]
        assert kind == ":-", f"{name}: {text}"
        return text

    data = yaml.safe_load(re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", put_in, COMPOSE.read_text()))
    assert isinstance(data, dict)
    return data


def test_the_file_is_one_that_compose_takes() -> None:
    schema = json.loads((folder_of("compose", COMPOSE_SCHEMA) / "compose-spec.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    file = composed(GIVEN)
    assert [error.message for error in validator.iter_errors(file)] == []
    file["services"]["proxy"]["port"] = file["services"]["proxy"].pop("ports")
    assert list(validator.iter_errors(file)) != [], "it looks at nothing"
    named = {volume.partition(":")[0] for service in file["services"].values() for volume in service["volumes"]}
    assert named == set(file["volumes"])
    assert set(file["services"]["proxy"]["depends_on"]) <= set(file["services"])


def test_the_proxy_takes_the_environment_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = composed(GIVEN)["services"]["proxy"]
    for name, value in proxy["environment"].items():
        monkeypatch.setenv(name, str(value))
    settings = load(None, {})
    assert proxy["command"] == ["run"]
    assert [host for host, _ in settings.upstream] == ["kafka1.example", "kafka2.example"]
    (listener,) = settings.listeners
    assert str(listener.advertised) == "proxy.example:{port}"
    assert settings.redis is not None
    assert settings.redis.address[0] in composed(GIVEN)["services"]


def test_what_the_file_publishes_is_what_the_image_opens() -> None:
    proxy = composed(GIVEN)["services"]["proxy"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    first, last = map(int, proxy["ports"][0].partition(":")[2].split("-"))
    exposed = re.findall(r"^EXPOSE (\d+) (\d+)-(\d+) (\d+)$", dockerfile, re.MULTILINE)
    assert exposed == [(str(first), str(first + 1), str(last), "9644")]
    assert proxy["ports"][1] == "127.0.0.1:9644:9644"
    assert [volume.partition(":")[2] for volume in proxy["volumes"]] == re.findall(r"^VOLUME (\S+)$", dockerfile, re.M)
    assert int(proxy["stop_grace_period"].removesuffix("s")) >= limits.DRAIN_SECONDS + 25
    assert proxy["ulimits"]["nofile"] >= 2 * limits.CONNECTIONS_MAX


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_what_the_file_cannot_know_has_to_be_said(name: str) -> None:
    with pytest.raises(AssertionError, match=f"{name}: say"):
        composed({key: value for key, value in GIVEN.items() if key != name})


def test_redis_of_the_file_persists_everything_and_evicts_nothing() -> None:
    words = composed(GIVEN)["services"]["redis"]["command"]
    settings = dict(zip((word.removeprefix("--") for word in words[1::2]), words[2::2], strict=True))
    assert (settings["appendonly"], settings["maxmemory-policy"]) == ("yes", "noeviction")
    # It has no password: protected mode, the default of all Redis but that of the image, would refuse the proxy.
    assert settings["protected-mode"] == "no"


# ---------------------------------------------------------------------- the chart's icon
def test_the_icon_of_the_chart_is_the_picture_next_to_it() -> None:
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"]
    kind, _, content = icon.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(content) == (CHART / "icon.svg").read_bytes().strip()
    assert os.path.getsize(CHART / "icon.svg") < 1000
