"""Why tests of the clients' own suites fail through the proxy: what a broker of 0.10.2 cannot do, or what is wrong with
the test. A test that is not here and fails is a finding."""

from __future__ import annotations

import re
from collections.abc import Mapping

_HEADERS = (
    "record headers: the stored format of 0.10 has no place for them, so such a record is refused with a sentence "
    "(`--dropped-headers` names those that may go)"
)
_TRANSACTIONS = "transactions: the proxy has none, and says so"
_ACLS = "DescribeAcls, CreateAcls and DeleteAcls came with Kafka 0.11"
_DELETE_RECORDS = "DeleteRecords came with Kafka 0.11"
_PARTITIONS = "CreatePartitions came with Kafka 1.0; the proxy refuses it with a sentence"
_LATER_FORM = (
    "it compares a whole answer with what Kafka 2.4 gives in later versions of that API; it fails at a real 0.11.0.3 "
    "as well, and a user of the client sees nothing of it"
)

REASONS: Mapping[str, Mapping[str, str]] = {
    "kafka-python": {
        r"test_kafka_producer_proper_record_metadata\[": _HEADERS,
        "test_transactional_producer_": _TRANSACTIONS,
        "test_create_describe_delete_acls": _ACLS,
        "test_delete_records": _DELETE_RECORDS,
        "test_describe_configs_topic_resource_returns_configs": "it wants the value of `retention.bytes`: a broker of "
        "0.10 tells no topic's settings over Kafka's protocol, and the proxy does not guess",
        "test_kafka_version_infer": "it wants the client to take the broker for what `KAFKA_VERSION` says (0.11); the "
        "proxy answers more, and the client takes it for 2.4",
    },
    "franz-go": {
        "TestPooling": _HEADERS + "; the test ends in the client's own goroutine then, and hangs",
        "TestTxnEtl": _TRANSACTIONS,
        "Test848RegexBrokerResolves": "consumer groups of KIP-848 came with Kafka 4.0; the client goes on with the "
        "classic protocol, which leaves internal topics out, and the test asks for one",
        "TestConsumeMaxDecompressBatchBytes": "it wants the error to name the first record of a compressed batch; in "
        "the format of 0.10 the client knows the last one only",
    },
    "librdkafka": {
        "0011_": "a part of it changes a topic's setting (IncrementalAlterConfigs, which came with Kafka 2.3)",
        "0073_|0077_|0085_": _HEADERS,
        "0081_": _ACLS,
        "0092_": "it wants both message formats in one topic, which 0.10 has not",
        "0098_|0103_|0129_": _TRANSACTIONS,
        "0112_": _PARTITIONS,
    },
    "aiokafka": {
        "test_consumer_with_headers|test_producer_send_.*headers": _HEADERS,
        "test_(consumer|producer)_.*(transaction|control_record)|test_sender_maybe_wait_for_pid": _TRANSACTIONS,
        "test_ssl_consume|test_producer_ssl": "the suite's own brokers have a port with TLS; there was none",
    },
    "sarama": {
        "TestFuncTxn": _TRANSACTIONS,
        "TestFuncAdminDeleteRecords": _DELETE_RECORDS,
        "TestFuncConsumerGroupRebalanceAfterAddingPartitions": _PARTITIONS,
        "TestFuncClientMetadata": "it wants topics that are asked for not to come into being; the broker creates them",
        "TestFuncAdminListConsumerGroupOffsets|TestFuncIdempotentBufferedSequence": "it stops brokers and reads their "
        "logs through Docker, which there was none of",
    },
    "kafka-go": {
        "TestClient(AddOffsetsToTxn|AddPartitionsToTxn|InitProducerId|TxnOffsetCommit)": _TRANSACTIONS,
        "TestClient(AlterConfigs|DescribeConfigs)": "it changes a topic's setting, and wants to read what it wrote: "
        "AlterConfigs came with Kafka 0.11",
        "TestWriteV2RecordBatch": _HEADERS
        + "; the test asks for no answer (acks 0), and waits for ever for its record",
        "TestClientCreateTopics": "it makes a topic of fixed name that an earlier run has left there",
        "TestReaderConsumerGroup": "its helper runs into a nil pointer of its own, at the broker as well",
        "TestConn": "localhost:9092 and the broker id 1 are written into it, and a part reads ten messages with a "
        "limit of 0 bytes: where no batches are stored (before 0.11), that is one message",
        "TestDialer|TestClientFindCoordinator": "the address localhost:9092 and the broker id 1 are written into it",
        "TestUnsupportedSASLMechanism|TestWriter": "the suite's own broker has a port with SASL; there was none",
    },
    "kafkajs": {
        r"admin/deleteTopicRecords|broker/deleteRecords|admin/fetchOffsets.* earliest offset when": _DELETE_RECORDS,
        r"(broker|consumer|producer)/.*(with headers|with 0\.11 format)": _HEADERS,
        r"broker/(addOffsetsToTxn|addPartitionsToTxn|endTxn|txnOffsetCommit|initProducerId)": _TRANSACTIONS,
        r"(broker|consumer|producer)/.*( transaction|control batches)|producer/concurrentTransaction": _TRANSACTIONS,
        r"cluster/findGroupCoordinator: .*transactional": _TRANSACTIONS
        + "; a broker of 0.10 takes it for the question for a group",
        r"(admin|broker)/(create|delete|describe)Acls": _ACLS,
        r"admin/createPartitions": _PARTITIONS,
        r"(admin|broker)/(alter|list)PartitionReassignments": "reassignments came into Kafka's protocol with 2.4",
        r"admin/deleteGroups": "DeleteGroups came with Kafka 1.1",
        "(admin|broker)/(alter|describe)Configs|broker/createTopics: .*default replication factor": "it reads a "
        "setting, that of a topic often after it has set it: AlterConfigs came with Kafka 0.11, and a broker of 0.10 "
        "tells none of its settings over Kafka's protocol",
        r"broker/fetch: .* Record batch request": "it wants the fields of a stored batch of Kafka 0.11; the stored "
        "format of 0.10 has other ones",
        r"producer/idempotentProduceMessages: .*concurrent .* after the message is written": "when an answer is lost, "
        "kafkajs gives the number of that batch to another record that waits. A real 0.11.0.3 takes it for a "
        "repetition, and the record is lost without a word (seen: of 0, 1, 2, 3 it had 0, 3, 2, 0, and the test, which "
        "compares buffers, passed); the proxy refuses it (45), and the user gets an error for a record that is not "
        "there",
        "cluster/brokerPool": "it names a topic, which the broker then creates, and is told 3 before it is there, "
        "where a broker says 5; kafkajs does not ask again after a 3. Another one of this file in the next run, "
        "none in the one before: this needs a question for all topics, of another client, at the same moment. Mended "
        "since (8 of 500 topics were told 3 so, 0 of 500 after)",
        r"broker/(describeGroups|findGroupCoordinator|heartbeat|joinGroup|leaveGroup|listOffsets|metadata|offsetCommit|"
        r"offsetFetch|syncGroup)|consumer/handlerErrorRecovery: .*(commits the previous|does not commit)": _LATER_FORM,
    },
    "rskafka": {
        "client: test_(get_offset|consume_offset)|producer|produce_consume: .*_consume_(java|rdkafka)_": _HEADERS,
        "client: test_delete_records|consumer: .*_after_deletion": _DELETE_RECORDS,
        "client: test_(consume|produce_consume)_|consumer: |produce_consume: .*_consume_rskafka_": "rskafka reads only "
        "batches as Kafka 0.11 stores them, and says `Invalid magic number in record batch: 1`; it can produce to old "
        "brokers through the proxy, and not read from them",
    },
}
"""By the suite; by a regular expression for the begin of a test's name."""


def reason_of(suite: str, test: str) -> str | None:
    """Return why this test fails through the proxy; None: that is not known."""
    reasons = REASONS.get(suite, {})
    return next((why for start, why in reasons.items() if re.match(start, test)), None)
