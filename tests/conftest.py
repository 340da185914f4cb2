"""What counts for all tests: a property may take as long as a busy machine needs for it, and the collector of cycles
looks at what a test has made, not at everything that was imported and collected for it."""

import gc

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from testkit.scheduling import WaitingBesideComputing

settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests stay for good: looking at them took most of the time of each full collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)  # the judge of the mutants runs without plugins
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """``--dist loadfile`` means our order of the files, too."""
    return WaitingBesideComputing(config, log) if config.getoption("dist") == "loadfile" else None
