"""``idemproxy inspect old-clients``: who still sends versions that Kafka 4 lacks. Nothing of it is stored: running
proxies are asked at their admin ports. The same in one line for ``idemproxy check --connect``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ... import limits
from ...admin.summed import WorkerAnswer, old_clients
from ...process.findings import Finding
from ...settings.config import ConfigError
from .admin_ports import Address, AdminAnswer, UselessAnswer, ask_ports
from .render import time_text
from .table import printable, table_lines

Json = Mapping[str, Any]
TARGET: Final = "/api/v1/old_clients"
_TITLES: Final = ("CLIENT", "ADDRESS", "SOFTWARE", "PRINCIPAL", "API, VERSION, REQUESTS", "REFUSED", "LAST SEEN")
_TEXTS: Final = ("client_id", "address", "software", "principal")
_NOBODY: Final = (
    "inspect old-clients asks running proxies: --admin HOST:PORT names the admin port of one, and so does admin.bind "
    "in the configuration (--config FILE)"
)


def ask_old_clients(addresses: Sequence[Address]) -> list[AdminAnswer[Json]]:
    """Ask every admin port who its old clients are."""
    return ask_ports(addresses, TARGET, limits.OLD_CLIENTS_ANSWER_BYTES_MAX, old_clients_in)


def old_clients_in(body: bytes) -> Json:
    """Return what an answer says, if it is one. Raises UselessAnswer."""
    try:
        found = json.loads(body)
        clients = [_client(row) for row in found["clients"]]
        return {
            "uptime_seconds": float(found["uptime_seconds"]),
            "forgotten": int(found["forgotten"]),
            "clients": clients[: limits.OLD_CLIENTS_MAX],
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise UselessAnswer("its answer is not that of an admin port") from None


def _client(row: Json) -> dict[str, Any]:
    return {
        **{name: str(row[name])[: limits.OLD_CLIENT_TEXT_MAX] for name in _TEXTS},
        "requests": [
            {"api": str(one["api"]), "version": int(one["version"]), "requests": int(one["requests"])}
            for one in row["requests"]
        ],
        "refused": int(row["refused"]),
        **{name: float(row[name]) for name in ("first_seen", "last_seen", "idle_seconds")},
    }


def shown_old_clients(addresses: Sequence[Address], *, as_json: bool) -> Iterator[str]:
    """Yield a table, or one JSON object a line; nothing if no proxy has seen an old client. On the error output it says
    which proxies did not answer. Raises ConfigError if none did."""
    if not addresses:
        raise ConfigError(_NOBODY)
    answers = ask_old_clients(addresses)
    silent = "; ".join(f"{one.shown_address} did not answer: {one.why_not}" for one in answers if one.content is None)
    reported = [WorkerAnswer(number, one.content) for number, one in enumerate(answers, 1) if one.content is not None]
    if not reported:
        raise ConfigError(silent)
    if silent:
        print(f"idemproxy: {silent}", file=sys.stderr)
    found = old_clients(reported)
    if as_json:
        yield from (json.dumps(row) for row in found["clients"])
    else:
        yield from table_lines(_TITLES, map(_cells, found["clients"]))
    if found["forgotten"]:
        print(
            f"idemproxy: more than {limits.OLD_CLIENTS_MAX} clients: {found['forgotten']} times the one seen the "
            "longest ago made room for another one",
            file=sys.stderr,
        )


def _cells(row: Json) -> tuple[object, ...]:
    sent = ", ".join(f"{one['api']} {one['version']}: {one['requests']}" for one in row["requests"])
    texts = [row[name] or "-" for name in _TEXTS]
    return *texts, sent, row["refused"], time_text(round(row["last_seen"] * 1000))


def old_clients_finding(addresses: Sequence[Address]) -> list[Finding]:
    """Return what the proxy that runs says of its old clients; nothing where none answers: most checks come before the
    start of one."""
    findings = []
    for one in ask_old_clients(addresses):
        if one.content is None:
            continue
        clients = one.content["clients"]
        where = f"the proxy at {one.shown_address}, {one.content['uptime_seconds'] / 3600:.1f} h after its start"
        if not clients:
            findings.append(Finding("ok", "old clients", f"none, says {where}"))
            continue
        requests = [each for row in clients for each in row["requests"]]
        apis = ", ".join(sorted({printable(each["api"]) for each in requests}))
        sent, refused = sum(each["requests"] for each in requests), sum(row["refused"] for row in clients)
        text = (
            f"seen: {len(clients)}, requests in versions that Kafka 4 lacks: {sent} ({apis}), refused: {refused}, says "
            f"{where}; `idemproxy inspect old-clients` lists them"
        )
        findings.append(Finding("warning" if refused else "note", "old clients", text))
    return findings
