"""Asks the proxy as a client would: is it ready, which brokers does it tell of, can each of them be reached?

Arguments: seconds to try, the address of the admin port, the listed broker ids with commas, and ways to go in:
HOST:PORT, HOST:PORT:tls or HOST:PORT:open (only look whether it is). Run by `helm test`.
"""

import json
import socket
import ssl
import sys
import time
import urllib.request

from kafka import KafkaAdminClient


def is_ready(url: str) -> str:
    """Return what /readyz says. Raises OSError with its reasons while it is not ready."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read(500).decode())
    except urllib.error.HTTPError as refusal:
        raise OSError(f"{refusal.code} {refusal.read(500).decode()}") from None


def lists_every_broker(url: str, listed: str) -> str:
    """Return a line about the brokers that the proxy sees. Raises OSError when one of them is not listed."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        seen = {str(broker["id"]) for broker in json.load(answer)["brokers"]}
    if missing := seen - set(listed.split(",")):
        raise OSError(f"no client is told of broker {', '.join(sorted(missing))}: add it to upstream.brokerIds")
    return f"brokers of the cluster: {', '.join(sorted(seen))}"


def ask(listener: str, deadline: float) -> str:
    """Return a line about one listener. Raises OSError or a Kafka error when a client would not get through."""
    host, port, *how = listener.split(":")
    if how == ["open"]:
        socket.create_connection((host, int(port)), timeout=5).close()
        return f"{host}:{port}: open"
    settings = {}
    if how:
        # Only whether one gets through: which certificate is the right one, only the clients know.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        settings = {"security_protocol": "SSL", "ssl_context": context}
    left_ms = max(1000, int((deadline - time.monotonic()) * 1000))
    client = KafkaAdminClient(bootstrap_servers=f"{host}:{port}", bootstrap_timeout_ms=left_ms, **settings)
    try:
        brokers = client.describe_cluster()["brokers"]
    finally:
        client.close()
    reached = []
    for broker in brokers:
        number, place = broker.get("node_id", broker.get("broker_id")), (broker["host"], broker["port"])
        try:
            socket.create_connection(place, timeout=5).close()
        except OSError as error:
            raise OSError(f"broker {number} is told to be at {place[0]}:{place[1]}: {error}") from None
        reached.append(f"{number} at {place[0]}:{place[1]}")
    if not reached:
        raise OSError("no broker is told of")
    return f"{host}:{port}: brokers {', '.join(reached)}"


def tried(deadline: float, what, *arguments) -> str:
    """Return what the call returns as soon as it does; ends the program when it does not in time."""
    while True:
        try:
            return what(*arguments)
        except Exception as error:
            if time.monotonic() >= deadline:
                sys.exit(f"failed: {arguments[0]}: {error}")
            time.sleep(1)


def main() -> None:
    seconds, admin, listed, *listeners = sys.argv[1:]
    deadline = time.monotonic() + float(seconds)
    print(tried(deadline, is_ready, f"{admin}/readyz"), flush=True)
    print(tried(deadline, lists_every_broker, f"{admin}/api/v1/page", listed), flush=True)
    for listener in listeners:
        print(tried(deadline, ask, listener, deadline), flush=True)


main()
