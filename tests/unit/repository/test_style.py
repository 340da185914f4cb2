"""Pages for users keep to the style of this project, and their links lead somewhere: see testkit.style."""

from __future__ import annotations

from pathlib import Path

import pytest

from references import with_references
from testkit import style

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
WORDS_MAX = {
    "index.md": 300,
    "should-i-use-it.md": 550,
    "tutorials/quick-start.md": 500,
    "tutorials/two-proxies.md": 1500,
    "tutorials/count-duplicates.md": 800,
    "how-to/audit-a-topic.md": 900,
    "how-to/move-producers.md": 1000,
    "how-to/systemd-and-compose.md": 600,
    "how-to/helm.md": 1000,
    "how-to/several-proxies.md": 750,
    "how-to/tls.md": 900,
    "how-to/sasl.md": 700,
    "how-to/monitor.md": 1050,
    "how-to/run-book.md": 3500,
    "how-to/troubleshoot.md": 1150,
    "how-to/upgrade.md": 500,
    "how-to/upgrade-brokers.md": 550,
    "how-to/old-clients.md": 720,
    "how-to/modern-brokers.md": 550,
    "how-to/redis-data-loss.md": 650,
    "how-to/hide-duplicates.md": 850,
    "how-to/resume-a-producer.md": 1000,
    "how-to/fence-by-name.md": 850,
    "how-to/conditional-publish.md": 800,
    "how-to/exactly-once-patterns.md": 1000,
    "how-to/spark-sink.md": 1050,
    "how-to/spark-source.md": 900,
    "reference/settings.md": 500,
    "reference/command-line.md": 500,
    "reference/metrics.md": 500,
    "reference/helm-values.md": 500,
    "reference/client-api.md": 500,
    "reference/limits.md": 1500,
    "reference/error-codes.md": 800,
    "reference/protocol-differences.md": 1800,
    "reference/compatibility.md": 1250,
    "reference/wire-protocol.md": 3000,
    "reference/journal-format.md": 550,
    "reference/glossary.md": 550,
    "explanation/how-it-works.md": 900,
    "explanation/guarantees.md": 2500,
    "explanation/security.md": 950,
    "explanation/performance.md": 1300,
    "explanation/compared.md": 800,
    "explanation/testing.md": 900,
    "project/release-notes.md": 700,
    "project/road-map.md": 300,
    "project/support.md": 300,
    "project/contributing.md": 200,
    "project/security-policy.md": 300,
}
"""The pages of the site, and the most words of each, as `wc -w` counts. What is generated does not count."""
SITE_WORDS_MAX = 40_000 + 720  # the second: "Upgrade to Kafka 4 without touching the clients"
PAGES = sorted(DOCS.rglob("*.md"))

DEV_WORDS_MAX = 25_000
DEV = sorted((ROOT / "dev").glob("*.md"))
IN_THE_REPOSITORY = {
    "README.md": 600,
    "CHANGELOG.md": 600,
    "CONTRIBUTING.md": 1000,
    **{page.relative_to(ROOT).as_posix(): 5000 for page in DEV},
}
"""Pages for contributors, and for those who have not decided yet, with the most words of each."""
ALL_PAGES = [*PAGES, *(ROOT / page for page in IN_THE_REPOSITORY)]


def address(page: Path) -> str:
    """The page's place below docs/, or in the repository."""
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def place(page: Path) -> str:
    """The page's place in the repository."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", ALL_PAGES, ids=place)
def test_a_page_keeps_to_the_style(page: Path) -> None:
    found = style.findings(
        page.read_text(),
        history=page.name == "CHANGELOG.md",
        numbers=address(page) == "reference/error-codes.md",
        commands=address(page) in IN_THE_REPOSITORY,
        diagrams=page in DEV,
    )
    lines = [finding.at(place(page)) for finding in found]
    assert not lines, "\n".join(["", *lines])


@pytest.mark.parametrize("page", ALL_PAGES, ids=place)
def test_a_page_is_part_of_the_tree_and_not_too_long(page: Path) -> None:
    words = len(page.read_text().split())
    words_max = (WORDS_MAX | IN_THE_REPOSITORY)[address(page)]
    assert words <= words_max, f"{place(page)}:1: {words} words (at most {words_max})"


@pytest.mark.parametrize("page", ALL_PAGES, ids=place)
def test_the_links_of_a_page_lead_to_pages_and_headings(page: Path) -> None:
    found = style.dead_links(page, ROOT, with_references)
    lines = [finding.at(place(page)) for finding in found]
    assert not lines, "\n".join(["", *lines])


def test_every_page_of_the_tree_is_there() -> None:
    assert {address(page) for page in PAGES} == set(WORDS_MAX)


def test_the_site_has_at_most_so_many_words() -> None:
    assert sum(len(page.read_text().split()) for page in PAGES) <= SITE_WORDS_MAX


def test_the_pages_for_contributors_have_at_most_twenty_five_thousand_words() -> None:
    assert 10_000 < sum(len(page.read_text().split()) for page in DEV) <= DEV_WORDS_MAX


@pytest.mark.parametrize(
    ("sentence", "problem"),
    [
        ("An acknowledged batch is in the log once, in order, at the offset that the producer was told.", "'told'"),
        ("*blurred*: the log may have more of the producer than the entry.", "'blurred'"),
        ("Without it, a late append becomes a second copy.", "'second copy'"),
        ("incarnation: the life of a proxy under one lease.", "'incarnation'"),
        ("Here are the lanes that are open.", "'lanes'"),
        ("The next batch has to expect the end of a topic that was deleted and created anew.", "'anew'"),
        ("As long as one has, it goes on trying.", "'goes on'"),
        ("Where one of its batches was given up the partition is refused.", "'given up'"),
        ("It is refused with code 87, and the producer begins again.", "'code 87'"),
        ("It reads both topics back (2 cores, 2026-11-21).", "'2026-11-21'"),
        ("This was mended by 4f1c2ab9.", "'4f1c2ab9'"),
        ("`tests/e2e/test_docs.py` shows it.", "no test paths"),
        ("Run `make chaos` for an hour.", "no make targets"),
        ("It needs pyspark: pip install 'idemproxy[spark]'", "'idemproxy['"),
        ("The executors need the same Python with `idemproxy[spark]`.", "no package index"),
        (
            "So a duplicate is possible, for example, if the proxy is paused between its last check and the write, or"
            " if a broker thread holds a request for longer than a second before it appends it.",
            "a sentence of 36 words",
        ),
        (
            "| a | b |\n| --- | --- |\n| x | what others write has no marker, so it is never counted as a duplicate |",
            "a cell of 14 words",
        ),
        ("One word. " * 50, "a paragraph of 100 words"),
    ],
)
def test_the_style_objects_to_a_sentence_that_the_pages_once_had(sentence: str, problem: str) -> None:
    assert any(finding.problem.startswith(problem) for finding in style.findings(f"# A page\n\n{sentence}\n"))


@pytest.mark.parametrize(
    "text",
    [
        "```\nThe producer is told 45 on 2026-11-21, see tests/e2e\n```",
        "`idemproxy inspect claims --told 45`",
        "[The page](../told-45/2026-11-21.md)",
        "The brokers are behind a load balancer. Clients reach them behind the proxy.",
        "The append is in doubt. The process ends with exit code 2.",
        "The Redis data generation differs. Kafka's tombstones have a null value.",
        "Kafka 0.10.2 stores message format v1, e.g. on a topic of 2.8.1. It returns `INVALID_RECORD`.",
    ],
)
def test_the_style_has_no_objection_to_code_link_targets_and_the_fields_own_words(text: str) -> None:
    assert list(style.findings(f"# A page\n\n{text}\n")) == []


def test_a_finding_names_the_line_on_which_its_paragraph_begins() -> None:
    (finding,) = style.findings("# A page\n\nFine.\n\n- Also fine.\n- It goes on.\n")
    assert finding.at("docs/page.md").startswith("docs/page.md:6: 'goes on' (resumes")


def test_a_link_to_no_file_or_no_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A page\n\n## Why `redis` waits\n\n## Why redis waits\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#why-redis-waits) [b](other.md#why-redis-waits_1) [c](other.md#why)\n\n[d](none.md)\n"
        "\n[f](../up.md) [g](https://there.example/x)\n"
    )
    found = style.dead_links(page, tmp_path, str)
    assert [(finding.line, finding.text) for finding in found] == [
        (1, "other.md#why"),
        (3, "none.md"),
        (5, "../up.md"),
    ]
