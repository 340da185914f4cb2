"""The acks of a produce request, read from the start of its frame; compared with the protocol library."""

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.produce_acks import START_BYTES_MAX, acks_of

PRODUCE = 0


def request(version: int, acks: int, client_id: str | None, transactional_id: str | None) -> bytes:
    body = messages.encode_request(
        PRODUCE, version, transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[]
    )
    return encode_request_header(PRODUCE, version, 7, client_id) + body


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize(("client_id", "transactional_id"), [(None, None), ("", "t"), ("c" * 300, "t" * 300)])
def test_the_acks_are_those_that_were_encoded_as_soon_as_they_are_there(
    version: int, acks: int, client_id: str | None, transactional_id: str | None
) -> None:
    data = request(version, acks, client_id, transactional_id if version >= 3 else None)
    told = [acks_of(b"????" + data[:count], 4, len(data), version) for count in range(len(data) + 1)]
    first = next(index for index, one in enumerate(told) if one is not None)
    assert set(told[first:]) == {(acks, 4 + first)}
    assert set(told[:first]) <= {None}


@pytest.mark.parametrize("version", range(14))
def test_a_request_that_ends_before_its_acks_is_refused_also_in_front_of_another(version: int) -> None:
    data = encode_request_header(PRODUCE, version, 7, "client")
    with pytest.raises(WireError, match=r"ends? before its acks"):
        acks_of(data + bytes(100), 0, len(data), version)


def test_the_largest_names_find_room() -> None:
    assert len(request(9, 1, "c" * 32767, "t" * 32767)) < START_BYTES_MAX
