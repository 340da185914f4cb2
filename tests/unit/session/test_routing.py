"""Which batches are the engine's: the whole table, as dev/architecture.md has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import name_of
from idemproxy.proxy.broker.served import Idempotence
from idemproxy.proxy.producer.batch import Answer
from idemproxy.proxy.session.routing import BatchKind, Way, way_of

PAGE = Path(__file__).parents[3] / "dev/architecture.md"
TOPICS = {"`topics.conditional`": (True, True), "`topics.engine`": (True, False), "any other": (False, False)}
"""Whether a topic matches, and takes conditional publishes only."""
PROXY, NATIVE = Idempotence.PROXY, Idempotence.NATIVE


def cell(mode: Idempotence, topic: str, kind: BatchKind) -> str:
    matches, is_conditional = TOPICS[topic]
    way = way_of(mode, matches=matches, is_conditional=is_conditional, kind=kind)
    return f"`{name_of(way.error_code)}`" if isinstance(way, Answer) else way.value


def table() -> list[str]:
    rows = [["mode", "topic", *(kind.value for kind in BatchKind)], ["---"] * (2 + len(BatchKind))]
    for mode in (PROXY, NATIVE):
        for topic in TOPICS:
            rows.append([mode.value, topic, *(cell(mode, topic, kind) for kind in BatchKind)])
    return ["| " + " | ".join(row) + " |" for row in rows]


def test_the_page_has_the_table() -> None:
    assert "\n".join(table()) in PAGE.read_text()


@pytest.mark.parametrize("mode", [PROXY, NATIVE])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_partition_has_one_kind_of_idempotent_writer(mode: Idempotence, topic: str) -> None:
    """Whatever is idempotent goes one way, and no refusal makes a client drop what another batch could have been."""
    matches, is_conditional = TOPICS[topic]
    ways = {kind: way_of(mode, matches=matches, is_conditional=is_conditional, kind=kind) for kind in BatchKind}
    is_engines = mode is PROXY or matches
    assert ways[BatchKind.IDEMPOTENT] is (Way.ENGINE if is_engines else Way.PASSES)
    assert isinstance(ways[BatchKind.TRANSACTIONAL], Answer) == is_engines
    assert isinstance(ways[BatchKind.CONDITIONAL], Answer) != is_engines


def test_a_refusal_names_the_setting() -> None:
    for topic, kind in (("any other", BatchKind.CONDITIONAL), ("`topics.engine`", BatchKind.TRANSACTIONAL)):
        matches, is_conditional = TOPICS[topic]
        refusal = way_of(NATIVE, matches=matches, is_conditional=is_conditional, kind=kind)
        assert isinstance(refusal, Answer)
        assert refusal.message is not None
        assert "topics.conditional" in refusal.message


if __name__ == "__main__":
    print("\n".join(table()))
