"""Bad input against the running proxy and a real broker: the exact code, and nothing else happens.

Around every bad input the stored entries and all log ends are compared, and a connection that was there before keeps
producing: whatever one client sends, no state moves, nothing is appended and nobody else notices.
"""

import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer

from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.message_set import encode_set, inner_messages, iterate_shallow
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy.limits import REQUEST_BYTES_MAX
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import patient_settings
from testkit.real.clients.raw_client import RawClient, batch, resigned
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.witness import Witness

Place = tuple[str, int]
MESSAGE_TOO_LARGE, INVALID_TOPIC, INVALID_REQUEST, INVALID_RECORD = 10, 17, 42, 87
PRODUCE_HEADER = encode_request_header(ApiKey.PRODUCE, 3, 1, "bad")


# ---------------------------------------------------------------------- frames
@pytest.mark.promise("no-kafka-request", "false-size", "compared-9")
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ((REQUEST_BYTES_MAX + 1).to_bytes(4, "big") + b"x", "frame size: 104857601 bytes, the limit is"),
        (b"\x7f\xff\xff\xff" + b"x" * 100, "frame size: 2147483647 bytes, the limit is"),
        (b"\xff\xff\xff\xff" + b"x" * 100, "frame size: -1"),
        (b"\x80\x00\x00\x00", "frame size: -2147483648"),
        (b"\x00\x00\x00\x00", "frame size: 0"),
        (frame(b"\0\0\0\3\0"), "request header: 5 bytes"),
        (frame(b"\xff" * 64), "API -1 is not served in version -1"),
        (frame(b"\0\0\0\3\0\0\0\1\x7f\xff" + b"c" * 20), "client id at 10: 32767 bytes announced"),
        (frame(b"\0\0\0\3\0\0\0\1\x80\x00" + b"c" * 20), "client id at 8: length -32768"),
        (frame(bytes(range(256))), "client id at 10: 2057 bytes announced"),
        (bytes.fromhex("16030100c8010000c40303") + bytes(200), "start of a TLS connection"),
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "HTTP request (GET)"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_bytes_that_are_no_frame_close_the_connection_with_a_sentence_in_the_log(
    shared_proxy: ProxyProcess, witness: Witness, data: bytes, sentence: str
) -> None:
    with witness.nothing_moves(), RawClient(shared_proxy.address) as client:
        client.send_bytes(data)
        assert client.is_closed()
    line = next(line for line in shared_proxy.log.splitlines() if sentence in line)
    assert "(127.0.0.1)" in line, "who has told no client id is known by its address"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "produce request: "),
        (bytes.fromhex("ffff ffff 00002710 7fffffff"), "topics at"),
        (bytes.fromhex("ffff ffff 00002710 ffffffff"), "count -1"),
        (bytes.fromhex("ffff ffff 00002710 00000001 ffff"), "length -1"),
        (bytes.fromhex("ffff ffff 00002710 00000001 0001 ff 00000001 00000000 00000000"), "not UTF-8"),
        (bytes.fromhex("ffff ffff 00002710 00000001 0001 61 00000001 00000000 7fffffff"), "2147483647 bytes announced"),
        (bytes.fromhex("ffff ffff 00002710 00000001 0001 61 00000001 00000000 80000000"), "size -2147483648"),
        (bytes.fromhex("ffff ffff 00002710 00000000 00"), "1 bytes after its end"),
    ],
)
def test_a_produce_request_that_cannot_be_read_closes_the_connection(
    shared_proxy: ProxyProcess, witness: Witness, body: bytes, sentence: str
) -> None:
    with witness.nothing_moves(), RawClient(shared_proxy.address) as client:
        client.send_bytes(frame(PRODUCE_HEADER, body))
        assert client.is_closed()
    assert sentence in shared_proxy.log


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
def test_other_requests_that_cannot_be_read_close_the_connection(
    shared_proxy: ProxyProcess, witness: Witness, api_key: ApiKey
) -> None:
    version = {ApiKey.METADATA: 4, ApiKey.INIT_PRODUCER_ID: 0, ApiKey.LIST_OFFSETS: 2, ApiKey.FETCH: 4}[api_key]
    with witness.nothing_moves(), RawClient(shared_proxy.address) as client:
        client.send(api_key, version, b"\x7f\xff\xff")
        assert client.is_closed()


@pytest.mark.promise("part-of-a-request")
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_client_that_disconnects_in_the_middle_of_a_frame_changes_nothing(
    shared_proxy: ProxyProcess, witness: Witness, place: Place, share: float
) -> None:
    with RawClient(shared_proxy.address) as client:
        producer_id = client.new_producer_id()
        with witness.nothing_moves():
            body = client.produce_body([(*place, batch([b"v" * 5000], producer_id=producer_id))])
            request = frame(PRODUCE_HEADER, body)
            client.send_bytes(request[: int(len(request) * share)])
            client.half_close()
            assert client.is_closed()


@pytest.mark.promise("complete-requests")
@pytest.mark.parametrize("end", [None, b"\xff\xff\xff\xff garbage", b"GET / HTTP/1.1\r\n\r\n"])
def test_complete_requests_before_a_fin_or_garbage_are_served_and_answered(
    shared_proxy: ProxyProcess, place: Place, end: bytes | None
) -> None:
    with RawClient(shared_proxy.address) as client:
        requests = [
            (ApiKey.PRODUCE, 3, client.produce_body([(*place, batch([b"%d" % number]))])) for number in range(12)
        ]
        metadata = messages.encode_request(ApiKey.METADATA, 1, topics=None)
        client.send_together(*requests, (ApiKey.METADATA, 1, metadata))
        if end is None:
            client.half_close()
        else:
            client.send_bytes(end)
        assert [client.produce_answer()[0].base_offset for _ in requests] == list(range(len(requests)))
        client.answer()
        assert client.is_closed()


# ---------------------------------------------------------------------- APIs and versions
@pytest.mark.promise("compared-20")
@pytest.mark.parametrize("api_key", [999, 32767, -1, 4, 5, 6, 7])
def test_unknown_apis_and_those_among_brokers_close_the_connection(
    shared_proxy: ProxyProcess, witness: Witness, api_key: int
) -> None:
    with witness.nothing_moves(), RawClient(shared_proxy.address) as client:
        client.send(api_key, 0, bytes(12))
        assert client.is_closed()
    assert f"API {api_key} is not served in version 0" in shared_proxy.log


@pytest.mark.parametrize("api_version", [-1, 10, 32767])
def test_a_produce_version_that_nobody_knows_closes_the_connection(
    shared_proxy: ProxyProcess, witness: Witness, api_version: int
) -> None:
    with witness.nothing_moves(), RawClient(shared_proxy.address) as client:
        client.send(ApiKey.PRODUCE, api_version, bytes(12))
        assert client.is_closed()


@pytest.mark.promise("compared-3")
def test_an_api_versions_request_from_the_future_learns_the_present_range(client: RawClient, witness: Witness) -> None:
    with witness.nothing_moves():
        body = client.call(ApiKey.API_VERSIONS, 99, b"\x01\x02\x03")
    answer = messages.decode_response(ApiKey.API_VERSIONS, 0, body)
    assert answer.error_code == 35
    assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(18, 0, 3)]


@pytest.mark.promise("compared-3")
@pytest.mark.parametrize(("api_key", "api_version"), [(ApiKey.FETCH, 12), (ApiKey.INIT_PRODUCER_ID, 5), (65, 0)])
def test_an_unoffered_version_is_refused_in_its_layout_or_by_disconnecting(
    client: RawClient, witness: Witness, api_key: int, api_version: int
) -> None:
    with witness.nothing_moves():
        client.send(api_key, api_version, messages.encode_request(api_key, api_version))
        if api_key == 65:
            assert client.is_closed()
        else:
            assert messages.decode_response(api_key, api_version, client.answer()[1]).error_code == 35


# ---------------------------------------------------------------------- batches
@pytest.mark.promise("checksum")
def test_a_wrong_checksum_is_refused_and_nothing_is_forwarded(
    client: RawClient, witness: Witness, place: Place
) -> None:
    producer_id = client.new_producer_id()
    right = batch([b"value"], producer_id=producer_id)
    with witness.nothing_moves():
        for position in (17, 43, 55, len(right) - 1):  # the checksum, producer id, sequence, the last record
            wrong = bytearray(right)
            wrong[position] ^= 0x01
            assert client.produce_one(*place, bytes(wrong)).error_code == 2
    assert client.produce_one(*place, right).error_code == 0


def _two(producer_id: int) -> bytes:
    return batch([b"a"], producer_id=producer_id) + batch([b"b"], producer_id=producer_id, sequence=1)


BAD_RECORDS: Mapping[str, Callable[[int], bytes | None]] = {
    "null": lambda _: None,
    "empty": lambda _: b"",
    "shorter than a header": lambda _: b"\0" * 60,
    "two batches": _two,
    "cut": lambda producer_id: batch([b"value"], producer_id=producer_id)[:-1],
    "one byte more": lambda producer_id: batch([b"value"], producer_id=producer_id) + b"\0",
    "an old message": lambda _: encode_set([(b"key", b"value" * 20, 0)], magic=1),
    "magic 3": lambda producer_id: resigned(batch([b"v"], producer_id=producer_id), 16, b"\x03"),
    "a base offset": lambda producer_id: resigned(batch([b"v"], producer_id=producer_id), 0, b"\0" * 7 + b"\x05"),
    "no records": lambda producer_id: resigned(batch([b"v"], producer_id=producer_id), 57, b"\0\0\0\0"),
    "a wrong count": lambda producer_id: resigned(batch([b"v"], producer_id=producer_id), 57, b"\0\0\0\2"),
    "a negative count": lambda producer_id: resigned(
        resigned(batch([b"v"], producer_id=producer_id), 57, b"\xff" * 4), 23, b"\xff\xff\xff\xfe"
    ),
    "sequence -1": lambda producer_id: batch([b"v"], producer_id=producer_id, sequence=-1),
    "sequence -2**31": lambda producer_id: batch([b"v"], producer_id=producer_id, sequence=-(2**31)),
    "epoch -1": lambda producer_id: batch([b"v"], producer_id=producer_id, epoch=-1),
    "the control bit": lambda producer_id: batch([b"v"], producer_id=producer_id, attributes=0x20),
    "the transactional bit": lambda producer_id: batch([b"v"], producer_id=producer_id, attributes=0x10),
    "the control bit without a producer": lambda _: batch([b"v"], attributes=0x20),
}


@pytest.mark.promise("bad-batches")
@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_what_no_producer_may_send_is_refused_for_good(
    client: RawClient, witness: Witness, place: Place, kind: str
) -> None:
    producer_id = client.new_producer_id()
    records = BAD_RECORDS[kind](producer_id)
    with witness.nothing_moves():
        for version, code in ((3, INVALID_REQUEST), (7, INVALID_REQUEST), (8, INVALID_RECORD), (9, INVALID_RECORD)):
            answer = client.produce_one(*place, records, version=version)
            assert (answer.error_code, answer.base_offset) == (code, -1)
            assert bool(answer.message) == (version >= 8)
    assert client.produce_one(*place, batch([b"v"], producer_id=producer_id)).base_offset == 0


def test_a_partition_that_is_named_twice_is_refused_twice_and_its_neighbour_is_served(
    client: RawClient, shared_proxy: ProxyProcess, witness: Witness, place: Place
) -> None:
    producer_id = client.new_producer_id()
    first, second = (batch([b"v"], producer_id=producer_id, sequence=sequence) for sequence in (0, 1))
    with witness.nothing_moves():
        answers = client.produce([(*place, first), (*place, second)], version=8)
        assert [one.error_code for one in answers] == [INVALID_RECORD, INVALID_RECORD]
    neighbour = ("compacted", 0, batch([b"n"], producer_id=producer_id, key=b"k"))
    answers = client.produce([(*place, first), neighbour, (*place, second)])
    assert sorted((one.topic, one.error_code) for one in answers) == [("compacted", 0), ("plain", 42), ("plain", 42)]
    assert shared_proxy.entry(producer_id, *place) is None


def test_a_request_with_very_many_bad_partitions_costs_one_line_and_holds_nobody_up(
    client: RawClient, shared_proxy: ProxyProcess, witness: Witness
) -> None:
    lines = len(shared_proxy.log.splitlines())
    with witness.nothing_moves():
        answers = client.produce([("plain", number, None) for number in range(10_000)])
        assert {one.error_code for one in answers} == {INVALID_REQUEST}
        assert len(answers) == 10_000
    assert len(shared_proxy.log.splitlines()) == lines + 1


@pytest.mark.parametrize("codec_number", [4, 5, 6, 7])
def test_a_codec_that_is_not_served_is_named(
    client: RawClient, witness: Witness, place: Place, codec_number: int
) -> None:
    producer_id = client.new_producer_id()
    records = resigned(batch([b"value"], producer_id=producer_id), 21, bytes((0, codec_number)))
    with witness.nothing_moves():
        assert client.produce_one(*place, records).error_code == 76
    if (
        codec_number == Codec.ZSTD
    ):  # from Produce 7 on a client may use it; it is stored in a codec that old readers have
        compressed = batch([b"value" * 50], producer_id=producer_id, codec=Codec.ZSTD)
        assert client.produce_one(*place, compressed, version=8).error_code == 0
        assert client.values(*place) == [b"value" * 50]


@pytest.mark.parametrize("producer", ["idempotent", "plain"])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_right_checksum_over_records_that_cannot_be_read_is_refused_for_good(
    client: RawClient, witness: Witness, place: Place, codec: Codec, producer: str
) -> None:
    producer_id = client.new_producer_id() if producer == "idempotent" else -1
    records = resigned(batch([b"value"] * 40, producer_id=producer_id), 21, bytes((0, codec)))
    with witness.nothing_moves():
        answer = client.produce_one(*place, records, version=8)
        assert answer.error_code == INVALID_RECORD
        assert answer.message is not None
        assert "cannot be read" in answer.message


@pytest.mark.promise("compression-bombs")
def test_a_batch_that_unpacks_to_more_than_the_limit_is_refused(
    client: RawClient, witness: Witness, place: Place
) -> None:
    bomb = batch([bytes(65 << 20)], producer_id=client.new_producer_id(), codec=Codec.GZIP)
    assert len(bomb) < 1 << 20
    with witness.nothing_moves():
        assert client.produce_one(*place, bomb).error_code == MESSAGE_TOO_LARGE


# ---------------------------------------------------------------------- times, names, keys
@pytest.mark.promise("times-before-1970")
@pytest.mark.parametrize("producer", ["idempotent", "plain"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_times_before_1970_are_stored_as_the_broker_stores_them(
    client: RawClient, direct: RawClient, place: Place, producer: str, codec: Codec
) -> None:
    producer_id = client.new_producer_id() if producer == "idempotent" else -1
    times = [-2, -315_619_200_000, 1_700_000_000_000, -(1 << 63)]
    records = [Record(index, time, b"k", b"v") for index, time in enumerate(times)]
    numbers = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    answer = client.produce_one(*place, encode_batch(records, codec=codec, **numbers), version=7)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    stored = list(iterate_shallow(direct.fetch(*place, version=2)))
    if producer_id >= 0 or codec:
        stored = inner_messages(stored[0], 1 << 20)
    assert [one.timestamp for one in stored] == times


@pytest.mark.promise("creates-no-topic")
@pytest.mark.parametrize("producer", ["idempotent", "plain"])
@pytest.mark.parametrize("name", ["x" * 250, "x" * 255, "a/b", "", ".."])
def test_a_name_that_no_topic_can_have_is_refused_at_once(
    client: RawClient, witness: Witness, producer: str, name: str
) -> None:
    producer_id = client.new_producer_id() if producer == "idempotent" else -1
    with witness.nothing_moves():
        assert client.produce_one(name, 0, batch([b"v"], producer_id=producer_id)).error_code == INVALID_TOPIC
        told = client.ask(ApiKey.METADATA, 4, topics=[name], allow_auto_topic_creation=False)
        assert [one.error_code for one in told.topics] == [INVALID_TOPIC]


@pytest.mark.promise("refused-other-producer")
@pytest.mark.parametrize(("version", "code"), [(3, INVALID_REQUEST), (7, INVALID_REQUEST), (8, INVALID_RECORD)])
def test_without_idempotence_a_keyless_record_for_a_compacted_topic_fails_for_good(
    client: RawClient, witness: Witness, version: int, code: int
) -> None:
    with witness.nothing_moves():
        for codec in (Codec.NONE, Codec.GZIP):
            assert client.produce_one("compacted", 4, batch([b"v"], codec=codec), version=version).error_code == code


@pytest.mark.promise("refused-other-producer")
def test_librdkafka_without_idempotence_fails_a_keyless_record_at_once_and_continues(
    shared_proxy: ProxyProcess,
) -> None:
    bootstrap = "{}:{}".format(*shared_proxy.address)
    # One record in flight, as the batches after one that fails for good are none of its fault.
    settings = patient_settings(bootstrap, enable_idempotence=False, max_in_flight=1, batch_num_messages=1)
    producer, told = Producer(settings), []
    for key in (b"a", None, b"b"):
        producer.produce("compacted", b"v", key=key, partition=4, on_delivery=lambda error, _: told.append(error))
    started = time.monotonic()
    assert producer.flush(30) == 0
    assert time.monotonic() - started < 15, "else it was sent again and again"
    assert [error is None for error in told] == [True, False, True]


# ---------------------------------------------------------------------- record headers
@pytest.mark.parametrize("producer", ["idempotent", "plain"])
def test_tracing_headers_are_dropped_and_the_batch_is_stored(client: RawClient, place: Place, producer: str) -> None:
    producer_id = client.new_producer_id() if producer == "idempotent" else -1
    headers = (("traceparent", b"00-1-2-01"), ("X-B3-TraceId", b"1"), ("baggage", None))
    answer = client.produce_one(*place, batch([b"one", b"two"], producer_id=producer_id, headers=headers))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert client.values(*place) == [b"one", b"two"]


@pytest.mark.parametrize("producer", ["idempotent", "plain"])
def test_any_other_header_is_refused_by_name(
    client: RawClient, shared_proxy: ProxyProcess, witness: Witness, place: Place, producer: str
) -> None:
    producer_id = client.new_producer_id() if producer == "idempotent" else -1
    headers = (("traceparent", b"1"), ("tenant", b"blue"))
    records = batch([b"one"], producer_id=producer_id, headers=headers)
    with witness.nothing_moves():
        answer = client.produce_one(*place, records)
        assert (answer.error_code, answer.message) == (43, None)
        answer = client.produce_one(*place, records, version=8)
    assert (answer.error_code, answer.base_offset) == (43, -1)
    assert answer.message == (
        f"record header 'tenant' cannot be stored in topic {place[0]}: the broker's message format has no headers "
        "(setting: --dropped-headers)"
    )
    line = shared_proxy.wait_for_log(rf"record header 'tenant'.*{place[0]}.*dropped-headers")
    assert "WARNING" in line
    assert client.produce_one(*place, batch([b"one"], producer_id=producer_id)).base_offset == 0


@pytest.mark.parametrize("producer", ["idempotent", "plain"])
def test_a_header_with_a_long_name_is_refused_with_a_short_message(
    client: RawClient, shared_proxy: ProxyProcess, witness: Witness, place: Place, producer: str
) -> None:
    producer_id = client.new_producer_id() if producer == "idempotent" else -1
    records = batch([b"one"], producer_id=producer_id, headers=(("\n\u00e9" * 20_000, b""),))
    with witness.nothing_moves():
        for version in (8, 9):
            answer = client.produce_one(*place, records, version=version)
            assert answer.error_code == 43
            assert len(answer.message or "") < 400
    assert all(len(line) < 1000 for line in shared_proxy.log.splitlines())


# ---------------------------------------------------------------------- transactions
@pytest.mark.promise("transactions")
def test_transactions_are_refused_at_every_door(client: RawClient, witness: Witness, place: Place) -> None:
    producer_id = client.new_producer_id()
    topic, number = place
    of_transaction = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": 0}
    with witness.nothing_moves():
        for version in (3, 8):
            answer = client.produce_one(
                *place, batch([b"v"], producer_id=producer_id), version=version, transactional_id="t"
            )
            assert (answer.error_code, answer.base_offset) == (53, -1)
        assert client.init_producer_id(0, "") == (INVALID_REQUEST, -1, -1)
        coordinator = client.ask(ApiKey.FIND_COORDINATOR, 1, key="t", key_type=1)
        assert (coordinator.error_code, coordinator.node_id) == (53, -1)
        assert "transactions" in coordinator.error_message
        assert client.ask(ApiKey.FIND_COORDINATOR, 1, key="t", key_type=7).error_code == INVALID_REQUEST
        added = client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            0,
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[{"name": topic, "partitions": [number]}],
        ).results_by_topic_v3_and_below
        assert [one.partition_error_code for one in added[0].results_by_partition] == [53]
        assert client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 0, group_id="g", **of_transaction).error_code == 53
        assert client.ask(ApiKey.END_TXN, 0, committed=True, **of_transaction).error_code == 53
        offsets = [{"name": topic, "partitions": [{"partition_index": number, "committed_offset": 1}]}]
        commit = client.ask(ApiKey.TXN_OFFSET_COMMIT, 0, group_id="g", topics=offsets, **of_transaction)
        assert commit.topics[0].partitions[0].error_code == 53
    assert client.produce_one(*place, batch([b"v"], producer_id=producer_id)).error_code == 0


# ---------------------------------------------------------------------- places that are not there
@pytest.mark.promise("creates-no-topic")
@pytest.mark.parametrize(
    "missing",
    [("plain", 1_000), ("plain", -1), ("plain", 2**31 - 1), ("no-such", 0), ("n" * 249, 0)],
)
def test_an_unknown_partition_is_refused_and_not_created(
    client: RawClient, direct: RawClient, witness: Witness, missing: Place
) -> None:
    def topics() -> set[str]:
        return {topic.name for topic in direct.ask(ApiKey.METADATA, 1, topics=None).topics}

    known = topics()
    producer_id = client.new_producer_id()
    with witness.nothing_moves():
        answer = client.produce_one(*missing, batch([b"v"], producer_id=producer_id))
        assert (answer.error_code, answer.base_offset) == (3, -1)
    assert topics() == known


@pytest.mark.promise("fewer-acks", "compared-5")
def test_an_idempotent_batch_with_acks_zero_ends_the_connection(
    shared_proxy: ProxyProcess, witness: Witness, place: Place
) -> None:
    with RawClient(shared_proxy.address) as client:
        producer_id = client.new_producer_id()
        with witness.nothing_moves():
            client.send_produce([(*place, batch([b"v"], producer_id=producer_id))], acks=0)
            assert client.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_an_idempotent_batch_with_acks_that_nobody_knows_is_refused(
    client: RawClient, witness: Witness, place: Place, acks: int
) -> None:
    producer_id = client.new_producer_id()
    with witness.nothing_moves():
        answer = client.produce_one(*place, batch([b"v"], producer_id=producer_id), acks=acks)
        assert answer.error_code == 21  # INVALID_REQUIRED_ACKS
