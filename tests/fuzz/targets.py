"""What is fuzzed: every function that reads bytes of a peer, a store or a file. Each target takes any bytes and may
only return, or refuse them by the one error that its caller expects.

A target is a name, a function, and what the corpus has for it. Runs nothing by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from crc32c import crc32c

from idemproxy.codecs import messages
from idemproxy.codecs import produce as produce_codec
from idemproxy.codecs.batch_marker import (
    anchor_of,
    anchor_of_batch_marker,
    content_digest,
    encode_batch_marker,
    parse_batch_marker,
)
from idemproxy.codecs.compression import Codec, decompress
from idemproxy.codecs.convert import (
    HeaderPolicy,
    HeaderRefused,
    Inner,
    border_of_halves,
    cutting,
    digesting_batch,
    wrap,
)
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.framing import FrameSplitter
from idemproxy.codecs.header_marker import marking_batch, may_be_marker, read_header_marker
from idemproxy.codecs.headers import RequestHeader, parse_request_header, parse_response_header
from idemproxy.codecs.message_set import inner_messages, iterate_shallow, span, tail_is_partial, verify_crc
from idemproxy.codecs.old_formats.lowering import lowering
from idemproxy.codecs.record_batch import (
    Record,
    encode_batch,
    iterate_records,
    iterate_stored,
    magic_of,
    parse_single_batch,
)
from idemproxy.codecs.sasl import OAuthBearer, SaslError, Scram
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge import asks, metadata
from idemproxy.proxy.bridge.base import RequestRefused
from idemproxy.proxy.bridge.cluster import Cluster
from idemproxy.proxy.bridge.describe_cluster import refused_describe_cluster
from idemproxy.proxy.bridge.describe_configs import parse_describe_configs
from idemproxy.proxy.bridge.describe_producers import parse_describe_producers
from idemproxy.proxy.bridge.init_producer_id import parse_init_producer_id
from idemproxy.proxy.bridge.refusals import refusal
from idemproxy.proxy.bridge.table import plan
from idemproxy.proxy.hidden_ranges.records import UnreadableHiddenRange, key_of, read_record, value_of
from idemproxy.proxy.partition_log.offset_checkpoints import CheckpointFormatError, OffsetCheckpoints
from idemproxy.proxy.pass_through.principal import MECHANISMS, Conversation
from idemproxy.proxy.session.conditional_topics import reading_expected_offset
from idemproxy.proxy.session.produce import parse_produce
from idemproxy.proxy.telemetry.trace_context import TraceContexts
from idemproxy.proxy.versions import KNOWN, OWN_RANGES, PASSED_MAX, detect
from idemproxy.reactor import Buffer
from idemproxy.state.entry import StoredFormatError, pack, unpack
from idemproxy.state.hidden_ranges import HiddenRangesFormatError, pack_hidden_ranges, unpack_hidden_ranges
from idemproxy.state.inspection import EntryPlace, parse_key
from idemproxy.state.names import pack_name, unpack_name
from idemproxy.state.producer_ids import unpack_block
from idemproxy.state.redis_facts import parse_info, parse_redis_url
from idemproxy.state.redis_link import REPLY_BYTES_MAX, RedisLink, Reply
from idemproxy.state.store import StoreAway
from testkit.real.machine.kernel_build import current, current_lower, current_raise_set
from testkit.stage.kernel_cases import in_kernel, in_python, with_kernel, wrapper_in_python
from testkit.stage.sent_sets import raised_both_ways
from testkit.stage.stored_batches import with_lower
from testkit.stage.wrappers import to_inner, to_message_set, to_wrapper

OUTPUT_BYTES_MAX = 1 << 20
FRAME_BYTES_MAX = 1 << 16
_BATCH_HEAD_BYTES, _BATCH_LENGTH_AT, _MAGIC_AT, _CRC_AT, _SIGNED_AT = 61, 8, 16, 17, 21
_ADDRESSES = {0: ("proxy", 9093), 1: ("proxy", 9094)}
_LEGACY = KNOWN["0.10.2"]
_OLD_METADATA, _NEW_METADATA = (
    messages.encode_response(3, version, brokers=[{"node_id": 1, "host": "h", "port": 9092}], topics=[])
    for version in (0, 1)
)
"""What a broker says first that is asked for its version, one before and one since 0.10."""
_NONCE = b"fyko"
_POLICY = HeaderPolicy(("*",))


@dataclass(frozen=True, slots=True)
class Target:
    """``seeds``: which files of the corpus begin with what it reads; the names are those of ``corpus/``."""

    run: Callable[[bytes], None]
    seeds: str


class Broken(AssertionError):
    """What was read is not what was written, or a bound does not hold."""


# ---------------------------------------------------------------------- clients
def request_frame(data: bytes) -> None:
    """A request as a client sends it: header, then whatever API it says."""
    with suppress(WireError):
        header = parse_request_header(data)
        key, version = header.api_key, header.api_version
        body = memoryview(data)[header.body_offset :]
        if key == 0:
            _produce_request(data, header)
        elif key == 3:
            metadata.encode_client_answer(
                min(max(version, 0), 4),
                Cluster(None, None),
                metadata.parse_client_request(version, body).topics,
                _ADDRESSES,
                fallback_cluster_id="c",
            )
        elif key == 22:
            parse_init_producer_id(body, version)
        elif key == 32:
            parse_describe_configs(version, body)
        elif key == 61:
            parse_describe_producers(body)
        elif key == 60:
            refused_describe_cluster(version, body)
        elif key not in OWN_RANGES:
            bridge = plan(key, version, _LEGACY, _ADDRESSES)
            if not isinstance(bridge, RequestRefused):
                bridge.request(body)
    with suppress(WireError):
        header = parse_request_header(data)
        refusal(header.api_key, header.api_version, memoryview(data)[header.body_offset :])


def _produce_request(frame: bytes, header: RequestHeader) -> None:
    request = parse_produce(frame, header)
    for item in request.partitions:
        if item.records is not None:
            _records(item.records)


def frames(data: bytes) -> None:
    """A stream of frames, in one piece and byte by byte."""

    def fed(pieces: list[bytes]) -> tuple[list[bytes | bytearray], bool]:
        splitter, found = FrameSplitter(FRAME_BYTES_MAX), []
        try:
            for piece in pieces:
                found += splitter.feed(piece)
        except WireError:
            return found, False
        return found, splitter.error is None

    whole, by_bytes = fed([data]), fed([data[at : at + 1] for at in range(len(data))])
    if whole != by_bytes:
        raise Broken(f"{whole} in one piece, {by_bytes} byte by byte")


def record_batch(data: bytes) -> None:
    """A batch whose length and checksum are right, so that what comes after them is reached."""
    with suppress(WireError):
        _records(memoryview(_signed(data)))
    with suppress(WireError):
        for stored in iterate_stored(data):
            list(iterate_records(stored.records, stored.header, OUTPUT_BYTES_MAX, is_stored=True))


def _signed(data: bytes) -> bytes:
    if len(data) < _BATCH_HEAD_BYTES:
        return data
    signed = bytearray(data)
    signed[_BATCH_LENGTH_AT : _MAGIC_AT - 4] = (len(data) - 12).to_bytes(4, "big")
    signed[_MAGIC_AT] = 2
    signed[_CRC_AT:_SIGNED_AT] = crc32c(signed[_SIGNED_AT:]).to_bytes(4, "big")
    return bytes(signed)


def trace_context(data: bytes) -> None:
    """The traces of a batch: its bytes as they are, and the same bytes as headers of one record, a line for each."""
    _contexts.of_batch(memoryview(_signed(data)))
    pairs = [line.partition(b":") for line in data.split(b"\n")]
    headers = tuple((name.decode("utf-8", "replace"), text if colon else None) for name, colon, text in pairs)
    found = _contexts.of_batch(memoryview(encode_batch([Record(at, 0, None, None, headers) for at in (0, 1)])))
    if len(found) > 1 or not all(context.is_valid for context in found):
        raise Broken("one record has several traces, or one that is none")


def _a_propagator_failed(error: Exception) -> None:
    raise Broken("a propagator that comes with the proxy failed") from error


_contexts = TraceContexts(_a_propagator_failed)


def _records(records: memoryview) -> None:
    if magic_of(records) < 2:
        message_set(bytes(records))
        return
    header = parse_single_batch(records)
    count = sum(1 for _ in iterate_records(records, header, OUTPUT_BYTES_MAX))
    with suppress(HeaderRefused):
        for magic in (0, 1):
            to_message_set(
                records, codec=Codec.NONE, magic=magic, policy=_POLICY, output_bytes_max=OUTPUT_BYTES_MAX, wrap=True
            )
        wrapper = to_wrapper([records], key=None, codec=Codec.GZIP, policy=_POLICY, output_bytes_max=OUTPUT_BYTES_MAX)
        (message,) = iterate_shallow(wrapper.message_set)
        verify_crc(wrapper.message_set, message)
        if len(inner_messages(message, 64 * OUTPUT_BYTES_MAX)) != count:
            raise Broken("a converted batch has another number of records")
        if count > 1:
            inner = to_inner([records], policy=_POLICY, output_bytes_max=OUTPUT_BYTES_MAX)
            pieces = at_once(cutting(inner, [at_once(border_of_halves(inner))]))
            if sum(len(piece.message_set) for piece in pieces) != len(inner.message_set):
                raise Broken("the halves of a batch are not all of it")
    at_once(digesting_batch(records, header, OUTPUT_BYTES_MAX))
    if may_be_marker(header.producer_epoch):
        # Any 48 bits are a marker, unless the upper 16 are the epoch of a batch without one.
        marker = header.producer_epoch % (1 << 16) << 32 | header.base_sequence % (1 << 32)
        marked = parse_single_batch(memoryview(at_once(marking_batch(records, marker))))
        if read_header_marker(marked) != marker:
            raise Broken("the marker in a header is read as another one")
    with suppress(WireError):
        at_once(reading_expected_offset(records, header))


def compressed(data: bytes) -> None:
    """The first byte chooses codec and format."""
    if data:
        with suppress(WireError):
            out = decompress(Codec(data[0] % 5), data[1:], OUTPUT_BYTES_MAX, magic=data[0] // 5 % 3)
            if len(out) > OUTPUT_BYTES_MAX:
                raise Broken("more than the limit came out")


def client_sasl(data: bytes) -> None:
    """What a client says to the broker of who it is; the first byte chooses the mechanism."""
    if data:
        talk = Conversation(sorted(MECHANISMS)[data[0] % len(MECHANISMS)])
        with suppress(SaslError):
            talk.client_says(data[1:])
            talk.broker_says(data[1:])


# ---------------------------------------------------------------------- brokers
def broker_sasl(data: bytes) -> None:
    """What a broker says to the proxy's own credentials: the first byte chooses the mechanism, a zero byte parts two
    challenges."""
    if data:
        with suppress(SaslError):
            if data[0] % 2:
                OAuthBearer("token").answer(data[1:])
                return
            scram = Scram("sha256", "alice", "secret", _NONCE, lambda _hash, _password, _salt, _count: bytes(32))
            scram.first()
            for challenge in data[1:].split(b"\0", 1):
                scram.answer(challenge)


def broker_answer(data: bytes) -> None:
    """An answer of a broker: two bytes for API and version, then header and body as they come."""
    if len(data) < 2:
        return
    api_key, version, frame = data[0] % 24, data[1] % 12, data[2:]
    with suppress(WireError):
        _, offset = parse_response_header(frame, api_key, version)
        body = memoryview(frame)[offset:]
        if api_key == 0:
            produce_codec.parse_response(frame, offset, version)
        elif api_key in (1, 3, 18):
            for earlier in ([], [_OLD_METADATA], [_NEW_METADATA]):
                detect([*earlier, body])
        if api_key in PASSED_MAX and api_key not in OWN_RANGES:
            bridge = plan(api_key, version, _LEGACY, _ADDRESSES)
            if not isinstance(bridge, RequestRefused):
                bridge.response(body)
    for question in (
        asks.LatestOffset("t", 0),
        asks.EarliestOffset("t", 0),
        asks.FetchRecords("t", 0, 0, 1 << 20),
        asks.Metadata(None),
    ):
        if question.api_key == api_key:
            with suppress(WireError):
                question.parse(version % (question.version_for(_LEGACY) + 1), memoryview(frame)[4:])


def message_set(data: bytes) -> None:
    """Messages of formats v0 and v1, as a broker stores them."""
    with suppress(WireError):
        tail_is_partial(data)
        for message in iterate_shallow(data):
            anchor_of(message)
            parse_batch_marker(message.key)
            with suppress(WireError):
                verify_crc(data, message)
            if message.is_wrapper:
                with suppress(WireError):
                    span(message, OUTPUT_BYTES_MAX)
                    inner_messages(message, OUTPUT_BYTES_MAX)


def batch_marker(data: bytes) -> None:
    """The key of a wrapper: ours, which is read as it was written, or anybody's."""
    identities = parse_batch_marker(data)
    if identities is not None and encode_batch_marker(identities) != data:
        raise Broken("a batch marker is read as another one")


def kernel_records(data: bytes) -> None:
    """A batch, by the compiled kernel and by its Python equivalent."""
    signed = _signed(data)
    kernel = current()
    for magic in (0, 1) if kernel else ():
        expected = in_python([signed], magic)
        made = in_kernel(kernel, [signed], magic)
        if made is not None and made != expected:
            raise Broken(f"the kernel makes {made}, the Python {expected}")
        if made is not None and magic and kernel.wrap_batches(1 << 24, signed) != wrapper_in_python([signed]):
            raise Broken("the kernel makes another wrapper than the Python")


def kernel_pieces(data: bytes) -> None:
    """The kernel's other functions; the first two bytes cut what follows into a key and a value, and say of what kind
    the wrapper is."""
    if len(data) < 2:
        return
    key, value = data[2 : 2 + data[0]] if data[0] < 255 else None, data[2 + data[0] :]
    codec, magic, harder = Codec(data[1] % 5), data[1] // 5 % 2, bool(data[1] & 128)
    inner = Inner(bytearray(value), 1 + data[1], int.from_bytes(value[:8], "big") >> 1, b"")
    found = []
    kernel = current()
    for one in (None, kernel):
        with with_kernel(one):
            wrapped = wrap(inner, key=key, codec=codec, compress_harder=harder) if magic else b""
            found.append((wrapped, content_digest(key, value), anchor_of_batch_marker(value)))
    if kernel and kernel.crc32c(value, data[1]) != crc32c(value[data[1] :]):
        raise Broken("the kernel computes another checksum")
    if found[0] != found[1]:
        raise Broken(f"the Python makes {found[0]}, the kernel {found[1]}")


def lowered_records(data: bytes) -> None:
    """A batch that was fetched, as messages of format v0 and v1, by compiled code and by its Python equivalent."""
    fetched = _signed(data)
    for magic in (0, 1):
        made: list[object] = []
        for library in (None, current_lower()):
            out = bytearray()
            with with_lower(library):
                try:
                    steps = lowering(fetched, 0, out, magic=magic, bytes_max=1 << 16, unpacked_bytes_max=1 << 20)
                    made.append((at_once(steps), bytes(out)))
                except WireError as error:
                    made.append(type(error))
        if made[0] != made[1]:
            raise Broken(f"the Python makes {made[0]}, compiled code {made[1]}")


def raised_sets(data: bytes) -> None:
    """A message set of a producer as batches, by compiled code and by its Python equivalent."""
    try:
        raised_both_ways(data, 1_000, current_raise_set(), OUTPUT_BYTES_MAX)
    except AssertionError as error:
        raise Broken(f"the Python and compiled code differ: {error}") from None


def library_message(data: bytes) -> None:
    """Two bytes for API and version, one for the direction, then a body for the protocol library's door."""
    if len(data) >= 3:
        decode = messages.decode_request if data[2] % 2 else messages.decode_response
        with suppress(WireError):
            decode(data[0] % 36, data[1] % 12, data[3:])


# ---------------------------------------------------------------------- the store and files
def stored_values(data: bytes) -> None:
    """Values and keys in Redis."""
    try:
        entry = unpack(data)
    except StoredFormatError:
        pass
    else:
        if pack(entry) != data and pack(unpack(pack(entry))) != pack(entry):
            raise Broken("an entry is read as another one")
    unpack_block(data)
    with suppress(StoredFormatError):
        if pack_name(unpack_name(data)) != data:
            raise Broken("the record of a name is read as another one")
    with suppress(HiddenRangesFormatError):
        version, hidden_ranges = unpack_hidden_ranges(data)
        if unpack_hidden_ranges(pack_hidden_ranges(version, hidden_ranges)) != (version, hidden_ranges):
            raise Broken("hidden ranges are read as other ones")
    key, _, value = data.partition(b"\0")
    for one in ((key, value), (b"orders/3/5-7", data)):
        with suppress(UnreadableHiddenRange):
            named, hidden_range = read_record(*one)
            if hidden_range is None:
                continue
            if read_record(key_of(named), value_of(named, hidden_range, "")) != (named, hidden_range):
                raise Broken("a hidden range in its topic is read as another one")
    place = parse_key("c", b"idem:c:" + data)
    if isinstance(place, EntryPlace) and place.key("c") != b"idem:c:" + data:
        raise Broken("a key is read as another one")


class _Still:
    """A reactor and a wire on which nothing happens by itself."""

    local_host = ""
    unsent = 0

    def now(self) -> float:
        return 0.0

    def later(self, seconds: float, callback: Callable[[], None]) -> _Still:
        return self

    def at_flush(self, callback: Callable[[], None]) -> None:
        callback()

    def connect(self, address: object, endpoint: object) -> None: ...

    def send(self, *chunks: Buffer) -> None: ...

    def hand_over(self, endpoint: object) -> None: ...

    def fence(self, may_send: Callable[[], bool]) -> None: ...

    def cancel(self) -> None: ...

    def before_reading(self, look: Callable[[], None]) -> None: ...

    def after_writing(self, look: Callable[[], None]) -> None: ...

    def before_end(self, look: Callable[[], bool]) -> None: ...

    def expect(self, missing_bytes: int) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


def redis_replies(data: bytes) -> None:
    """A stream of replies: each of eight commands is answered once, or the link ends; the first byte cuts the rest."""
    still = _Still()
    replies: list[Reply | StoreAway] = []
    ends: list[str] = []
    link = RedisLink(still, lambda: None, ends.append)
    link.connected(still)
    for _ in range(8):
        link.call(b"x", replies.append)
    step = 1 + (data[0] if data else 0)
    for at in range(1, len(data), step):
        if ends:
            break
        link.received(data[at : at + step])
    if ends and len(replies) != 8:
        raise Broken(f"{len(replies)} of 8 calls were answered when the link ended")
    if len(data) > REPLY_BYTES_MAX + FRAME_BYTES_MAX and not ends:
        raise Broken("a reply of any size is taken")


def redis_texts(data: bytes) -> None:
    """What INFO tells, and an address as somebody typed it."""
    parse_info(data)
    with suppress(ValueError, UnicodeDecodeError):
        parse_redis_url(data.decode())


def marks_file(data: bytes) -> None:
    """The file of checkpoints in the data directory."""
    with suppress(CheckpointFormatError):
        OffsetCheckpoints().unpack(data, 1000.0, 1_700_000_000_000)


TARGETS: dict[str, Target] = {
    "request_frame": Target(request_frame, "request"),
    "frames": Target(frames, "stream"),
    "record_batch": Target(record_batch, "batch"),
    "trace_context": Target(trace_context, "context"),
    "compressed": Target(compressed, "compressed"),
    "client_sasl": Target(client_sasl, "sasl"),
    "broker_sasl": Target(broker_sasl, "challenge"),
    "broker_answer": Target(broker_answer, "answer"),
    "message_set": Target(message_set, "set"),
    "marker": Target(batch_marker, "marker"),
    "kernel_records": Target(kernel_records, "batch"),
    "kernel_pieces": Target(kernel_pieces, "set"),
    "lowered_records": Target(lowered_records, "batch"),
    "raised_sets": Target(raised_sets, "set"),
    "library_message": Target(library_message, "library"),
    "stored_values": Target(stored_values, "stored"),
    "redis_replies": Target(redis_replies, "redis"),
    "redis_texts": Target(redis_texts, "text"),
    "marks_file": Target(marks_file, "marks"),
}
