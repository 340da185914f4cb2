"""Random scripts of old requests at a 3.9.1, and through the proxy in front of a 4.3.1: the same answers, but for a
written list of differences (``testkit.real.clients.old_scripts``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.real.clients.old_scripts import ALLOWED, Difference
from testkit.real.scenes.old_differences import BothServers, both_servers

SEEDS = range(1, 5)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothServers]:
    with both_servers(tmp_path_factory.mktemp("old-scripts")) as found:
        yield found


@pytest.mark.parametrize("seed", SEEDS)
def test_old_requests_are_answered_as_by_a_broker_that_serves_them(servers: BothServers, seed: int) -> None:
    compared = servers.compare(seed)

    assert compared.complaints == []
    assert compared.requests > 40
    assert compared.entries > 200


def test_a_difference_is_allowed_only_with_its_own_values() -> None:
    what = "produce a set that is cut off"
    assert Difference(what, "responses[t].error_code", 0, 2).allowed is ALLOWED[what, "error_code"]
    assert Difference(what, "responses[t].error_code", 0, 10).allowed is None
    assert Difference(what, "responses[t].base_offset", -1, 0).allowed is None
