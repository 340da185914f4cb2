"""What the kernel does is tested with it and without: a test file that imports ``either_way`` runs all of its tests
twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs.kernel import KERNEL
from testkit.real import kernel_build

from .kernel_cases import with_kernel

WAYS = ["python", *(["kernel"] if KERNEL or kernel_build.COMPILER else [])]


@cache
def kernel() -> Any:
    """Built from the source as it is, where that can be done; else the one that is installed."""
    if not kernel_build.COMPILER:
        return KERNEL
    with tempfile.TemporaryDirectory() as folder:
        return kernel_build.load(kernel_build.build(Path(folder)))


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of a module's tests with the kernel and without."""
    with with_kernel(kernel() if request.param == "kernel" else None):
        yield
