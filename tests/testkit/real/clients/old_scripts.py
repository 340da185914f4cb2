"""Random scripts of requests that Kafka 4 has dropped, and others of their time: run at a broker that serves them, and
through the proxy in front of one that does not. What is answered is compared field by field.

The same seed makes the same requests on both sides: none depends on an answer, but for the member id of a group. What
a script writes to the partitions that it reads is the same on both sides; what one side refuses has a partition of its
own (``ODD``). ``ALLOWED`` has every field that may differ, and why. Addresses of brokers, ids of members, times that a
broker takes from its clock, throttle times and the wording of errors are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, Final

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, encode_set, iterate_shallow
from idemproxy.proxy.versions import ApiKey
from testkit.stage.stored_batches import Entry, entries

from .raised_client import OldConsumer
from .raw_client import RawClient

STEPS: Final = 60
SMALL_BYTES: Final = 2_000
"""max.message.bytes of one topic."""
ODD_PARTITIONS: Final = 12
HOUR_MS: Final = 3_600_000
_NOT_COMPARED: Final = frozenset(
    {"throttle_time_ms", "host", "port", "client_host", "log_dir", "partition_size", "member_id", "leader"}
)
_WORDS: Final = frozenset({"error_message"})
_CLOCK: Final = frozenset({"log_append_time_ms"})
_LIST_KEYS: Final = ("name", "topic", "group_id", "resource_name", "index", "partition_index", "partition", "node_id")
_KEPT_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
Plain = tuple[bytes | None, bytes | None, int]


@dataclass(frozen=True)
class Allowed:
    """``theirs``, ``ours``: the values, of which None is any. ``why``: the reason."""

    why: str
    theirs: object = None
    ours: object = None


_AS_0_10: Final = "the proxy answers as Kafka 0.10, whose clients do not know INVALID_RECORD"
_SPLIT: Final = "in formats v0 and v1 the limit is for each message, so the proxy splits the set"
_MERGED: Final = "Kafka 0.10 takes several wrappers in a set, or one beside plain messages; so does the proxy"
_MIXED: Final = "Kafka 0.10 takes messages of both formats in a set; so does the proxy"
_CUT: Final = "3.9.1 reports success and stores nothing: the client would lose messages without a word"
_FUTURE: Final = "Kafka 4 refuses times more than an hour ahead (KIP-937)"
_EXACT: Final = "3.9.1 answers with the beginnings of segments, the proxy with the offset itself"
_STORED_IN_KAFKA: Final = "version 0 was stored in ZooKeeper, which has no limit for the text, and drops it"
INVALID_RECORD, CORRUPT, TOO_LARGE, TOO_LARGE_TEXT = (
    int(ErrorCode.INVALID_RECORD),
    int(ErrorCode.CORRUPT_MESSAGE),
    int(ErrorCode.MESSAGE_TOO_LARGE),
    int(ErrorCode.OFFSET_METADATA_TOO_LARGE),
)
ALLOWED: Final[Mapping[tuple[str, str], Allowed]] = MappingProxyType(
    {
        ("produce without a key to a compacted topic", "error_code"): Allowed(_AS_0_10, INVALID_RECORD, CORRUPT),
        ("produce more than a batch may have", "error_code"): Allowed(_SPLIT, TOO_LARGE, 0),
        ("produce more than a batch may have", "base_offset"): Allowed(_SPLIT, -1, 0),
        ("produce several wrappers", "error_code"): Allowed(_MERGED, INVALID_RECORD, 0),
        ("produce several wrappers", "base_offset"): Allowed(_MERGED, -1, 0),
        ("produce a wrapper beside plain messages", "error_code"): Allowed(_MERGED, INVALID_RECORD, 0),
        ("produce a wrapper beside plain messages", "base_offset"): Allowed(_MERGED, -1, 0),
        ("produce a set that is cut off", "error_code"): Allowed(_CUT, 0, CORRUPT),
        ("produce both formats in one set", "error_code"): Allowed(_MIXED, INVALID_RECORD, 0),
        ("produce both formats in one set", "base_offset"): Allowed(_MIXED, -1, 0),
        ("produce two hours ahead", "error_code"): Allowed(_FUTURE, 0, int(ErrorCode.INVALID_TIMESTAMP)),
        ("produce two hours ahead", "base_offset"): Allowed(_FUTURE, 0, -1),
        ("list offsets by time", "old_style_offsets"): Allowed(_EXACT),
        ("commit a long text, version 0", "error_code"): Allowed(_STORED_IN_KAFKA, 0, TOO_LARGE_TEXT),
        ("fetch offsets, version 0", "metadata"): Allowed(_STORED_IN_KAFKA, ""),
    }
)


@dataclass(frozen=True)
class Difference:
    """``what``: was asked for; ``where``: the path of the field in the answer."""

    what: str
    where: str
    theirs: object
    ours: object

    @property
    def allowed(self) -> Allowed | None:
        """Why it may be; None: it may not."""
        found = ALLOWED.get((self.what, self.where.rpartition(".")[2]))
        if found is None:
            return None
        fits = found.theirs in (None, self.theirs) and found.ours in (None, self.ours)
        return found if fits else None


@dataclass
class Side:
    """One of the two, and what it has answered: label, then path -> value."""

    raw: RawClient
    seen: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def ask(self, label: str, key: int, version: int, /, **fields: Any) -> Any:
        """Send one request, and note the answer."""
        answer = self.raw.ask(key, version, **fields)
        self.seen.append((label, flat(answer)))
        return answer


def flat(value: object, path: str = "") -> dict[str, object]:
    """Path -> value of all fields that are compared, with what a part of a list is named by, or its place."""
    if isinstance(value, list):
        if not all(hasattr(one, "fields") for one in value):
            return {path: tuple(value)}
        found: dict[str, object] = {}
        for number, one in enumerate(value):
            name = next((getattr(one, key) for key in _LIST_KEYS if hasattr(one, key)), number)
            found |= {f"{path}[{name}]": "there", **flat(one, f"{path}[{name}]")}
        return found
    fields: Mapping[str, object] | None = getattr(value, "fields", None)
    if fields is None:
        return {path: value}
    found = {}
    for name in fields:
        one = getattr(value, name)
        if name in _NOT_COMPARED:
            continue
        if name in _WORDS:
            one = bool(one)
        elif name in _CLOCK:
            one = isinstance(one, int) and one > 0
        elif name == "records":
            one = (
                tuple(read_entries(bytes(one or b"")))
                if isinstance(one, bytes | bytearray | memoryview | None)
                else one
            )
            found[f"{path}.{name}"] = one
            continue
        found |= flat(one, f"{path}.{name}")
    return found


def read_entries(records: bytes) -> Iterator[Entry]:
    """The whole messages, without times that the broker took from its clock."""
    whole = list(iterate_shallow(records))
    end = whole[-1].start + whole[-1].size_bytes if whole else 0
    for one in entries(records[:end]):
        yield _without_clock(one)


def _without_clock(one: Entry) -> Entry:
    is_clock = one.attributes & 8
    inner = tuple(_without_clock(inside) for inside in one.inner)
    return one._replace(timestamp=0 if is_clock else one.timestamp, inner=inner)


def differences(theirs: Side, ours: Side) -> list[Difference]:
    """All fields that differ."""
    found = []
    assert [label for label, _ in theirs.seen] == [label for label, _ in ours.seen]
    for (label, one), (_, other) in zip(theirs.seen, ours.seen, strict=True):
        for where in sorted(one.keys() | other.keys()):
            left, right = one.get(where), other.get(where)
            if where.endswith(".records") and isinstance(left, tuple) and isinstance(right, tuple):
                if not _is_begun_alike(left, readable(left), right):
                    found.append(Difference(label, where, left, right))
            elif left != right:
                found.append(Difference(label, where, left, right))
    return found


def readable(found: Sequence[Entry]) -> list[Entry]:
    """As the proxy has them: lz4 becomes gzip in format v0, whose clients read its frames in different ways."""
    return [
        one._replace(attributes=one.attributes ^ Codec.LZ4 ^ Codec.GZIP)
        if one.magic == 0 and one.attributes & 7 == Codec.LZ4
        else one
        for one in found
    ]


def _is_begun_alike(theirs: Sequence[Entry], readable_ones: Sequence[Entry], ours: Sequence[Entry]) -> bool:
    """Is one of them the beginning of the other? How much an answer brings is up to a server: 3.9.1 stops where the
    lowered records have as many bytes as the stored ones, the proxy where the client's limit is. Something has to come
    where something does from the other one."""
    size = min(len(theirs), len(ours))
    return list(readable_ones[:size]) == list(ours[:size]) and bool(theirs) <= bool(ours)


# ---------------------------------------------------------------------- scripts
class OldScript:
    """The requests of one seed. ``now_ms``: of the first record; the same on both sides."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self.seed = seed
        self._now_ms = now_ms
        self.times, self.append, self.compact, self.small, self.odd = (
            f"{kind}-{seed}" for kind in ("times", "append", "compact", "small", "odd")
        )
        self.topics: Mapping[str, tuple[int, Mapping[str, str | int]]] = {
            self.times: (2, {}),
            self.append: (1, {"message.timestamp.type": "LogAppendTime"}),
            self.compact: (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.99"}),
            self.small: (ODD_PARTITIONS, {"max.message.bytes": SMALL_BYTES}),
            self.odd: (ODD_PARTITIONS, {}),
        }
        self.read_back = [(self.times, 0), (self.times, 1), (self.append, 0), (self.compact, 0)]
        self._random = Random(seed)
        self._odd = 0
        self._made: list[str] = []

    def run(self, side: Side, steps: int = STEPS) -> None:
        """Send them all, then read what was written."""
        acts = (
            *[self._produce] * 6,
            *[self._fetch] * 6,
            self._produce_odd,
            self._produce_refused,
            self._list_offsets,
            self._commit,
            self._fetch_offsets,
            self._look,
            self._administer,
            self._join,
        )
        for _ in range(steps):
            self._random.choice(acts)(side)

    def read_all(self, side: Side, version: int, bytes_max: int) -> list[list[Entry]]:
        """Every partition that is compared, in fetches of this version and limit."""
        consumer, found = OldConsumer(side.raw, version), []
        for topic, partition in self.read_back:
            end, read = side.raw.end_offset(topic, partition), list[Entry]()
            offset = 0
            while offset < end:
                one = consumer.fetch(topic, {partition: offset}, bytes_max=bytes_max)[partition]
                assert one.error_code == 0, one
                more = list(read_entries(bytes(one.records or b"")))
                assert more, f"nothing at {offset} of {end}"
                assert more[-1].offset >= offset, f"{more[-1].offset} at {offset}"
                read += more
                offset = more[-1].offset + 1
            found.append(read)
        return found

    # ------------------------------------------------------------------ records
    def _content(self) -> bytes | None:
        dice = self._random
        return dice.choice((None, b"", dice.randbytes(dice.randint(1, 60)), bytes(dice.randint(1, 200))))

    def _records(self, *, has_keys: bool = False) -> list[Plain]:
        dice = self._random
        count = dice.choice((1, 1, 2, 5, 30))
        return [
            (self._content() or (b"k" if has_keys else None), self._content(), self._now_ms + dice.randint(-999, 999))
            for _ in range(count)
        ]

    def _set(self, magic: int, records: Sequence[Plain], codec: Codec = Codec.NONE) -> bytes:
        plain = encode_set(records, magic=magic)
        if codec is Codec.NONE:
            return plain
        timestamp = max(time for _, _, time in records)
        return encode_message(None, compress(codec, plain, magic=magic), magic=magic, codec=codec, timestamp=timestamp)

    def _magic(self, version: int) -> int:
        """Mostly that of the version; 3.9.1 takes any."""
        usual = int(version == 2)
        return usual if self._random.random() < 0.9 else 1 - usual

    # ------------------------------------------------------------------ steps
    def _produce(self, side: Side) -> None:
        dice = self._random
        version = dice.randrange(3)
        places = dice.sample(self.read_back, dice.randint(1, 3))
        parts = [
            (topic, number, self._set(self._magic(version), self._records(has_keys=topic == self.compact), codec))
            for topic, number in places
            for codec in [dice.choice(_KEPT_CODECS)]
        ]
        acks = dice.choice((-1, -1, 1, 1, 0))
        self._write(side, "produce", parts, version, acks)

    def _write(
        self, side: Side, label: str, parts: Sequence[tuple[str, int, bytes]], version: int, acks: int = -1
    ) -> None:
        fields = _topics_of(parts)
        if acks:
            side.ask(label, ApiKey.PRODUCE, version, acks=acks, timeout_ms=10_000, topic_data=fields)
        else:
            side.raw.send_produce(parts, version=version, acks=0)

    def _produce_odd(self, side: Side) -> None:
        """What one side may refuse; nobody reads these partitions."""
        if self._odd == ODD_PARTITIONS:
            return
        dice = self._random
        version = dice.randrange(3)
        magic = int(version == 2)
        codec = dice.choice(_KEPT_CODECS[1:])
        records = [(b"k", b"v%d" % number, self._now_ms) for number in range(3)]
        wrapper = self._set(magic, records, codec)
        plain = self._set(magic, records)
        large = [(b"k", b"v" * 100, self._now_ms)] * 40
        odd = {
            "produce several wrappers": (self.odd, wrapper + wrapper),
            "produce a wrapper beside plain messages": (self.odd, plain + wrapper),
            "produce two hours ahead": (self.odd, self._set(1, [(b"k", b"v", self._now_ms + 2 * HOUR_MS)])),
            "produce both formats in one set": (self.odd, self._set(0, records) + self._set(1, records)),
            "produce more than a batch may have": (self.small, self._set(magic, large)),
            "produce one message that is too large": (self.small, self._set(magic, [(b"k", bytes(3_000), 0)])),
        }
        label = dice.choice(sorted(odd))
        topic, data = odd[label]
        if label == "produce two hours ahead":
            version = 2
        self._write(side, label, [(topic, self._odd, data)], version, dice.choice((-1, 1)))
        self._odd += 1

    def _produce_refused(self, side: Side) -> None:
        """What both refuse, and nothing is stored of it."""
        dice = self._random
        version = dice.randrange(3)
        good = self._set(int(version == 2), [(b"k", b"v", self._now_ms)])
        bad = bytearray(good)
        bad[-1] ^= 1
        refused = {
            "produce with a wrong checksum": (self.times, 0, bytes(bad)),
            "produce a set that is cut off": (self.times, 1, good[:-1]),
            "produce nothing": (self.times, 1, b""),
            "produce to an unknown topic": (f"unknown-{self.seed}", 0, good),
            "produce to an unknown partition": (self.times, 99, good),
            "produce without a key to a compacted topic": (
                self.compact,
                0,
                self._set(int(version == 2), [(None, b"v", self._now_ms)]),
            ),
        }
        if dice.random() < 0.15:
            self._write(side, "produce with unknown acks", [(self.times, 0, good)], version, dice.choice((2, 5, -2)))
            return
        label = dice.choice(sorted(refused))
        self._write(side, label, [refused[label]], version, dice.choice((-1, 1)))

    def _fetch(self, side: Side) -> None:
        dice = self._random
        version = dice.randrange(4)
        places = dice.sample(self.read_back, dice.randint(1, 3))
        if dice.random() < 0.15:
            places.append((dice.choice((self.times, f"unknown-{self.seed}")), 99))
        offsets = [dice.choice((0, 0, dice.randint(0, 60), dice.randint(0, 300), 100_000)) for _ in places]
        limit = dice.choice((1 << 20, 1 << 20, 20_000, 500))
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, number), offset in zip(places, offsets, strict=True):
            topics.setdefault(topic, []).append(
                {"partition": number, "fetch_offset": offset, "partition_max_bytes": limit}
            )
        fields: dict[str, Any] = {"max_bytes": dice.choice((50 << 20, 3_000))} if version >= 3 else {}
        side.ask(
            "fetch" if limit > 500 and fields.get("max_bytes", 1 << 20) > 3_000 else "fetch little",
            ApiKey.FETCH,
            version,
            replica_id=-1,
            max_wait_ms=dice.choice((0, 20)),
            min_bytes=dice.choice((0, 1)),
            topics=[{"topic": topic, "partitions": parts} for topic, parts in topics.items()],
            **fields,
        )

    def _list_offsets(self, side: Side) -> None:
        dice = self._random
        topic, number = dice.choice([*self.read_back, (self.times, 99), (f"unknown-{self.seed}", 0)])
        time_ms = dice.choice((-1, -1, -2, self._now_ms - 5_000, self._now_ms))
        asked = {"partition_index": number, "timestamp": time_ms, "max_num_offsets": dice.choice((1, 1, 2, 5))}
        side.ask(
            "list offsets" if time_ms < 0 else "list offsets by time",
            ApiKey.LIST_OFFSETS,
            0,
            replica_id=-1,
            topics=[{"name": topic, "partitions": [asked]}],
        )

    def _group(self, version: int) -> str:
        """Version 0 was about ZooKeeper, version 1 is about groups: at a 3.9.1 they do not know of each other."""
        return f"group-{self.seed}-{version}-{self._random.randrange(3)}"

    def _commit(self, side: Side) -> None:
        dice = self._random
        version = dice.randrange(2)
        label, text = f"commit, version {version}", dice.choice(("", "mine"))
        if dice.random() < 0.15:
            label, text = f"commit a long text, version {version}", "x" * 5_000
        topic, number = dice.choice([*self.read_back, *self.read_back, (self.times, 99), (f"unknown-{self.seed}", 0)])
        part = {"partition_index": number, "committed_offset": dice.randrange(1_000), "committed_metadata": text}
        more = {"generation_id_or_member_epoch": -1, "member_id": ""} if version else {}
        if version:
            part["commit_timestamp"] = -1
        topics = [{"name": topic, "partitions": [part]}]
        side.ask(label, ApiKey.OFFSET_COMMIT, version, group_id=self._group(version), topics=topics, **more)

    def _fetch_offsets(self, side: Side) -> None:
        dice = self._random
        version = dice.randrange(2)
        asked = [{"name": self.times, "partition_indexes": [0, 1]}, {"name": self.append, "partition_indexes": [0]}]
        if dice.random() < 0.3:
            asked.append({"name": f"unknown-{self.seed}", "partition_indexes": [0]})
        side.ask(
            f"fetch offsets, version {version}",
            ApiKey.OFFSET_FETCH,
            version,
            group_id=self._group(version),
            topics=asked,
        )

    def _look(self, side: Side) -> None:
        """Requests that Kafka 4 still serves, in their oldest versions, and what old clients ask of the log."""
        dice = self._random
        asks: Sequence[Callable[[], Any]] = (
            lambda: side.ask(
                "metadata", ApiKey.METADATA, 0, topics=[{"name": self.times}, {"name": f"unknown-{self.seed}"}]
            ),
            lambda: side.ask("find coordinator", ApiKey.FIND_COORDINATOR, 0, key=self._group(1)),
            lambda: side.ask("describe groups", ApiKey.DESCRIBE_GROUPS, 0, groups=[f"never-{self.seed}"]),
            lambda: side.ask(
                "offset for leader epoch",
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                dice.randrange(2),
                topics=[
                    {
                        "topic": self.times,
                        "partitions": [
                            {"partition": number, "leader_epoch": epoch} for number, epoch in ((0, 0), (1, 99), (99, 0))
                        ],
                    }
                ],
            ),
            lambda: side.ask(
                "describe log dirs", ApiKey.DESCRIBE_LOG_DIRS, 0, topics=[{"topic": self.times, "partitions": [0, 1]}]
            ),
            lambda: side.ask(
                "describe acls",
                ApiKey.DESCRIBE_ACLS,
                0,
                resource_type_filter=2,
                resource_name_filter=None,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            ),
            lambda: side.ask(
                "describe configs",
                ApiKey.DESCRIBE_CONFIGS,
                0,
                resources=[
                    {
                        "resource_type": 2,
                        "resource_name": topic,
                        "configuration_keys": ["retention.ms", "max.message.bytes"],
                    }
                    for topic in (self.small, f"unknown-{self.seed}")
                ],
            ),
        )
        dice.choice(asks)()

    def _administer(self, side: Side) -> None:
        dice = self._random
        version = dice.randrange(2)
        name = f"made-{self.seed}-{len(self._made)}"
        wanted = dice.choice(
            (
                {"name": name, "num_partitions": 2, "replication_factor": 1},
                {"name": name, "num_partitions": 2, "replication_factor": 5},
                {"name": name, "num_partitions": 0, "replication_factor": 1},
                {"name": "not/allowed", "num_partitions": 1, "replication_factor": 1},
                {"name": self.times, "num_partitions": 1, "replication_factor": 1},
            )
        )
        more = {"validate_only": dice.random() < 0.3} if version else {}
        if wanted["name"] == name and not more.get("validate_only"):
            self._made.append(name)
        side.ask("create topic", ApiKey.CREATE_TOPICS, version, topics=[wanted], timeout_ms=20_000, **more)
        if dice.random() < 0.3:
            gone = [f"unknown-{self.seed}"]
            side.ask("delete topic", ApiKey.DELETE_TOPICS, 0, topic_names=gone, timeout_ms=20_000)

    def _join(self, side: Side) -> None:
        """A group of one member, and requests of members that it does not have."""
        dice = self._random
        group = f"joined-{self.seed}-{dice.randrange(1 << 30)}"
        protocols = [{"name": "range", "metadata": b"mine"}]
        asked = {"group_id": group, "member_id": "", "protocol_type": "consumer", "protocols": protocols}
        if dice.random() < 0.5:
            side.ask("join with a short timeout", ApiKey.JOIN_GROUP, 0, session_timeout_ms=1, **asked)
            side.ask("heartbeat of nobody", ApiKey.HEARTBEAT, 0, group_id=group, generation_id=3, member_id="nobody")
            side.ask("leave of nobody", ApiKey.LEAVE_GROUP, 0, group_id=group, member_id="nobody")
            return
        joined = side.ask("join", ApiKey.JOIN_GROUP, 0, session_timeout_ms=10_000, **asked)
        member = {"group_id": group, "member_id": joined.member_id, "generation_id": joined.generation_id}
        assignments = [{"member_id": joined.member_id, "assignment": b"all"}]
        side.ask("sync", ApiKey.SYNC_GROUP, 0, **member, assignments=assignments)
        side.ask("heartbeat", ApiKey.HEARTBEAT, 0, **member)
        part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "", "commit_timestamp": -1}
        for generation, label in ((joined.generation_id, "commit of a member"), (99, "commit of an old generation")):
            side.ask(
                label,
                ApiKey.OFFSET_COMMIT,
                1,
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=joined.member_id,
                topics=[{"name": self.times, "partitions": [part]}],
            )
        side.ask("leave", ApiKey.LEAVE_GROUP, 0, group_id=group, member_id=joined.member_id)


def _topics_of(parts: Sequence[tuple[str, int, bytes]]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, number, data in parts:
        topics.setdefault(topic, []).append({"index": number, "records": data})
    return [{"name": topic, "partition_data": partitions} for topic, partitions in topics.items()]
