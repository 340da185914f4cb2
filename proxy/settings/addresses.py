"""Listeners and the addresses that clients get: ports per broker, templates, server names. Pure: it opens nothing and
resolves nothing.

What a port means follows from the settings and the broker's id alone, so it is the same after every start, whichever
brokers are there at that moment."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ...reactor import Address
from .tls import TlsServer

PORT_MAX = 65_535
BROKER_ID_MAX = 2**31 - 1
BROKER_IDS_MAX = 1_000
"""Brokers that may be listed for one listener: each is a port, opened at the start."""
UNLISTED_PORTS = 1_000
"""Ports that are kept free after ``first_broker_port`` of a listener whose brokers are not listed: the ids that people
give to brokers end there (reserved.broker.max.id)."""

USUAL_BROKERS = 10
"""Where a listener's brokers are not listed, the admin port may not be one of the ports of so many brokers."""

PlaceOf = Callable[[int, str], tuple[str, int] | None]
"""(broker id, our address as this client reached it) -> where this client reaches the broker; None: nowhere."""

_PLACEHOLDER = re.compile(r"\{(id|port)([+-]\d{1,9})?\}|\{host\}")
_PORT_TEMPLATE = re.compile(r"\d{1,9}|\{(id|port)([+-]\d{1,9})?\}|\d{1,5}\{id\}", re.ASCII)
_ANY_HOST = ("0.0.0.0", "::")
_MAPPED_PREFIX = "::ffff:"


@dataclass(frozen=True, slots=True)
class Advertised:
    """A template ``HOST:PORT``. ``{id}`` is the broker's id, ``{port}`` the port of its listener, both also with a
    number added (``{port+20000}``); ``{host}`` is our address as the client reached it. The port is a number, one
    placeholder, or digits and ``{id}``."""

    host: str = "{host}"
    port: str = "{port}"

    def place(self, broker_id: int, port: int, local_host: str) -> tuple[str, int]:
        """Return the host and port for one broker."""

        def put_in(match: re.Match[str]) -> str:
            if match[1] is None:
                return local_host
            return str((broker_id if match[1] == "id" else port) + int(match[2] or 0))

        return _PLACEHOLDER.sub(put_in, self.host), int(_PLACEHOLDER.sub(put_in, self.port))

    @property
    def names_brokers(self) -> bool:
        """Does every broker have a host of its own?"""
        return any(match[1] == "id" for match in _PLACEHOLDER.finditer(self.host))

    def __str__(self) -> str:
        return join_host_and_port(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener for clients: a bootstrap port, and a port (or a server name) per broker.

    ``broker_ids``: those that get a port, in the order of the ports; empty: any, at ``first_broker_port`` plus its id.
    ``routing`` sni: one port for all, the server name says which broker is meant; ``bootstrap_name`` is the name for
    any broker. ``authentication`` pass_through: clients authenticate at the broker itself.
    """

    name: str
    host: str
    port: int
    first_broker_port: int
    broker_ids: tuple[int, ...] = ()
    advertised: Advertised = Advertised()
    routing: str = "port"
    bootstrap_name: str | None = None
    tls: TlsServer | None = None
    authentication: str = "none"

    def port_of(self, broker_id: int) -> int | None:
        """Return the port of a broker's listener, None when it has none here."""
        if self.routing == "sni":
            return self.port
        if not self.broker_ids:
            port = self.first_broker_port + broker_id
            return port if port <= PORT_MAX else None
        if broker_id not in self.broker_ids:
            return None
        return self.first_broker_port + self.broker_ids.index(broker_id)

    def place_of(self, broker_id: int, local_host: str) -> tuple[str, int] | None:
        """Return where a client that reached the proxy at this address reaches the broker; None if not through this
        listener."""
        port = self.port_of(broker_id)
        if port is None:
            return None
        place = self.advertised.place(broker_id, port, without_mapping(local_host))
        return place if 0 < place[1] <= PORT_MAX else None

    def broker_of(self, server_name: str | None) -> int | None:
        """Return the broker that a TLS client means; None for the bootstrap name. Raises LookupError for other names,
        and for clients that send none."""
        name = (server_name or "").rstrip(".").lower()
        if self.bootstrap_name is not None and name == self.bootstrap_name.lower():
            return None
        match = _host_pattern(self.advertised.host).fullmatch(name)
        broker_id = BROKER_ID_MAX + 1 if match is None else _id_in(self.advertised.host, match["id"])
        listed = not self.broker_ids or broker_id in self.broker_ids
        if not 0 <= broker_id <= BROKER_ID_MAX or not listed:
            raise LookupError(f"{server_name!r} is the name of no broker here")
        return broker_id


def _host_pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of the brokers' names; if ``{id}`` is there several times, the first one counts."""
    parts, end, seen = [], 0, False
    for match in _PLACEHOLDER.finditer(template):
        parts.append(re.escape(template[end : match.start()].lower()))
        if match[1] == "id":
            parts.append(r"[0-9]{1,10}" if seen else r"(?P<id>0|[1-9][0-9]{0,9})")
            seen = True
        else:
            parts.append(r".*" if match[1] is None else "[0-9]{1,5}")
        end = match.end()
    return re.compile("".join(parts) + re.escape(template[end:].lower()))


def _id_in(template: str, digits: str) -> int:
    added = next(match[2] for match in _PLACEHOLDER.finditer(template) if match[1] == "id")
    return int(digits) - int(added or 0)


# ---------------------------------------------------------------------- texts
def parse_host_and_port(text: str) -> tuple[str, int]:
    """Return the two parts of ``HOST:PORT``; an IPv6 address stands in brackets. Raises ValueError with a sentence."""
    host, port = _split(text)
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"expected HOST:PORT, with a port from 1 to {PORT_MAX}, not {text!r}")
    return host, int(port)


def parse_advertised(text: str) -> Advertised:
    """Return a template. Raises ValueError with a sentence."""
    host, port = _split(text)
    for part in (host, port):
        if unknown := re.search(r"\{[^}]*\}?|\}", _PLACEHOLDER.sub("", part)):
            raise ValueError(f"{text!r}: {unknown[0]!r} is none of {{id}}, {{port}}, {{host}}, {{id+N}}, {{port+N}}")
    if not _PORT_TEMPLATE.fullmatch(port):
        raise ValueError(
            f"{text!r}: the port is a number, {{port}} or {{id}} with or without a number added, or 90{{id}}"
        )
    if not _PLACEHOLDER.search(port) and not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"{text!r}: a port is from 1 to {PORT_MAX}")
    return Advertised(host, port)


def parse_broker_ids(text: str) -> tuple[int, ...]:
    """Return the ids of ``0-2, 1001``, in this order. Raises ValueError with a sentence."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", part, re.ASCII)
        if match is None:
            raise ValueError(f"expected numbers and ranges, such as 0-2,1001, not {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > BROKER_ID_MAX or last - first >= BROKER_IDS_MAX:
            raise ValueError(f"{text!r}: {part.strip()} is no range of at most {BROKER_IDS_MAX} broker ids")
        found.extend(range(first, last + 1))
    if len(set(found)) != len(found) or len(found) > BROKER_IDS_MAX:
        raise ValueError(f"{text!r}: each id once, at most {BROKER_IDS_MAX} of them")
    return tuple(found)


def join_host_and_port(host: str, port: int | str) -> str:
    """Return ``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shown(address: Address) -> str:
    """Return an address for people: ``HOST:PORT`` or a path."""
    return address if isinstance(address, str) else join_host_and_port(*address)


def without_mapping(host: str) -> str:
    """Return an IPv4 address as itself where a socket for both families shows it as ``::ffff:1.2.3.4``."""
    return host.removeprefix(_MAPPED_PREFIX) if "." in host else host


def _split(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif scheme := re.match(r"[A-Za-z_]+://", text):
        raise ValueError(f"{text!r}: expected HOST:PORT, without {scheme[0]}")
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address is written in brackets: [2001:db8::1]:9092")
    if not colon or not host or any(character.isspace() for character in host):
        raise ValueError(f"expected HOST:PORT, with a port from 1 to {PORT_MAX}, not {text!r}")
    return host, port


# ---------------------------------------------------------------------- several listeners
def _at(listener: Listener) -> str:
    """Name a listener by its address: two without a name have the same default name."""
    return f"the listener at {shown((listener.host, listener.port))}"


def clashes(listeners: tuple[Listener, ...]) -> list[str]:
    """Return a sentence for every two listeners that use the same port or have the same name."""
    found = []
    for index, one in enumerate(listeners):
        for other in listeners[index + 1 :]:
            if one.name == other.name:
                found.append(f"two listeners have the name {one.name!r}: give each another `name`")
            if one.host != other.host and one.host not in _ANY_HOST and other.host not in _ANY_HOST:
                continue
            shared = sorted(set(_ports(one)) & set(_ports(other)))
            if shared:
                pair = [repr(one.name), repr(other.name)] if one.name != other.name else [_at(one), _at(other)]
                sentence = f"{' and '.join(pair)} both want port {shared[0]}"
                lists = all(listener.broker_ids or listener.routing == "sni" for listener in (one, other))
                found.append(sentence if lists else f"{sentence}: list the brokers of each in broker_ids")
    return found


def clash_with(address: tuple[str, int], listeners: tuple[Listener, ...]) -> str | None:
    """Return a sentence if this address and a listener use the same port, None if not."""
    host, port = address
    for one in listeners:
        if one.host != host and one.host not in _ANY_HOST and host not in _ANY_HOST:
            continue
        if one.port == port:
            return f"port {port} is the bootstrap port of listener {one.name!r}"
        for broker_id in (one.broker_ids or range(USUAL_BROKERS)) if one.routing == "port" else ():
            if one.port_of(broker_id) == port:
                return f"port {port} is that of broker {broker_id} at listener {one.name!r}"
    return None


def own_clash(listener: Listener) -> str | None:
    """Return what is wrong with the ports of this one, None when nothing is."""
    ports = _ports(listener)
    if ports[-1] > PORT_MAX and (listener.broker_ids or listener.first_broker_port > PORT_MAX):
        return f"the brokers' ports would end at {ports[-1]}, and {PORT_MAX} is the last there is"
    reported = {
        broker_id: listener.advertised.place(broker_id, port, "")[1] for broker_id, port in _first_ports(listener)
    }
    wrong = next((one for one in reported.items() if not 0 < one[1] <= PORT_MAX), None)
    if wrong is not None:
        return f"clients would get port {wrong[1]} for broker {wrong[0]}"
    if listener.port in ports[1:]:
        return f"port {listener.port} would be the bootstrap port and a broker's port"
    return None


def _first_ports(listener: Listener) -> list[tuple[int, int]]:
    """Return the listed brokers with their ports; broker 0 where none are listed."""
    ids = listener.broker_ids or (0,)
    return [(broker_id, port) for broker_id in ids if (port := listener.port_of(broker_id)) is not None]


def _ports(listener: Listener) -> list[int]:
    if listener.routing == "sni":
        return [listener.port]
    count = len(listener.broker_ids) or UNLISTED_PORTS
    return [listener.port, *range(listener.first_broker_port, listener.first_broker_port + count)]
