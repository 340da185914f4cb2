"""Of what a client sent before it hung up, only what has no answer is taken (rules R16 and R17)."""

from __future__ import annotations

from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.produce import ProduceRequest, parse_request
from idemproxy.proxy.last_words import hear_out, names_a_producer
from idemproxy.proxy.versions import ApiKey
from testkit.raw_client import RawClient, batch


def request(api_key: int, version: int, body: bytes) -> bytes:
    return encode_request_header(api_key, version, 1, "gone") + body


def produce(acks: int, version: int = 3, producer_id: int = -1) -> bytes:
    records = batch([b"a"], producer_id=producer_id)
    return request(ApiKey.PRODUCE, version, RawClient.produce_body([("t", 0, records)], version=version, acks=acks))


def never() -> bool:
    return False


def test_only_a_produce_without_an_answer_is_taken_in_any_version_with_and_without_a_producer_id() -> None:
    wanted = [produce(0), produce(0, version=2), produce(0, version=9), produce(0, producer_id=7)]
    others = [produce(-1), produce(1), produce(-1, producer_id=7), request(ApiKey.METADATA, 1, b"\0\0\0\0")]
    taken: list[bytes] = []
    hear_out([*others, *wanted, *others], taken.append, never)
    assert taken == wanted


def test_nothing_is_taken_behind_one_that_cannot_be_read() -> None:
    taken: list[bytes] = []
    hear_out([produce(0), request(ApiKey.PRODUCE, 3, b"\xff"), produce(0)], taken.append, never)
    assert taken == [produce(0)]


def test_nothing_more_is_taken_once_the_connection_was_ended_over_one_of_them() -> None:
    taken: list[bytes] = []
    hear_out([produce(0), produce(0), produce(0)], taken.append, lambda: len(taken) == 2)
    assert len(taken) == 2


def read(version: int, *records: bytes | None) -> ProduceRequest:
    body = RawClient.produce_body([("t", number, one) for number, one in enumerate(records)], version=version, acks=0)
    return parse_request(body, 0, version)


def test_a_request_names_a_producer_if_any_batch_of_it_does() -> None:
    plain, named, cut = batch([b"a"]), batch([b"a"], producer_id=0), batch([b"a"], producer_id=7)[:60]
    for version in (3, 9):
        assert names_a_producer(read(version, plain, cut, None, named))
        assert not names_a_producer(read(version, plain, plain))
    assert names_a_producer(read(2, named)), "which is judged as one of a later version"


def test_what_cannot_be_read_names_nobody_and_is_left_to_whoever_refuses_it() -> None:
    cut = batch([b"a"], producer_id=7)[:60]
    assert not names_a_producer(read(3, cut, None, b"", b"\0" * 100))
