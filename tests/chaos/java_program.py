"""Compiles the Java producer of a chaos run against the client version asked for, once, and says how it is started."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idemproxy.demo.jars import cache_directory, cache_lock, client_class_path, compiler_class_path, java_runtime

_SOURCE = Path(__file__).parent / "java" / "ChaosProducer.java"
_COMPILE_SECONDS_MAX = 120
_JVM_FLAGS = (
    "-Xmx160m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


def command(version: str, directory: Path, given: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str | Path]:
    """Return the command line of one producer. Raises AssertionError when the program does not compile."""
    pairs = {f"program.{name}": value for name, value in given.items()} | dict(settings)
    return [
        *(java_runtime(), *_JVM_FLAGS, f"-Djava.io.tmpdir={directory}"),
        *("-cp", f"{_compiled(version)}:{client_class_path(version)}", _SOURCE.stem),
        *(f"{name}={value}" for name, value in pairs.items()),
    ]


def _compiled(version: str) -> Path:
    compiler, client = compiler_class_path(), client_class_path(version)
    identity = hashlib.sha256(b"\0".join([_SOURCE.read_bytes(), compiler.encode(), client.encode()])).hexdigest()[:16]
    classes = cache_directory() / "java-classes" / f"{_SOURCE.stem}-{version}-{identity}"
    with cache_lock("java-classes"):
        if classes.is_dir():
            return classes
        classes.parent.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=classes.parent))
        arguments: list[str | Path] = [java_runtime(), "-XX:TieredStopAtLevel=1", "-cp", compiler]
        arguments += ["org.eclipse.jdt.internal.compiler.batch.Main", "-source", "17", "-target", "17", "-nowarn"]
        arguments += ["-proc:none", "-cp", client, "-d", fresh, _SOURCE]
        outcome = subprocess.run(arguments, capture_output=True, text=True, timeout=_COMPILE_SECONDS_MAX, check=False)
        if outcome.returncode:
            shutil.rmtree(fresh)
        assert outcome.returncode == 0, f"{_SOURCE.name} does not compile: {outcome.stdout}{outcome.stderr}"
        fresh.rename(classes)
    return classes
