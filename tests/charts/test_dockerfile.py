"""The image's recipe, followed line by line without a Docker engine.

Every ARG, ENV, WORKDIR, COPY and RUN of the Dockerfile is carried out below a folder that stands for the image's root;
a fresh virtual environment stands for the base image's Python. What a Docker engine alone can do (users, volumes, the
base image itself) is only read. The stages share one path, one after the other, because installed scripts carry it.
"""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import idemproxy
from idemproxy.demo.ports import free_ports

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
NOT_IN_AN_IMAGE = ("uv", "pip", "gcc", "cc", "git", "make")


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    rest: str


@dataclass(slots=True)
class Stage:
    """One FROM and what follows; ``environment`` is what its ARG and ENV lines have set so far."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "/"

    def last(self, word: str) -> str:
        """Return the last such instruction's text: the one that counts."""
        return [instruction.rest for instruction in self.instructions if instruction.word == word][-1]


def read_stages(text: str) -> list[Stage]:
    """Parse a Dockerfile as far as ours goes."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    defaults: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(name, expand(base, defaults)))
        elif stages:
            if word == "ARG" and rest in defaults:
                rest = f"{rest}={defaults[rest]}"
            stages[-1].instructions.append(Instruction(word, rest.strip()))
        else:
            assert word == "ARG", line
            defaults |= dict([assignment(rest)])
    return stages


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    assert equals, f"{text} has no default"
    return name, value


def expand(text: str, values: dict[str, str]) -> str:
    """Replace ``$NAME`` and ``${NAME}``; an unknown name is an error, as a build would only leave it empty."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match.group(1)], text)


class ImageRoot:
    """Carries out stages below ``folder``; ``stages`` keeps the finished ones by name."""

    def __init__(self, folder: Path, base_python: Path) -> None:
        self.root = folder / "image"
        self.kept = folder / "kept"
        self.base_python = base_python
        self.ignored = ignore_rules()

    def inside(self, path: str, directory: str) -> Path:
        return self.root / os.path.normpath(os.path.join(directory, path)).lstrip("/")

    def build(self, stage: Stage) -> None:
        """Carry out one stage in an empty root; a named one is set aside for later ``COPY --from``."""
        self.root.mkdir(parents=True)
        stage.environment["PATH"] = f"{self.base_python.parent}:/usr/local/bin:/usr/bin:/bin"
        for instruction in stage.instructions:
            if instruction.word in {"ARG", "ENV"}:
                for part in shlex.split(instruction.rest):
                    name, value = assignment(part)
                    value = expand(value, stage.environment)
                    stage.environment[name] = self.translated(value) if instruction.word == "ENV" else value
            elif instruction.word == "WORKDIR":
                stage.directory = instruction.rest
                self.inside(stage.directory, "/").mkdir(parents=True, exist_ok=True)
            elif instruction.word == "COPY":
                self.copy(instruction.rest.split(), stage)
            elif instruction.word == "RUN":
                self.run(instruction.rest, stage)
        if stage.name:
            self.kept.mkdir(exist_ok=True)
            self.root.rename(self.kept / stage.name)

    def translated(self, text: str) -> str:
        """Let absolute paths of the image point below the root."""
        return re.sub(r"(?<![\w./-])/(opt|build)\b", rf"{self.root}/\1", text)

    def copy(self, words: list[str], stage: Stage) -> None:
        options = [word for word in words if word.startswith("--")]
        *sources, target = [word for word in words if not word.startswith("--")]
        origin = next((word.removeprefix("--from=") for word in options if word.startswith("--from=")), None)
        for source in sources:
            path = ROOT / source if origin is None else self.kept / origin / source.lstrip("/")
            assert path.exists(), f"COPY {source}: there is no such file"
            assert origin is not None or source in self.ignored, f"COPY {source}: .dockerignore leaves it out"
            destination = self.inside(target, stage.directory)
            if path.is_dir():
                without_caches = shutil.ignore_patterns("__pycache__") if origin is None else None
                shutil.copytree(path, destination, symlinks=True, dirs_exist_ok=True, ignore=without_caches)
            else:
                folder = destination if target.endswith("/") else destination.parent
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, destination)

    def run(self, command: str, stage: Stage) -> None:
        inherited = {name: value for name, value in os.environ.items() if not re.match(r"UV|PYTHON|VIRTUAL_ENV", name)}
        done = subprocess.run(
            ["/bin/sh", "-c", self.translated(command)],
            cwd=self.inside(stage.directory, "/"),
            env=inherited | stage.environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"


def ignore_rules() -> set[str]:
    """Return what .dockerignore lets through; it must begin by leaving out everything."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    return {rule.removeprefix("!") for rule in rules if rule.startswith("!")}


STAGES = read_stages((ROOT / "Dockerfile").read_text())


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageRoot:
    folder = tmp_path_factory.mktemp("docker")
    venv.create(folder / "base", with_pip=True, symlinks=True)
    image = ImageRoot(folder, folder / "base/bin/python")
    for stage in read_stages((ROOT / "Dockerfile").read_text()):
        image.build(stage)
    return image


def run_in(image: ImageRoot, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the image's entry point as a container would; no file of the image may change by it, but in its data."""
    (command,) = json.loads(STAGES[-1].last("ENTRYPOINT"))
    final = image.root / "opt/idemproxy"
    environment = {"PATH": f"{final}/venv/bin", "HOME": str(final / "data"), "PYTHONDONTWRITEBYTECODE": "1"}
    before = files_of(final / "venv")
    done = subprocess.run(
        [final / "venv/bin" / command, *arguments],
        cwd=final / "data",
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert files_of(final / "venv") == before
    return done


def files_of(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.timeout(480)
def test_the_steps_of_the_dockerfile_give_a_working_command(image: ImageRoot) -> None:
    told = run_in(image, "--version")
    assert (told.returncode, told.stdout) == (0, f"idemproxy {idemproxy.__version__}\n"), told.stderr


@pytest.mark.timeout(480)
def test_without_its_configuration_file_a_container_says_which_one_it_misses(image: ImageRoot) -> None:
    arguments = json.loads(STAGES[-1].last("CMD"))
    refused = run_in(image, *arguments)
    assert refused.returncode != 0
    assert "/etc/idemproxy/idemproxy.yaml" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.timeout(480)
def test_the_health_check_is_content_with_a_live_proxy_and_with_nothing_else(image: ImageRoot, tmp_path: Path) -> None:
    command = json.loads(STAGES[-1].last("HEALTHCHECK").partition("CMD ")[2])
    assert command[0] == "python"
    final = image.root / "opt/idemproxy/venv/bin"
    (admin,) = free_ports(1)
    here = {"PATH": str(final), "HEALTH_URL": f"http://127.0.0.1:{admin}/livez"}

    def healthy() -> bool:
        return (
            subprocess.run([final / "python", *command[1:]], env=here, capture_output=True, timeout=240).returncode == 0
        )

    assert not healthy()
    options = [
        "run",
        "--upstream",
        "127.0.0.1:1",
        "--admin-bind",
        f"127.0.0.1:{admin}",
        "--data-directory",
        str(tmp_path / "data"),
    ]
    with (tmp_path / "log").open("w") as log:
        proxy = subprocess.Popen([final / "idemproxy", *options], env={"PATH": str(final)}, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not healthy():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert proxy.poll() is None, (tmp_path / "log").read_text()
        # The status page is no Python: it has to be in the package all the same.
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/", timeout=10) as page:
            assert b"<html" in page.read()
    finally:
        proxy.terminate()
        assert proxy.wait(60) == 0


@pytest.mark.timeout(480)
def test_the_image_holds_the_runtime_and_no_tool_of_the_build(image: ImageRoot) -> None:
    programs = {path.name for path in (image.root / "opt/idemproxy/venv/bin").iterdir()}
    assert "idemproxy" in programs
    assert programs.isdisjoint(NOT_IN_AN_IMAGE)
    assert programs.isdisjoint({"pytest", "mypy", "ruff"})
    assert not (image.root / "build").exists()
    assert [path for path in image.root.rglob("*.pth") if str(image.root / "build") in path.read_text()] == []


def test_the_last_stage_runs_without_privileges_and_ends_on_sigterm() -> None:
    final = STAGES[-1]
    user, _, group = final.last("USER").partition(":")
    assert int(user) == int(group) == 10001
    assert final.last("STOPSIGNAL") == "SIGTERM"
    assert json.loads(final.last("ENTRYPOINT")) == ["idemproxy"]
    assert "9092" in final.last("EXPOSE").split()


def test_the_last_stage_installs_nothing_and_checks_the_package() -> None:
    commands = [instruction.rest for instruction in STAGES[-1].instructions if instruction.word == "RUN"]
    assert [command for command in commands if "uninstall" not in command] == [
        'python -c "import idemproxy.proxy.process.run, idemproxy.state.redis_store"'
    ]
    copies = [instruction.rest for instruction in STAGES[-1].instructions if instruction.word == "COPY"]
    assert all("--from=build" in copy for copy in copies)


def test_both_stages_share_one_slim_base_image_pinned_by_version_and_digest() -> None:
    bases = {stage.base for stage in STAGES}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", bases.pop())


def test_hadolint_has_nothing_to_say() -> None:
    program = Path(sys.executable).parent / "hadolint"
    command: list[str | Path] = [program, "--failure-threshold", "style", "--no-color", str(ROOT / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_labels_say_which_version_of_the_project_it_is() -> None:
    arguments = dict(assignment(line.rest) for line in STAGES[-1].instructions if line.word == "ARG")
    assert arguments["VERSION"] == idemproxy.__version__
    labels = dict(part.split("=", 1) for part in shlex.split(STAGES[-1].last("LABEL")))
    prefix = "org.opencontainers.image."
    assert labels[prefix + "version"] == "${VERSION}"
    assert labels[prefix + "base.name"] == "${PYTHON_IMAGE}"
    assert {name.removeprefix(prefix) for name in labels} >= {"title", "description", "licenses", "revision"}


@pytest.mark.timeout(480)
def test_the_bill_of_materials_names_exactly_what_is_installed(image: ImageRoot) -> None:
    bill = json.loads((image.root / "opt/idemproxy/sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    named = {(canonical(part["name"]), part["version"]) for part in bill["components"]}
    assert all(reference["hashes"] for part in bill["components"] for reference in part.get("externalReferences", []))
    (packages,) = (image.root / "opt/idemproxy/venv/lib").glob("python3*/site-packages")
    installed = {(canonical(one.name), one.version) for one in importlib.metadata.distributions(path=[str(packages)])}
    installed.discard(("idemproxy", idemproxy.__version__))
    assert installed - named == set()
    # What the lock file has for other platforms or versions of Python may be named as well.
    assert len(named - installed) <= 6, sorted(named - installed)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.timeout(480)
def test_nothing_is_left_in_the_image_that_installs_packages(image: ImageRoot) -> None:
    asked = subprocess.run([image.base_python, "-m", "pip", "--version"], capture_output=True, text=True, timeout=240)
    assert "No module named pip" in asked.stderr


def test_every_folder_of_the_package_is_copied() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {Path(path).parts[0] for path in wheel["only-include"]}
    copied = {
        name
        for instruction in STAGES[0].instructions
        if instruction.word == "COPY"
        for name in instruction.rest.split()
    }
    assert folders <= copied


def test_the_image_and_the_makefile_install_the_same_uv() -> None:
    makefile = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert makefile is not None
    assert Instruction("ARG", f"UV_VERSION={makefile.group(1)}") in STAGES[0].instructions
