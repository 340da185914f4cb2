"""What the kernel does is tested with it and without: a test file that imports ``either_way`` runs all of its tests
twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idemproxy.codecs.kernel import KERNEL
from testkit.real.machine import kernel_build

from .kernel_cases import with_kernel

WAYS = ["python", *(["kernel"] if KERNEL or kernel_build.COMPILER else [])]


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of a module's tests with the kernel and without."""
    with with_kernel(kernel_build.current() if request.param == "kernel" else None):
        yield
