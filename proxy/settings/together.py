"""Which sections of a configuration, each of them right in itself, do not fit together. Pure; gives sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .addresses import clash_with, clashes, parse_host_and_port

if TYPE_CHECKING:
    from .model import AdminSection, ListenerSection, UpstreamSection


def listener_problems(listeners: Sequence[ListenerSection], upstream: UpstreamSection | None) -> list[str]:
    """Return what is wrong with listeners beside each other and before these brokers (None: they are not known)."""
    found = clashes(tuple(listener.to_settings() for listener in listeners))
    return found if upstream is None else [*found, *_strangers(listeners, upstream)]


def _strangers(listeners: Sequence[ListenerSection], upstream: UpstreamSection) -> list[str]:
    """What the brokers allow us, all our clients can do: so they have to show who they are, too."""
    if upstream.sasl is None and any(one.authentication == "pass_through" for one in listeners):
        return ["authentication pass_through needs upstream.sasl: what is in doubt is read as our principal"]
    if upstream.trust_clients or not upstream.has_principal:
        return []
    open_ones = [one.name for one in listeners if not one.asks_who_is_there]
    if not open_ones:
        return []
    return [
        f"clients of {', '.join(open_ones)} would act at the brokers with the rights of our principal: have them "
        "show who they are (tls with client_auth: required, or authentication: pass_through), or say "
        "upstream.trust_clients: true"
    ]


def admin_problem(admin: AdminSection, listeners: Sequence[ListenerSection]) -> str | None:
    """Return a sentence if the admin port is one of these listeners', None if not."""
    return clash_with(parse_host_and_port(admin.bind), tuple(listener.to_settings() for listener in listeners))
