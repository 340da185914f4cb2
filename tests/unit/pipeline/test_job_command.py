"""The options of ``idemproxy copy`` and its sisters that are refused before a Spark is started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.codecs.message_set import encode_message
from idemproxy.pipeline.jobs.command import format_options
from idemproxy.pipeline.jobs.run import Job, fixed_options, read_options, write_options
from idemproxy.pipeline.sink.options import known_options as known_to_the_sink
from idemproxy.proxy.main import main
from testkit.stage.reading_server import ReadingServer

COPY = ("copy", "--from", "nobody:1", "--out", "out", "--checkpoint", "none", "--topic", "orders")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_second_topic_is_for_a_merge_only(capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, *COPY, "--topic", "payments")
    assert line == "idemproxy copy: --topic: copy reads one topic; merge reads several"


@pytest.mark.parametrize(
    ("command", "option", "said"),
    [
        ("copy", "kafka.bootstrap.servers=h:1", "--from names the brokers to read from"),
        ("merge", "Subscribe=orders", "--topic names what is read"),
        ("copy", "subscribePattern=o.*", "--topic names what is read"),
        ("copy", "includeHeaders=false", "a job always reads the headers"),
        ("repartition", "to.topic=orders", "--out names the topic to write to"),
        ("copy", "to.kafka.bootstrap.servers=h:1", "--to names the proxies to write to"),
        ("copy", "to.checkpointLocation=/tmp", "--checkpoint names the folder"),
        ("clean", "to.stagingLocation=/tmp", "--checkpoint names the folder"),
        ("clean", "to.producerName=me", "--name names the run"),
        ("clean", "rows=batches", "--coordinates says what is read"),
    ],
)
def test_what_a_job_says_itself_is_no_option(
    command: str, option: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, command, *COPY[1:], "--option", option)
    assert line == f"idemproxy {command}: --option {option}: {said}"


def test_options_go_to_the_reader_or_without_their_prefix_to_the_writer() -> None:
    given = {"startingOffsets": "latest", "to.producerName": "me", "to.kafka.compression.type": "lz4"}
    read, written = format_options("copy", given)
    assert read == {"startingOffsets": "latest"}
    assert written == {"producerName": "me", "kafka.compression.type": "lz4"}
    assert written.keys() <= set(known_to_the_sink())


def test_brokers_know_a_job_by_its_name_unless_it_is_given_another() -> None:
    job = Job("repartition", "from:1", "to:1", ["in"], "out", "folder", "headers", "", False, {}, {})
    assert {options(job)["kafka.client.id"] for options in (read_options, write_options)} == {"idemproxy-repartition"}
    named = replace(job, read_options={"kafka.client.id": "reads"}, write_options={"kafka.client.id": "writes"})
    assert (read_options(named)["kafka.client.id"], write_options(named)["kafka.client.id"]) == ("reads", "writes")


def test_a_clean_up_reads_the_same_offsets_as_records_and_as_batches() -> None:
    """It reads the topic twice, and a copy that comes between the two would be in one of them only."""
    log = [encode_message(b"k", b"%d" % offset, magic=1, offset=offset, timestamp=7) for offset in range(3)]
    with ReadingServer(log) as server:
        job = Job(
            "clean",
            "{}:{}".format(*server.address),
            "to:1",
            ["t"],
            "out",
            "folder",
            "batches",
            "clean",
            False,
            {"endingOffsets": "latest"},
            {},
        )
        fixed = fixed_options(job)
    assert fixed["startingOffsets"] == '{"t": {"0": 0}}'
    assert fixed["endingOffsets"] == '{"t": {"0": 3}}'
    assert {**read_options(job), **fixed} == fixed
