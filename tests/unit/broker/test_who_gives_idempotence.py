"""Who gives idempotence, by what all brokers of a cluster are; and what each one is served as."""

from dataclasses import replace

import pytest

from idemproxy.proxy.bridge.configs import BrokerSettings
from idemproxy.proxy.broker.mode import Mode
from idemproxy.proxy.broker.probed import needs_probe
from idemproxy.proxy.broker.served import (
    Idempotence,
    Judgement,
    Kind,
    choose,
    judge_wanted,
    needs_settings,
)
from idemproxy.proxy.versions import KNOWN, NEWER, Detected
from idemproxy.state.redis_claim import Stored

PROXY, NATIVE = Idempotence.PROXY, Idempotence.NATIVE
FORMAT, PROTOCOL = "log.message.format.version", "inter.broker.protocol.version"
V0_10 = Detected("0.10.2", KNOWN["0.10.2"])
V0_9 = Detected("0.9.0", KNOWN["0.9.0"])
V0_11 = Detected(NEWER, {0: (0, 3), 1: (0, 5), 3: (0, 4), 7: (1, 1), 18: (0, 1), 22: (0, 0), 27: (0, 0), 32: (0, 0)})
V3 = Detected(NEWER, {0: (0, 11), 1: (0, 17), 3: (0, 12), 18: (0, 4), 22: (0, 5), 27: (0, 1), 32: (0, 4)})
V4 = Detected(NEWER, {0: (0, 13), 1: (4, 18), 3: (0, 13), 18: (0, 4), 22: (0, 5), 27: (1, 1), 32: (1, 4)})
COMPATIBLE = Detected(NEWER, {0: (0, 7), 1: (0, 11), 3: (0, 8), 18: (0, 2)})
"""A service that has newer versions, and no producer ids."""
COMPATIBLE_4 = Detected(NEWER, {0: (3, 9), 1: (11, 13), 3: (0, 12), 18: (0, 3)})
GATEWAY = Detected(NEWER, {0: (0, 9), 1: (0, 12), 3: (0, 9), 18: (0, 3), 22: (0, 4)})
"""A service that lists InitProducerId; whether it checks sequences, nobody can tell by that."""
OLD_GATEWAY = Detected("0.10.2", {0: (0, 2), 1: (0, 3), 3: (0, 2), 18: (0, 0)})
NEW_FORMAT = BrokerSettings(0, {FORMAT: "3.0-IV1", PROTOCOL: "3.9"})
OLD_FORMAT = BrokerSettings(0, {FORMAT: "0.10.2", PROTOCOL: "0.10.2"})
REFUSED = BrokerSettings(31, {})


def judged(found: Detected, told: BrokerSettings | None, wanted: Idempotence | None = None) -> Judgement:
    return judge_wanted(found, told, wanted)


def kinds(judgement: Judgement) -> tuple[Kind | None, Kind | None]:
    """Why it is not served in the mode proxy, and in the mode native."""
    return tuple(None if one is None else one.kind for one in (judgement.in_proxy, judgement.in_native))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("found", "told", "expected"),
    [
        (V0_10, None, (None, Kind.UNSERVED)),
        (V0_9, None, (Kind.UNSERVED, Kind.UNSERVED)),
        (V0_11, NEW_FORMAT, (None, None)),
        (V0_11, OLD_FORMAT, (None, Kind.UNSERVED)),
        (V3, NEW_FORMAT, (None, None)),
        (V3, REFUSED, (Kind.UNSERVED, Kind.UNSERVED)),
        (V4, None, (None, None)),
        (COMPATIBLE, None, (None, Kind.UNSERVED)),
        (COMPATIBLE, NEW_FORMAT, (None, Kind.UNSERVED)),
        (COMPATIBLE, BrokerSettings(0, {}), (None, Kind.UNSERVED)),
        (COMPATIBLE, BrokerSettings(7, {}), (Kind.UNSURE, Kind.UNSERVED)),
        (COMPATIBLE_4, None, (None, Kind.UNSERVED)),
        (GATEWAY, REFUSED, (None, Kind.UNSERVED)),
        (GATEWAY, NEW_FORMAT, (None, None)),
    ],
)
def test_what_a_broker_is_served_as(
    found: Detected, told: BrokerSettings | None, expected: tuple[Kind | None, Kind | None]
) -> None:
    assert kinds(judged(found, told)) == expected


def test_where_native_is_set_producer_ids_are_enough() -> None:
    for found in (V0_11, V3, V4):
        assert not needs_settings(found, NATIVE)
        assert judged(found, None, NATIVE).refusal(NATIVE) is None
    for found in (V0_10, V0_9, COMPATIBLE):
        refusal = judged(found, None, NATIVE).refusal(NATIVE)
        assert refusal is not None
        assert "it has no producer ids of its own" in refusal.reason


def test_settings_are_asked_for_only_where_they_matter() -> None:
    assert [needs_settings(found, None) for found in (V0_10, V0_9, V0_11, V3, V4)] == [False, False, True, True, False]
    assert needs_settings(V3, PROXY)


A, B, UNKNOWN = judged(V3, NEW_FORMAT), judged(V0_10, None), None


@pytest.mark.parametrize(
    ("judgements", "chosen"),
    [
        ([], None),
        ([UNKNOWN], None),
        ([A, UNKNOWN], None),
        ([A], NATIVE),
        ([A, judged(V4, None), judged(V0_11, NEW_FORMAT)], NATIVE),
        ([B], PROXY),
        ([B, UNKNOWN], PROXY),
        ([A, B], PROXY),
        ([A, judged(V0_11, OLD_FORMAT)], PROXY),
        ([A, judged(V3, REFUSED)], PROXY),
        ([judged(V0_9, None), A], PROXY),
    ],
)
def test_the_brokers_give_it_only_if_all_can(judgements: list[Judgement | None], chosen: Idempotence | None) -> None:
    assert choose(judgements) is chosen


def test_a_setting_chooses_at_once_and_auto_does_not() -> None:
    assert [Mode.of_setting(said).chosen for said in ("auto", "native", "proxy")] == [None, NATIVE, PROXY]


# ---------------------------------------------------------------------- what Redis says
NOTHING, ENDED, IN_USE = Stored(), Stored(b"ours", b"proxy", False), Stored(b"ours", b"proxy", True)
RUNNING, RUNNING_NATIVE = Stored(b"ours", b"proxy", False, True), Stored(b"ours", b"native", False, True)
GONE_NATIVE, OLDER = Stored(b"ours", b"native", False), Stored(b"ours", None, True)


@pytest.mark.parametrize(
    ("wanted", "by_brokers", "stored", "allows", "expected"),
    [
        ("auto", NATIVE, NOTHING, False, NATIVE),
        ("auto", PROXY, NOTHING, False, PROXY),
        ("auto", NATIVE, IN_USE, False, PROXY),
        ("auto", NATIVE, OLDER, False, PROXY),
        ("auto", NATIVE, IN_USE, True, NATIVE),
        ("auto", PROXY, IN_USE, True, PROXY),
        ("auto", NATIVE, ENDED, False, NATIVE),
        ("auto", PROXY, ENDED, False, PROXY),
        ("auto", None, ENDED, False, PROXY),
        ("auto", PROXY, GONE_NATIVE, False, NATIVE),
        ("native", PROXY, NOTHING, False, NATIVE),
        ("native", NATIVE, ENDED, False, NATIVE),
        ("native", NATIVE, IN_USE, True, NATIVE),
        ("native", NATIVE, IN_USE, False, "upstream.allow_duplicates_in_flight"),
        ("native", NATIVE, OLDER, False, "upstream.allow_duplicates_in_flight"),
        ("native", NATIVE, RUNNING, True, "proxies that give it are running"),
        ("native", NATIVE, RUNNING_NATIVE, False, NATIVE),
        ("auto", NATIVE, RUNNING, False, NATIVE),
        ("proxy", PROXY, NOTHING, False, PROXY),
        ("proxy", None, NOTHING, False, PROXY),
        ("proxy", NATIVE, NOTHING, False, PROXY),
        ("proxy", NATIVE, IN_USE, True, PROXY),
        ("proxy", PROXY, GONE_NATIVE, True, "delete the key idem:shop:mode"),
        ("auto", PROXY, Stored(b"ours", b"other"), True, "'other' gives idempotence"),
    ],
)
def test_all_proxies_of_a_cluster_do_the_same_or_do_not_start(
    wanted: str, by_brokers: Idempotence | None, stored: Stored, allows: bool, expected: Idempotence | str
) -> None:
    mode = Mode.of_setting(wanted)
    agreed = mode.agreed("shop", stored, by_brokers, allows)
    assert agreed is expected or (isinstance(agreed, str) and isinstance(expected, str) and expected in agreed)


@pytest.mark.parametrize(
    ("wanted", "all_take_ids", "is_without_ids", "expected"),
    [
        ("auto", True, False, NATIVE),
        ("auto", True, True, PROXY),
        ("auto", False, False, PROXY),
        ("proxy", True, False, PROXY),
    ],
)
def test_brokers_that_know_all_that_is_in_flight_take_over_from_proxies(
    wanted: str, all_take_ids: bool, is_without_ids: bool, expected: Idempotence
) -> None:
    mode = Mode.of_setting(wanted)
    mode.all_take_ids = all_take_ids
    assert mode.agreed("shop", replace(IN_USE, is_without_ids=is_without_ids), NATIVE, False) is expected


def test_a_mode_changes_in_two_steps() -> None:
    mode = Mode.of_setting("auto", ["orders"])
    changing = b'changing to native ["orders"]'
    assert mode.following(NOTHING, is_alone=True) is None
    assert mode.following(IN_USE, is_alone=True) == changing
    in_between = Stored(b"ours", changing)
    assert mode.agreed("shop", in_between, PROXY, False) is NATIVE
    assert mode.following(in_between, is_alone=False) is None
    assert mode.following(in_between, is_alone=True) == mode.native_value == b'native ["orders"]'
    assert mode.following(Stored(b"ours", mode.native_value), is_alone=False) is None
    others = Mode.of_setting("auto").agreed("shop", in_between, NATIVE, False)
    assert isinstance(others, str)
    assert "a partition has one kind of writer" in others


@pytest.mark.parametrize("wanted", [NATIVE, PROXY])
def test_a_service_has_a_warning_where_it_is_configured_who_gives_it(wanted: Idempotence) -> None:
    native = judged(GATEWAY, NEW_FORMAT, wanted).remark_in(NATIVE)
    assert "some list InitProducerId and ignore producer ids" in native
    assert "needs batches that are kept as they are sent" in judged(OLD_GATEWAY, None, wanted).remark_in(PROXY)
    both = judged(GATEWAY, OLD_FORMAT, wanted).remark_in(PROXY)
    assert "is served as long as it stores message format 0.10.2" in both
    assert "needs batches that are kept as they are sent" in both


@pytest.mark.parametrize("found", [COMPATIBLE, COMPATIBLE_4, GATEWAY, OLD_GATEWAY])
def test_a_service_is_probed(found: Detected) -> None:
    assert needs_probe(found)


@pytest.mark.parametrize("found", [V0_10, V0_11, V3, V4, *(Detected(one, KNOWN[one]) for one in ("0.10.0", "0.10.1"))])
def test_kafka_is_not_probed(found: Detected) -> None:
    assert not needs_probe(found)


def test_what_does_not_tell_its_versions_is_not_probed() -> None:
    assert not needs_probe(Detected("unsure", reason="7 bytes"))


@pytest.mark.parametrize("found", [V0_10, V0_11, V3, V4, *(Detected(one, KNOWN[one]) for one in ("0.10.0", "0.10.1"))])
def test_kafka_has_no_such_warning(found: Detected) -> None:
    for mode in (PROXY, NATIVE):
        assert "may be another service" not in judged(found, NEW_FORMAT).remark_in(mode)
