"""Which brokers are served, and as what. Pure: takes what a broker reported of itself, and says why it is not served.

Where the proxy gives idempotence, what is sent to a broker depends on the message format in which it stores batches: a
broker of Kafka 0.11 or later may store v1, while a cluster is upgraded in place (``flow/form.py``). Where the brokers
give it themselves ("native"), each of them needs producer ids, and v2. Source of the rule for 3.0: KIP-724, seen on
3.9.1.

That a broker lists InitProducerId does not show that it checks sequences: some services take producer ids and ignore
them. A broker that does not show that it is Kafka is probed (``probed.py``). Where it is configured who gives
idempotence it is not: then it is served, and has a remark.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from ... import DOCUMENTATION
from ...codecs.error_codes import ErrorCode
from ..bridge.configs import BrokerSettings
from ..flow.form import Form
from ..versions import NEWER, ApiKey, BrokerRanges, Detected

_FORMAT = "log.message.format.version"
_PROTOCOL = "inter.broker.protocol.version"
SETTINGS = (_FORMAT, _PROTOCOL)
"""The settings of a broker of Kafka 0.11 or later that tell which message format it stores."""

_OWN_FORMAT_FROM = (0, 11)
_FORMAT_IGNORED_FROM = (3, 0)
_FORMAT_V0 = ("0.8.2", "0.9.0")
_HAS_IDS = "it has producer ids of its own"
_RIGHT = "allow the principal of idemproxy DescribeConfigs on the cluster"
_SETTING = "upstream.idempotence"
_AMONG_BROKERS = (ApiKey.CONTROLLED_SHUTDOWN, ApiKey.WRITE_TXN_MARKERS)
"""What Kafka's brokers send each other, and list for clients too: 0.10 to 3.x the first, 0.11 and later the second."""
_ANY_SEQUENCE_FROM = 3
"""The InitProducerId of Kafka 2.5, from which on a producer id that a broker does not know begins with any sequence
(KIP-360)."""
_OLD_FETCH_ENDS = 4
"""Kafka 4 has no Fetch below this version, and no other format than v2 (KIP-896, KIP-724)."""


class Idempotence(Enum):
    """Who gives producers their idempotence: the proxy, or the brokers (native)."""

    PROXY = "proxy"
    NATIVE = "native"


class Kind(Enum):
    """``UNSURE``: the next try may tell what it is. ``OTHER_CLUSTER``: it is of another cluster than the broker that
    reported its cluster first; its address may be given to one of ours. ``UNSERVED``: another broker has to take its
    place, or its settings have to change."""

    UNSURE = "unsure"
    OTHER_CLUSTER = "other cluster"
    UNSERVED = "unserved"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a broker is not served: the rest of a sentence that begins with its name and "cannot be served:"."""

    kind: Kind
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a broker can be served as. ``in_proxy``: why it is not served where the proxy gives idempotence, None if it
    is; ``in_native``: the same where the brokers give it. ``form``: how it stores batches. ``takes_ids``: what the
    proxy appends has the clients' producer ids there, where the brokers give idempotence. ``remark``: what an operator
    should know though it is served where the proxy does; ``native_remark``: the same where the brokers do."""

    in_proxy: Refusal | None
    in_native: Refusal | None
    form: Form = Form.WRAPPER_V1
    takes_ids: bool = False
    remark: str = ""
    native_remark: str = ""

    def remark_in(self, mode: Idempotence | None) -> str:
        """Return what an operator should know of it in a mode, empty: nothing."""
        return self.native_remark if mode is Idempotence.NATIVE else self.remark

    def form_in(self, mode: Idempotence) -> Form:
        """Return how the proxy appends batches there in a mode."""
        return Form.OWN_IDS if mode is Idempotence.NATIVE and self.takes_ids else self.form

    def refusal(self, mode: Idempotence) -> Refusal | None:
        """Return why it is not served in a mode, None if it is."""
        return self.in_proxy if mode is Idempotence.PROXY else self.in_native


def choose(judgements: Collection[Judgement | None]) -> Idempotence | None:
    """Return who gives idempotence, by all brokers of a cluster: they do if all of them can, and the proxy as soon as
    one of them cannot. None: that is not known yet, as some have not reported what they are (None in
    ``judgements``)."""
    if any(one is not None and one.in_native is not None for one in judgements):
        return Idempotence.PROXY
    return None if None in judgements or not judgements else Idempotence.NATIVE


def has_producer_ids(ranges: BrokerRanges) -> bool:
    """Does a broker with these ranges hand out producer ids?"""
    return ApiKey.INIT_PRODUCER_ID in ranges


def needs_settings(found: Detected, wanted: Idempotence | None) -> bool:
    """Has a broker to be asked for its settings before it can be judged? ``wanted``: None where the proxy chooses, or
    has to know the form in which batches are stored."""
    if found.version != NEWER or found.ranges[ApiKey.FETCH][0] >= _OLD_FETCH_ENDS:
        return False
    return wanted is not Idempotence.NATIVE or not has_producer_ids(found.ranges)


def shows_kafka(ranges: BrokerRanges) -> bool:
    """Does a broker with these ranges list what Kafka's brokers send each other? A service of another kind has no use
    for it."""
    return any(key in ranges for key in _AMONG_BROKERS)


def judge(found: Detected, reported: BrokerSettings | None) -> Judgement:
    """Return what a broker can be served as. ``reported``: its ``SETTINGS``; None: it cannot be asked, or need not
    be."""
    judgement = _judge(found, reported)
    if not found.ranges or shows_kafka(found.ranges):
        takes_any = found.ranges.get(ApiKey.INIT_PRODUCER_ID, (0, 0))[1] >= _ANY_SEQUENCE_FROM
        return replace(judgement, takes_ids=takes_any and judgement.form is Form.MARKED_V2)
    refusal = judgement.in_proxy
    if refusal is not None and refusal.kind is Kind.UNSERVED and found.version == NEWER:
        # Its settings tell nothing. If it does not keep batch markers, the first append shows that.
        judgement = replace(judgement, in_proxy=None, form=Form.MARKED_V2)
    remark = f"{judgement.remark}; it {MAY_STORE_OTHERWISE}" if judgement.remark else MAY_STORE_OTHERWISE
    return replace(judgement, remark=remark, native_remark=MAY_IGNORE_IDS)


def _judge(found: Detected, reported: BrokerSettings | None) -> Judgement:
    if found.version != NEWER:
        return Judgement(by_version(found), WITHOUT_IDS)
    in_native = None if has_producer_ids(found.ranges) else WITHOUT_IDS
    if found.ranges[ApiKey.FETCH][0] >= _OLD_FETCH_ENDS:
        return Judgement(None, in_native, Form.MARKED_V2)
    form = UNTOLD if reported is None else by_settings(reported)
    if isinstance(form, Refusal):
        return Judgement(form, in_native or form, Form.MARKED_V2)
    if form is Form.MARKED_V2:
        return Judgement(None, in_native, form)
    assert reported is not None
    said = reported.values.get(_FORMAT)
    why = f"{_HAS_IDS}, but stores message format {said}, in which it has no idempotence; raise {_FORMAT} first"
    return Judgement(None, in_native or Refusal(Kind.UNSERVED, why), remark=remark(reported))


def judge_wanted(found: Detected, reported: BrokerSettings | None, wanted: Idempotence | None) -> Judgement:
    """The same where the mode may have been set: then producer ids are enough to be served natively. ``wanted``: see
    ``needs_settings``."""
    judgement = judge(found, reported)
    if wanted is Idempotence.NATIVE and has_producer_ids(found.ranges):
        return replace(judgement, in_native=None)
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
"""For a broker of Kafka 0.11 or later that cannot be asked for its settings."""

_DOES_NOT_SHOW = "does not list what Kafka's brokers send each other, and may be another service"
_PROBE_IT = "`idemproxy probe` shows it, and upstream.idempotence: auto goes by it"
MAY_IGNORE_IDS = (
    f"{_DOES_NOT_SHOW}: some list InitProducerId and ignore producer ids, and store a retry twice. {_PROBE_IT}"
)
MAY_STORE_OTHERWISE = f"{_DOES_NOT_SHOW}: idempotence needs batches that are kept as they are sent. {_PROBE_IT}"

WITHOUT_IDS = Refusal(
    Kind.UNSERVED, f"it has no producer ids of its own, and the brokers are to give idempotence ({_SETTING}: native)"
)


def by_settings(reported: BrokerSettings) -> Form | Refusal:
    """Return how a broker of Kafka 0.11 or later stores batches, or why it is not served. ``reported``: the
    ``SETTINGS`` that it has."""
    if reported.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return Refusal(Kind.UNSERVED, f"{UNTOLD.reason}; {_RIGHT}, or say who gives idempotence ({_SETTING})")
    if reported.error_code:
        return Refusal(Kind.UNSURE, f"{UNTOLD.reason}: error {reported.error_code}")
    form, protocol = reported.values.get(_FORMAT), reported.values.get(_PROTOCOL)
    if form is None or protocol is None:
        return Form.MARKED_V2
    is_kept = _is_before(form, _OWN_FORMAT_FROM) and _is_before(protocol, _FORMAT_IGNORED_FROM)
    return Form.WRAPPER_V1 if is_kept else Form.MARKED_V2


def remark(reported: BrokerSettings) -> str:
    """Return what an operator should know of a broker of Kafka 0.11 or later that is served."""
    form = reported.values.get(_FORMAT)
    return (
        f"has producer ids of its own, and is served as long as it stores message format {form}; "
        f"see {DOCUMENTATION}/how-to/upgrade-brokers.html"
    )


def _is_before(version: str, bound: tuple[int, int]) -> bool:
    """Is a version such as "0.10.2-IV0" before a bound such as (0, 11)? False for a text that is no version."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})(?![\d])", version)
    return found is not None and (int(found[1]), int(found[2])) < bound
