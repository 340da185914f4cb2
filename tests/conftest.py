"""What counts for all tests: a property may take as long as a busy machine needs for it, and the collector of cycles
looks at what a test has made, not at everything that was imported and collected for it."""

import gc

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests stay for good: looking at them took most of the time of each full collection."""
    gc.collect()
    gc.freeze()
