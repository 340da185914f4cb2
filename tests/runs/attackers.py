"""Clients that mean harm, as a process of their own: ``python -m runs.attackers KIND HOST PORT --seconds N``.

Prints a line when it begins, and one of JSON, what it was answered, when it ends."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from idemproxy.codecs import messages
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch

TOPIC = "large"
"""With a long log, which nobody else writes to while the attack lasts."""
SOURCE = "127.0.0.2"
"""Another address than that of whom it is to harm, but where it is to harm those of its own."""
FLOOD_CONNECTIONS = 48
FLOOD_IN_FLIGHT = 12
FLOOD_TIMEOUT_MS = 1_000
NAMES_IN_FLIGHT = 8
LOGIN_CONNECTIONS = 8
_PRODUCER_ID_BITS = 61


def forged() -> bytes:
    """A batch that continues the sequence of a producer id that nobody has issued."""
    return batch([b"x"], producer_id=random.getrandbits(_PRODUCER_ID_BITS), sequence=5)


def five_forged(address: tuple[str, int], answers: Counter[str], _count: int, end: float) -> None:
    """Five such batches, one each on a connection that stays open, and no more."""
    clients = [RawClient(address, source=SOURCE) for _ in range(5)]
    for client in clients:
        client.send_produce([(TOPIC, 0, forged())], timeout_ms=30_000)
        answers["sent"] += 1
    time.sleep(max(0.0, end - time.monotonic()))
    for client in clients:
        client.close()


def forged_flood(address: tuple[str, int], answers: Counter[str], count: int, end: float) -> None:
    """So many of them, or as many as are answered in this time, as fast as they are answered."""
    shares = [count // FLOOD_CONNECTIONS + (one < count % FLOOD_CONNECTIONS) for one in range(FLOOD_CONNECTIONS)]

    def send(share: int) -> None:
        with RawClient(address, source=SOURCE) as client:
            for begun in range(0, share, FLOOD_IN_FLIGHT):
                if time.monotonic() > end:
                    return
                together = range(min(FLOOD_IN_FLIGHT, share - begun))
                for _ in together:
                    client.send_produce([(TOPIC, 0, forged())], timeout_ms=FLOOD_TIMEOUT_MS)
                answers["sent"] += len(together)
                for _ in together:
                    answers[f"error {client.produce_answer()[0].error_code}"] += 1
                    if time.monotonic() > end:  # a proxy that makes it wait answers them one by one
                        return

    _side_by_side([lambda share=share: send(share) for share in shares], answers)  # type: ignore[misc]


def ever_new_names(address: tuple[str, int], answers: Counter[str], _count: int, end: float) -> None:
    """InitProducerId with ever new transactional ids over one connection."""
    with RawClient(address, source=SOURCE) as client:
        while time.monotonic() < end:
            for _ in range(NAMES_IN_FLIGHT):
                name = f"tx-{random.getrandbits(64):016x}{'x' * 200}"
                body = messages.encode_request(
                    ApiKey.INIT_PRODUCER_ID, 0, transactional_id=name, transaction_timeout_ms=60_000
                )
                client.send(ApiKey.INIT_PRODUCER_ID, 0, body)
            for _ in range(NAMES_IN_FLIGHT):
                answer = messages.decode_response(ApiKey.INIT_PRODUCER_ID, 0, client.answer()[1])
                answers[f"error {answer.error_code}"] += 1


def wrong_passwords(address: tuple[str, int], answers: Counter[str], _count: int, end: float) -> None:
    """One login after the other that fails, at the address of everybody else."""

    def guess() -> None:
        while time.monotonic() < end:
            with RawClient(address) as client:
                client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
                answer = client.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"\0alice\0wrong")
                answers[f"error {answer.error_code}"] += 1

    _side_by_side([guess] * LOGIN_CONNECTIONS, answers)


KINDS: dict[str, Callable[[tuple[str, int], Counter[str], int, float], None]] = {
    one.__name__: one for one in (five_forged, forged_flood, ever_new_names, wrong_passwords)
}


def _side_by_side(tasks: list[Callable[[], None]], answers: Counter[str]) -> None:
    """What fails is counted: an attacker that is turned away has been turned away."""

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except OSError as error:
            answers[type(error).__name__] += 1

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    """Attack until the time is over, or all was sent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, required=True, help="at most")
    parser.add_argument("--count", type=int, default=0, help="batches of a flood")
    options = parser.parse_args()
    answers: Counter[str] = Counter()
    print("begun", flush=True)
    try:
        KINDS[options.kind]((options.host, options.port), answers, options.count, time.monotonic() + options.seconds)
    except OSError as error:
        answers[type(error).__name__] += 1
    print(json.dumps(answers), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
