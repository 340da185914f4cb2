"""Kafka's own command line tools against one address, subcommand by subcommand, and what each of them said.

The rows are in the order in which they are run: later ones find what earlier ones have left. Judges only whether a tool
did its work; what it says otherwise is for the caller.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from idemproxy.demo.jars import java_runtime, tools_class_path

from .java_clients import JavaClientError, compiled

SECONDS_MAX_EACH = 120
"""For a busy machine; alone each takes a second or two."""
_SECONDS_MAX = 1200
_HANGS, _NOT_THERE = -1, -2
_TOOLS, _ADMIN = "org.apache.kafka.tools", "kafka.admin"
TOPIC, GROUP = "orders", "readers"
_RECORDS = "one\\ntwo\\nthree\\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One subcommand. ``command``: as a person types it, but for the address. ``classes``: where the tool may be, by
    release. ``shows``: what its output has when it has done its work (a regular expression)."""

    command: str
    classes: tuple[str, ...]
    shows: str
    typed: str = ""

    @property
    def arguments(self) -> list[str]:
        """All but the name of the tool and the address."""
        return self.command.split()[1:]


def _row(command: str, *classes: str, shows: str, typed: str = "") -> Row:
    return Row(command, classes, shows, typed)


_TOPICS, _CONFIGS = (f"{_TOOLS}.TopicCommand",), (f"{_ADMIN}.ConfigCommand", f"{_TOOLS}.ConfigCommand")
_GROUPS = (f"{_TOOLS}.consumer.group.ConsumerGroupCommand",)
_PRODUCER = (f"{_TOOLS}.ConsoleProducer", "kafka.tools.ConsoleProducer")
_CONSUMER = (f"{_TOOLS}.consumer.ConsoleConsumer", "kafka.tools.ConsoleConsumer")
_OFFSETS, _TRANSACTIONS = (f"{_TOOLS}.GetOffsetShell",), (f"{_TOOLS}.TransactionsCommand",)

ROWS: tuple[Row, ...] = (
    _row(
        f"kafka-topics --create --topic {TOPIC} --partitions 2 --replication-factor 1", *_TOPICS, shows="Created topic"
    ),
    _row("kafka-topics --create --topic with-defaults", *_TOPICS, shows="Created topic"),
    _row("kafka-topics --list", *_TOPICS, shows=rf"(?m)^{TOPIC}$"),
    _row(f"kafka-topics --describe --topic {TOPIC}", *_TOPICS, shows=r"PartitionCount: ?2\b"),
    _row(f"kafka-topics --alter --topic {TOPIC} --partitions 4", *_TOPICS, shows=r"\A\s*\Z"),
    _row(f"kafka-configs --describe --entity-type topics --entity-name {TOPIC}", *_CONFIGS, shows="configs for topic"),
    _row(
        f"kafka-configs --describe --all --entity-type topics --entity-name {TOPIC}",
        *_CONFIGS,
        shows="retention.ms=",
    ),
    _row(
        f"kafka-configs --alter --entity-type topics --entity-name {TOPIC} --add-config retention.ms=3600000",
        *_CONFIGS,
        shows="Completed updating",
    ),
    _row("kafka-configs --describe --all --entity-type brokers --entity-name 0", *_CONFIGS, shows="num.partitions="),
    _row(f"kafka-console-producer --topic {TOPIC}", *_PRODUCER, shows=r"\A[>\s]*\Z", typed=_RECORDS),
    _row(
        f"kafka-console-consumer --topic {TOPIC} --from-beginning --group {GROUP} --max-messages 3 --timeout-ms 30000",
        *_CONSUMER,
        shows=r"(?s)\A(?=.*\bone\b)(?=.*\btwo\b)(?=.*\bthree\b)",
    ),
    _row(
        f"kafka-console-consumer --topic {TOPIC} --group new-kind --consumer-property group.protocol=consumer "
        "--from-beginning --max-messages 3 --timeout-ms 30000",
        *_CONSUMER,
        shows=r"(?m)^one$",
    ),
    _row(
        f"kafka-console-consumer --topic {TOPIC} --group static --consumer-property group.instance.id=a "
        "--from-beginning --max-messages 3 --timeout-ms 30000",
        *_CONSUMER,
        shows=r"(?m)^one$",
    ),
    _row("kafka-consumer-groups --list", *_GROUPS, shows=rf"(?m)^{GROUP}$"),
    _row(f"kafka-consumer-groups --describe --group {GROUP}", *_GROUPS, shows=rf"{TOPIC} +\d"),
    _row(f"kafka-consumer-groups --describe --members --group {GROUP}", *_GROUPS, shows="no active members"),
    _row(f"kafka-consumer-groups --describe --state --group {GROUP}", *_GROUPS, shows="Empty"),
    _row("kafka-consumer-groups --describe --all-groups", *_GROUPS, shows=rf"{TOPIC} +\d"),
    _row(
        f"kafka-consumer-groups --reset-offsets --to-earliest --execute --group {GROUP} --topic {TOPIC}",
        *_GROUPS,
        shows=rf"{GROUP} +{TOPIC} +\d+ +0",
    ),
    _row(f"kafka-consumer-groups --delete-offsets --group {GROUP} --topic {TOPIC}", *_GROUPS, shows="Successful"),
    _row(f"kafka-consumer-groups --delete --group {GROUP}", *_GROUPS, shows="was successful"),
    _row("kafka-groups --list", f"{_TOOLS}.GroupsCommand", shows=GROUP),
    _row(f"kafka-get-offsets --topic {TOPIC}", *_OFFSETS, shows=rf"{TOPIC}:0:\d"),
    _row(f"kafka-get-offsets --topic {TOPIC} --time earliest", *_OFFSETS, shows=rf"{TOPIC}:0:0"),
    _row(f"kafka-get-offsets --topic {TOPIC} --time 0", *_OFFSETS, shows=rf"{TOPIC}:[01]:0"),
    _row(f"kafka-get-offsets --topic {TOPIC} --time max-timestamp", *_OFFSETS, shows=rf"{TOPIC}:0:\d"),
    _row("kafka-transactions list", *_TRANSACTIONS, shows="TransactionalId"),
    _row(f"kafka-transactions describe-producers --topic {TOPIC} --partition 0", *_TRANSACTIONS, shows="ProducerId"),
    _row(
        f"kafka-verifiable-producer --topic {TOPIC} --max-messages 20",
        f"{_TOOLS}.VerifiableProducer",
        shows=r'"acked":20\b',
    ),
    _row(
        f"kafka-verifiable-consumer --topic {TOPIC} --group-id verified --max-messages 20 --reset-policy earliest",
        f"{_TOOLS}.VerifiableConsumer",
        shows='"name":"offsets_committed"',
    ),
    _row(
        f"kafka-producer-perf-test --topic {TOPIC} --num-records 100 --record-size 10 --throughput -1",
        f"{_TOOLS}.ProducerPerformance",
        shows="100 records sent",
    ),
    _row("kafka-log-dirs --describe", f"{_TOOLS}.LogDirsCommand", shows='"logDirs"'),
    _row("kafka-delete-records --offset-json-file {offsets}", f"{_TOOLS}.DeleteRecordsCommand", shows="low_watermark"),
    _row(
        "kafka-broker-api-versions",
        f"{_TOOLS}.BrokerApiVersionsCommand",
        f"{_ADMIN}.BrokerApiVersionsCommand",
        shows=r"Produce\(0\): 0 to 8",
    ),
    _row("kafka-cluster cluster-id", f"{_TOOLS}.ClusterTool", shows="Cluster ID: "),
    _row("kafka-acls --list", f"{_TOOLS}.AclCommand", f"{_ADMIN}.AclCommand", shows="Current ACLs"),
    _row("kafka-reassign-partitions --list", f"{_TOOLS}.reassign.ReassignPartitionsCommand", shows="reassignments"),
    _row(
        "kafka-leader-election --election-type preferred --all-topic-partitions",
        f"{_TOOLS}.LeaderElectionCommand",
        shows="(?i)completed|already",
    ),
    _row(f"kafka-topics --delete --topic {TOPIC}", *_TOPICS, shows=r"\A\s*\Z"),
)
_ADDRESS_OPTION = {"kafka-producer-perf-test": "--producer-props"}


@dataclass(frozen=True, slots=True)
class Said:
    """What became of one row. ``sentence``: what the tool said where it did not do its work."""

    command: str
    works: bool
    sentence: str


def run_tools(directory: Path, version: str, address: str) -> list[Said]:
    """Run all rows with the tools of one release. Tools that this release does not have are left out."""
    offsets = directory / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 0, "offset": 1}], "version": 1}))
    commands = directory / f"commands-{version}"
    commands.write_text("".join(_line(row, address, offsets) for row in ROWS))
    class_path = f"{compiled('ToolRunner', version)}:{tools_class_path(version)}"
    command = [str(java_runtime()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    command += ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "ToolRunner", str(commands), str(SECONDS_MAX_EACH)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    lines = ran.stdout.splitlines()
    if ran.returncode or len(lines) != len(ROWS):
        raise JavaClientError(f"the tools of {version} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    (directory / f"said-{version}").write_text(ran.stdout)
    judged = [_judge(row, json.loads(line)) for row, line in zip(ROWS, lines, strict=True)]
    return [said for said in judged if said is not None]


def _line(row: Row, address: str, offsets: Path) -> str:
    """As ToolRunner.java reads it."""
    tool = row.command.split()[0]
    arguments = [one.replace("{offsets}", str(offsets)) for one in row.arguments]
    if tool in _ADDRESS_OPTION:
        option = [_ADDRESS_OPTION[tool], f"bootstrap.servers={address}"]
    else:
        option = ["--bootstrap-server", address]
    is_subcommand = bool(arguments) and not arguments[0].startswith("-")
    if is_subcommand and tool == "kafka-cluster":
        arguments = [arguments[0], *option, *arguments[1:]]
    else:
        arguments = [*option, *arguments]
    return "\t".join([",".join(row.classes), row.typed, *arguments]) + "\n"


def _judge(row: Row, ended: dict[str, object]) -> Said | None:
    if ended["exit"] == _NOT_THERE:
        return None
    out, err = str(ended["out"]), str(ended["err"])
    if ended["exit"] == 0 and re.search(row.shows, out + err) and not _COMPLAINT.search(out + err):
        return Said(row.command, True, "")
    if ended["exit"] == _HANGS:
        return Said(row.command, False, f"does not end within {SECONDS_MAX_EACH} s")
    return Said(row.command, False, _sentence(out, err))


_COMPLAINT = re.compile(r"(?m)^.*(?:Exception|Error(?! code)|\bERROR\b|failed|Failed).*$")


def _sentence(out: str, err: str) -> str:
    """What follows the name of the exception in the last line that has one, or speaks of an error; else the last line
    at all. Threads log at the same time, so that lines of the log may come last or not."""
    found = [one for one in _COMPLAINT.findall(f"{out}\n{err}") if not one.lstrip().startswith("at ")]
    found = [one for one in found if "Exception: " in one] or found
    lines = found or [line for line in f"{out}\n{err}".splitlines() if line.strip()] or ["nothing"]
    last: str = lines[-1]
    return last.rpartition("Exception: ")[2].strip()
