"""Which brokers are served, and as what. Pure: takes what a broker told of itself, and says why it is not served.

Where the proxy gives idempotence, a broker with producer ids of its own (0.11 and later) is served only if it stores
the message format of the older ones, while a cluster is upgraded in place. In its own format it drops the markers, by
which the outcome of a lost answer is determined. Where the brokers give it themselves ("native"), each of them needs
producer ids. Source of the rule for 3.0: KIP-724, seen on 3.9.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from ...codecs.error_codes import ErrorCode
from ..bridge.configs import BrokerSettings
from ..versions import NEWER, ApiKey, BrokerRanges, Detected

_FORMAT = "log.message.format.version"
_PROTOCOL = "inter.broker.protocol.version"
SETTINGS = (_FORMAT, _PROTOCOL)
"""The settings of a broker with producer ids that tell which message format it stores."""

_OWN_FORMAT_FROM = (0, 11)
_FORMAT_IGNORED_FROM = (3, 0)
_FORMAT_V0 = ("0.8.2", "0.9.0")
_HAS_IDS = "it has producer ids of its own"
_RIGHT = "allow the principal of idemproxy DescribeConfigs on the cluster"
_SETTING = "upstream.idempotence"
_OLD_FETCH_ENDS = 4
"""Kafka 4 has no Fetch below this version, and no other format than v2 (KIP-896, KIP-724)."""


class Idempotence(Enum):
    """Who gives producers their idempotence: the proxy, or the brokers (native). While producers are handed over, the
    brokers do, and the proxy sees to it that nothing comes to them that is stored already (rule R21)."""

    PROXY = "proxy"
    HANDING_OVER = "handing_over"
    NATIVE = "native"


class Kind(Enum):
    """``UNSURE``: the next try may tell what it is. ``UNSERVED``: another broker has to take its place, or its settings
    have to change. ``HARMED``: batches written there could not be found again, so the whole cluster must not be
    served."""

    UNSURE = "unsure"
    UNSERVED = "unserved"
    HARMED = "harmed"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a broker is not served: the rest of a sentence that begins with its name and "cannot be served:"."""

    kind: Kind
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a broker can be served as. ``in_proxy``: why it is not served where the proxy gives idempotence, None if it
    is; ``in_native``: the same where the brokers give it. ``remark``: what an operator should know though it is
    served where the proxy does. ``takes_over``: can it be handed producers of the proxy (rule R21)?"""

    in_proxy: Refusal | None
    in_native: Refusal | None
    remark: str = ""
    takes_over: bool = False

    def refusal(self, mode: Idempotence) -> Refusal | None:
        """Return why it is not served in a mode, None if it is."""
        if mode is Idempotence.HANDING_OVER and not self.takes_over:
            return self.in_native or _NOT_ASKED
        return self.in_proxy if mode is Idempotence.PROXY else self.in_native


def choose(judgements: Collection[Judgement | None]) -> Idempotence | None:
    """Return who gives idempotence, by all brokers of a cluster: they do if all of them can, and the proxy as soon as
    one of them cannot. None: that is not known yet, as some have not told what they are (None in ``judgements``)."""
    if any(one is not None and one.in_native is not None for one in judgements):
        return Idempotence.PROXY
    return None if None in judgements or not judgements else Idempotence.NATIVE


def all_take_over(judgements: Collection[Judgement | None]) -> bool:
    """Can all brokers of a cluster be handed the producers (rule R21)? Not as long as some have not told what they are
    (None in ``judgements``)."""
    return bool(judgements) and all(one is not None and one.takes_over for one in judgements)


def has_producer_ids(ranges: BrokerRanges) -> bool:
    """Does a broker with these ranges hand out producer ids?"""
    return ApiKey.INIT_PRODUCER_ID in ranges


def needs_settings(found: Detected, wanted: Idempotence | None) -> bool:
    """Has a broker to be asked for its settings before it can be judged? ``wanted``: None where the proxy chooses."""
    if found.version != NEWER or found.ranges[ApiKey.FETCH][0] >= _OLD_FETCH_ENDS:
        return False
    return wanted is not Idempotence.NATIVE or not has_producer_ids(found.ranges)


def judge(found: Detected, told: BrokerSettings | None) -> Judgement:
    """Return what a broker can be served as. ``told``: its ``SETTINGS``; None: it cannot be asked, or need not be."""
    if found.version != NEWER:
        return Judgement(by_version(found), _WITHOUT_IDS)
    has_ids = has_producer_ids(found.ranges)
    takes_over = has_ids and ApiKey.DESCRIBE_PRODUCERS in found.ranges
    if found.ranges[ApiKey.FETCH][0] >= _OLD_FETCH_ENDS:
        return Judgement(_harmed("v2"), None if has_ids else _WITHOUT_IDS, takes_over=takes_over)
    in_proxy = UNTOLD if told is None else by_settings(told)
    if not has_ids:
        return Judgement(in_proxy, _WITHOUT_IDS)
    if in_proxy is None:
        assert told is not None
        form = told.values.get(_FORMAT)
        why = f"{_HAS_IDS}, but stores message format {form}, in which it has no idempotence; raise {_FORMAT} first"
        return Judgement(None, Refusal(Kind.UNSERVED, why), remark(told))
    is_harmed = in_proxy.kind is Kind.HARMED
    return Judgement(in_proxy, None if is_harmed else in_proxy, takes_over=takes_over and is_harmed)


def judge_wanted(found: Detected, told: BrokerSettings | None, wanted: Idempotence | None) -> Judgement:
    """The same where the mode may have been set: then producer ids are enough to be served natively."""
    judgement = judge(found, told)
    if wanted is Idempotence.NATIVE and has_producer_ids(found.ranges):
        return Judgement(judgement.in_proxy, None)
    return judgement


def by_version(found: Detected) -> Refusal | None:
    """Return why a broker of this version is not served, None if it may be."""
    if not found.ranges:
        return Refusal(Kind.UNSURE, found.reason)
    if found.version in _FORMAT_V0:
        what = f"Kafka {found.version} stores message format v0 only, which this version does not write"
        return Refusal(Kind.UNSERVED, f"{what}; 0.10 is the oldest")
    return None


UNTOLD = Refusal(Kind.UNSERVED, f"{_HAS_IDS}, and does not tell which message format it stores")
"""For a broker with producer ids that cannot be asked for its settings."""

_WITHOUT_IDS = Refusal(
    Kind.UNSERVED, f"it has no producer ids of its own, and the brokers are to give idempotence ({_SETTING}: native)"
)

HELD = (
    "stores its own message format now: no batch with a producer id is sent to it until all brokers do; then producers "
    "are handed over to them (docs/CUTOVER.md, Upgrade the brokers)"
)
"""What is said of a broker that waits for the others (rule R21)."""

_NOT_ASKED = Refusal(
    Kind.UNSERVED,
    "producers of the proxy cannot be handed over to it, as it does not tell which ones it knows "
    "(DescribeProducers, Kafka 2.8)",
)


def by_settings(told: BrokerSettings) -> Refusal | None:
    """Return why a broker with producer ids is not served, None if it keeps the old message format. ``told``: the
    ``SETTINGS`` that it has."""
    if told.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return Refusal(Kind.UNSERVED, f"{UNTOLD.reason}; {_RIGHT}, or say who gives idempotence ({_SETTING})")
    if told.error_code:
        return Refusal(Kind.UNSURE, f"{UNTOLD.reason}: error {told.error_code}")
    form, protocol = told.values.get(_FORMAT), told.values.get(_PROTOCOL)
    if form is not None and protocol is not None and _is_before(form, _OWN_FORMAT_FROM):
        if _is_before(protocol, _FORMAT_IGNORED_FROM):
            return None
        return _harmed(f"3.0 ({_FORMAT} {form} has no effect with {_PROTOCOL} {protocol})")
    return _harmed("v2" if form is None else form)


def remark(told: BrokerSettings) -> str:
    """Return what an operator should know of a broker with producer ids that is served."""
    form = told.values.get(_FORMAT)
    return f"has producer ids of its own, and is served as long as it stores message format {form} (docs/CUTOVER.md)"


def _harmed(form: str) -> Refusal:
    return Refusal(
        Kind.HARMED,
        f"{_HAS_IDS} and stores message format {form}, in which idemproxy cannot determine the outcome of a lost "
        f"answer: records would be lost or written twice. Point producers at the brokers themselves, or set {_FORMAT} "
        "below 0.11 on every broker until that is done (docs/CUTOVER.md)",
    )


def _is_before(version: str, bound: tuple[int, int]) -> bool:
    """Is a version such as "0.10.2-IV0" before a bound such as (0, 11)? False for a text that is no version."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})(?![\d])", version)
    return found is not None and (int(found[1]), int(found[2])) < bound
