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
}
"""By the suite; by a regular expression for the begin of a test's name."""


def reason_of(suite: str, test: str) -> str | None:
    """Return why this test fails through the proxy; None: that is not known."""
    reasons = REASONS.get(suite, {})
    return next((why for start, why in reasons.items() if re.match(start, test)), None)
