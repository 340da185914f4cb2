"""Kafka's own command line tools through the proxy to a real 0.10.2.2: each subcommand does what the results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.kafka_tools import VERSIONS, through_the_proxy
from runs.results import rows_of

pytestmark = pytest.mark.long


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_subcommand_does_what_the_results_say(version: str, tmp_path: Path) -> None:
    said = {one.command: (one.works, one.sentence) for one in through_the_proxy(tmp_path, version)}
    expected = {
        line["command"]: (line["works"], line["sentence"])
        for line in rows_of("kafka_tools")
        if line["tools"] == version
    }
    assert said == expected, "make tools writes it again"
