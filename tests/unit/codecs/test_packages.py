"""Modules of a package without its ``__init__``: what is imported, and that the package is whole for everybody else."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.codecs.packages import without_init

NAME = "idemproxy_test_heavy"


@pytest.fixture
def heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that notes whether its ``__init__`` has run, as a module that it imports."""
    folder = tmp_path / NAME
    (folder / "below").mkdir(parents=True)
    (folder / "__init__.py").write_text(f"from {NAME} import client\nfrom .light import VALUE\n__version__ = '1'\n")
    (folder / "client.py").write_text("")
    (folder / "light.py").write_text("VALUE = object()\n")
    (folder / "below/__init__.py").write_text("from .. import client\n")
    (folder / "below/light.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def has_run() -> bool:
    return f"{NAME}.client" in sys.modules


def test_a_module_is_imported_without_what_its_package_imports(heavy: Path) -> None:
    with without_init(NAME, f"{NAME}.below"):
        __import__(f"{NAME}.light")
        __import__(f"{NAME}.below.light")
    assert not has_run()
    assert sys.modules[NAME].__path__ == [str(heavy)]


@pytest.mark.parametrize(
    "wanted", [f"from {NAME} import VALUE", f"from {NAME} import *", f"import {NAME}; {NAME}.__version__"]
)
def test_the_package_is_whole_as_soon_as_something_of_it_is_wanted(heavy: Path, wanted: str) -> None:
    with without_init(NAME):
        __import__(f"{NAME}.light")
    package, light = sys.modules[NAME], sys.modules[f"{NAME}.light"]
    exec(wanted)
    assert has_run()
    assert sys.modules[NAME] is package, "there are not two of it"
    assert (package.VALUE, package.light, package.__version__) == (light.VALUE, light, "1")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.usefixtures("heavy")
def test_modules_below_it_are_imported_as_ever() -> None:
    with without_init(NAME, f"{NAME}.below"):
        pass
    exec(f"import {NAME}.below.light\nassert {NAME}.below.light.__name__ == '{NAME}.below.light'")
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{NAME}.nothing'"):
        __import__(f"{NAME}.nothing")
    assert not has_run()


@pytest.mark.usefixtures("heavy")
def test_what_was_imported_before_stays_as_it_is() -> None:
    __import__(NAME)
    package = sys.modules[NAME]
    with without_init(NAME):
        assert sys.modules[NAME] is package
    assert "__getattr__" not in vars(package)


def test_a_package_that_fails_fails_each_time_with_its_own_error(heavy: Path) -> None:
    (heavy / "__init__.py").write_text(f"from {NAME} import light\nraise OSError('no')\n")
    with without_init(NAME):
        __import__(f"{NAME}.light")
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            exec(f"from {NAME} import VALUE")


def test_a_package_that_imports_itself_too_early_gets_an_import_error(heavy: Path) -> None:
    (heavy / "__init__.py").write_text(f"from {NAME} import later\nlater = 1\n")
    with without_init(NAME):
        pass
    with pytest.raises(ImportError, match="cannot import name 'later'"):
        exec(f"from {NAME} import VALUE")


def test_a_package_that_is_not_there_gives_the_usual_error() -> None:
    with without_init("idemproxy_test_nowhere"), pytest.raises(ModuleNotFoundError, match="idemproxy_test_nowhere"):
        __import__("idemproxy_test_nowhere.light")


@pytest.mark.parametrize(
    ("ours", "wanted"),
    [
        ("idemproxy.codecs.messages", "from kafka import KafkaProducer, KafkaConsumer, KafkaAdminClient"),
        ("idemproxy.codecs.convert", "from aiokafka import AIOKafkaProducer, AIOKafkaConsumer"),
        ("idemproxy.codecs.convert", "from aiokafka.record import MemoryRecords"),
    ],
)
def test_the_client_libraries_can_be_used_together_with_our_codecs(ours: str, wanted: str) -> None:
    for strictness, program in (
        ("error::DeprecationWarning", f"import {ours}\n{wanted}"),
        ("default", f"{wanted}\nimport {ours}"),
    ):
        command = [sys.executable, "-W", strictness, "-c", program]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert ended.returncode == 0, ended.stderr
