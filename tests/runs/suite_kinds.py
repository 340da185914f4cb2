"""The clients' own suites that can be fetched by a package's name: how each is made, pointed at an address and read.

Each gets the release of its broker as a setting, and leaves out by itself what that release has not. A test that did
not end is one that failed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from idemproxy.demo.jars import broker_class_path, java_runtime

from .suite_tools import do, go, made, npm_source, python_source, python_with

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
Outcomes = Mapping[str, str]
"""By a test's name."""
_SUITE_SECONDS_MAX = 1_500
"""For a whole run of kafka-python (40 s) or kgo (2 minutes) on two busy cores."""
_TEST_SECONDS_MAX = 240
"""For a test that has a process of its own; the longest takes 41 s."""
_HANGING_SECONDS_MAX = 60
"""For those of which it is known that they do not end in front of some brokers."""


@dataclass(frozen=True)
class Place:
    """Where a suite is run: at ``address``, with a folder for what it writes."""

    address: tuple[str, int]
    zookeeper_address: tuple[str, int]
    folder: Path

    @property
    def text(self) -> str:
        """host:port."""
        return "{}:{}".format(*self.address)


@dataclass(frozen=True)
class Route:
    """One way to run a suite. ``told``: the broker's release that it is given. ``options``: to its program.
    ``proxy_options``: to the proxy."""

    name: str
    through_proxy: bool
    told: str
    options: tuple[str, ...] = ()
    proxy_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """A suite of one release of a client. ``run`` fetches and builds it where that was not done before."""

    name: str
    release: str
    ways: tuple[Route, ...]
    run: Callable[[Place, Route], Outcomes]


# ------------------------------------------------------------------ kafka-python
_KAFKA_PYTHON = "3.0.12"
_PYTEST = ("pytest==9.0.2", "pytest-timeout==2.4.0", "pytest-mock==3.15.1", "lz4==4.4.5", "python-snappy==0.7.3")
_SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
"""
"""A file of the repository that the source distribution leaves out; these two names are imported."""


def _make_kafka_python(folder: Path) -> None:
    python_source(f"kafka-python=={_KAFKA_PYTHON}", folder)
    (folder / "test" / "__init__.py").touch()  # else the standard library's "test" is found
    (folder / "test" / "service.py").write_text(_SERVICE)


def run_kafka_python(place: Place, way: Route) -> Outcomes:
    """Its integration tests, in one pytest."""
    folder = made(f"kafka-python-{_KAFKA_PYTHON}", _make_kafka_python)
    (folder / "servers" / way.told / "kafka-bin").mkdir(parents=True, exist_ok=True)
    report = place.folder / "report.xml"
    command: list[str | Path] = [
        python_with(*_PYTEST),
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        "--timeout",
        "120",
    ]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [f"test/integration/test_{part}_integration.py" for part in ("producer", "consumer", "admin")]
    environment = {"KAFKA_URI": f"kafka://{place.text}", "KAFKA_VERSION": way.told, "PYTHONPATH": os.fspath(folder)}
    _run(command, folder, environment, place.folder / "output.txt", _SUITE_SECONDS_MAX)
    return dict(_of_junit(ElementTree.fromstring(report.read_text())))


def _of_junit(report: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for case in report.iter("testcase"):
        parts = {part.tag for part in case}
        outcome = FAILED if parts & {"failure", "error"} else SKIPPED if "skipped" in parts else PASSED
        yield case.attrib["name"], outcome


# ------------------------------------------------------------------ franz-go
_FRANZ_GO = "v1.22.2"
_NEEDS_A_BROKER = re.compile(r"newTestClient|tmpTopic|tmpNamed|\badm\(\)|getSeedBrokers|tmpGroup|testChain")
_GO_TEST = re.compile(r"^func (Test\w+)\(t \*testing\.T\) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_GO_VERDICT = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+) ", re.MULTILINE)
_GO_WORDS = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
_HANGING = ("TestPooling", "TestTxnEtl")
"""They do not end when a record is refused: each has a process of its own, the others do not wait for them."""


def _make_franz_go(folder: Path) -> None:
    module = json.loads(do([go(), "mod", "download", "-json", f"github.com/twmb/franz-go@{_FRANZ_GO}"], folder))
    do(["cp", "--recursive", "--no-preserve=mode", f"{module['Dir']}/.", folder], folder)
    do([go(), "test", "-c", "-o", folder / "kgo.test", "./pkg/kgo"], folder)


def run_franz_go(place: Place, way: Route) -> Outcomes:
    """Those tests of kgo that need a broker."""
    folder = made(f"franz-go-{_FRANZ_GO}", _make_franz_go)
    sources = (folder / "pkg" / "kgo").glob("*_test.go")
    found = (match for source in sources for match in _GO_TEST.finditer(source.read_text()))
    names = sorted(match[1] for match in found if _NEEDS_A_BROKER.search(match[2]))
    together = [name for name in names if name not in _HANGING]
    outcomes = dict.fromkeys(names, FAILED)
    for part, seconds in ((together, _SUITE_SECONDS_MAX), *(([name], _HANGING_SECONDS_MAX) for name in _HANGING)):
        output = place.folder / f"output-{part[0]}.txt"
        command: list[str | Path] = [folder / "kgo.test", "-test.v", "-test.run", f"^({'|'.join(part)})$"]
        environment = {"KGO_SEEDS": place.text, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"}
        environment |= {"KGO_TEST_MAX_TOPIC_PARTS": "3", "KGO_LOG_LEVEL": "none"}
        _run(command, folder / "pkg" / "kgo", environment, output, seconds)
        outcomes |= {name: _GO_WORDS[word] for word, name in _GO_VERDICT.findall(output.read_text())}
    return outcomes


# ------------------------------------------------------------------ librdkafka
_LIBRDKAFKA = "2.15.1"
_LIBRDKAFKA_PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
"""Carries the sources of librdkafka with its tests."""
_TABLE = re.compile(r"^struct test tests\[\] = \{.*?^\};", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"_TEST\((\d{4})(_\w+),\s*([^,)]*)")
_LEFT_OUT = {"0038": "a benchmark", **{str(number).zfill(4): "share groups" for number in range(170, 191)}}
_STATES = {"PASSED": PASSED, "SKIPPED": SKIPPED}
_TOPICS_TOOL = '#!/bin/sh\nexec "{java}" -Xmx128m -cp "{class_path}" kafka.admin.TopicCommand "$@"\n'
_SETTINGS = "bootstrap.servers={address}\ntest.timeout.multiplier=3\ntest.topic.random=true\n"


def _make_librdkafka(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    npm_source(_LIBRDKAFKA_PACKAGE, package)
    source = package / "deps" / "librdkafka"
    for script in (source / "configure", source / "lds-gen.py", *(source / "mklove").iterdir()):
        script.chmod(0o755)
    do(["bash", "./configure", "--disable-curl"], source)
    do(["make", "-j2", "libs"], source)
    do(["make", "-j2", "-C", "tests", "build"], source)
    source.rename(folder / "librdkafka")
    do(["rm", "-r", package], folder)


def run_librdkafka(place: Place, way: Route) -> Outcomes:
    """Those of its tests that need a broker and not a certain cluster, each number in a process of its own, in its
    quick mode (as its authors test many brokers)."""
    source = made(f"librdkafka-{_LIBRDKAFKA}", _make_librdkafka) / "librdkafka"
    tests = source / "tests"
    settings, tool = place.folder / "test.conf", place.folder / "bin" / "kafka-topics.sh"
    settings.write_text(_SETTINGS.format(address=place.text))
    tool.parent.mkdir()
    tool.write_text(_TOPICS_TOOL.format(java=java_runtime(), class_path=broker_class_path()))
    tool.chmod(0o755)
    environment = {
        "RDKAFKA_TEST_CONF": os.fspath(settings),
        "KAFKA_VERSION": way.told,
        "KAFKA_PATH": os.fspath(place.folder),
        "ZK_ADDRESS": "{}:{}".format(*place.zookeeper_address),
        "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}",
    }
    outcomes: dict[str, str] = {}
    for number, names in _numbers((tests / "test.c").read_text()).items():
        report = place.folder / f"{number}.json"
        this = {**environment, "TESTS": number, "TEST_REPORT": os.fspath(report)}
        command = ["./test-runner", "-L", "-Q", "-p1", *way.options]
        _run(command, tests, this, place.folder / f"{number}.txt", _TEST_SECONDS_MAX)
        outcomes |= _of_report(names, report)
    return outcomes


def _numbers(source: str) -> Mapping[str, Sequence[str]]:
    """The tests that need a broker, by number."""
    table = _TABLE.search(source)
    assert table is not None, "test.c has no table of tests"
    found: dict[str, list[str]] = {}
    for number, rest, flags in _ENTRY.findall(table[0]):
        if "LOCAL" not in flags and "MANUAL" not in flags and number not in _LEFT_OUT:
            found.setdefault(number, []).append(number + rest)
    return found


def _of_report(names: Sequence[str], report: Path) -> Outcomes:
    try:
        tests = json.loads(report.read_text())["tests"]
    except (OSError, ValueError):
        return dict.fromkeys(names, FAILED)  # its process ended before it could be written
    return {name: _STATES.get(tests[name]["state"], FAILED) for name in names if name in tests}


# ------------------------------------------------------------------ all
def _run(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str], output: Path, seconds: int
) -> None:
    """Run a suite's program; what it prints goes to a file. What became of its tests is not in its exit status."""
    with output.open("w") as handle:
        process = subprocess.Popen(
            [os.fspath(part) for part in command],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=handle,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


_DIRECT = "at the broker"
_PROXY = "through the proxy"
_OLD, _NEW = "0.10.2.2", "0.11.0"
"""What a broker is, and what it seems to be behind the proxy."""
SUITES = (
    Suite(
        "kafka-python",
        _KAFKA_PYTHON,
        (
            Route(_DIRECT, False, _OLD),
            Route(f"{_PROXY}, told {_OLD}", True, _OLD),
            Route(_PROXY, True, _NEW),
            Route(f"{_PROXY}, which drops headers", True, _NEW, proxy_options=("--dropped-headers", "*")),
        ),
        run_kafka_python,
    ),
    Suite("franz-go", _FRANZ_GO, (Route(_DIRECT, False, _OLD), Route(_PROXY, True, _NEW)), run_franz_go),
    Suite(
        "librdkafka",
        _LIBRDKAFKA,
        (
            Route(_DIRECT, False, _OLD),
            Route(_PROXY, True, f"{_NEW}.0"),
            Route(f"{_PROXY}, all producers idempotent", True, f"{_NEW}.0", ("-P",)),
        ),
        run_librdkafka,
    ),
)
