"""What listens at an address, by the beginning of its answer."""

from __future__ import annotations

import pytest

from idemproxy.proxy.process.peers import BROKER, HTTP, REDIS, TLS, ZOOKEEPER, is_no_answer, kind_of, reported


@pytest.mark.parametrize(
    ("heard", "kind"),
    [
        (b"Zookeeper version: 3.4.9-1757313, built on 08/23/2016 06:50 GMT\nLatency min/avg/max: 0/0/19\n", ZOOKEEPER),
        (b"srvr is not executed because it is not in the whitelist.\n", ZOOKEEPER),
        (b"-ERR unknown command 'srvr', with args beginning with: \r\n", REDIS),
        (b"-NOAUTH Authentication required.\r\n", REDIS),
        (b"-DENIED Redis is running in protected mode because protected mode is enabled\r\n", REDIS),
        (b"HTTP/1.1 400 Bad Request\r\n", HTTP),
        (b'<!DOCTYPE HTML>\n<html lang="en">\n', HTTP),  # HTTP 0.9: no status line
        (b"<html>\r\n<head><title>400 Bad Request", HTTP),
        (b"\x15\x03\x03\x00\x02\x02\x32", TLS),
        (b"\0\0\0\x12\x69\x64\x65\x6d\0\0", BROKER),
        (b"220 mail.example ESMTP\r\n", ""),
        (b"", ""),
    ],
)
def test_the_beginning_of_an_answer_tells_what_listens(heard: bytes, kind: str) -> None:
    assert kind_of(heard) == kind


def test_only_an_unwanted_server_is_reported() -> None:
    assert reported(ZOOKEEPER, BROKER) == "ZooKeeper listens there, not a Kafka broker: name another address"
    assert reported(TLS, BROKER) == "TLS is spoken there: set upstream.tls, or name another address"
    assert reported(TLS, REDIS) == "TLS is spoken there: set redis.tls, or name another address"
    assert reported(BROKER, BROKER) == reported("", BROKER) == ""


@pytest.mark.parametrize(
    ("reason", "is_so"),
    [
        ("the peer closed the connection", True),
        ("Redis is away: no answer within 2 s", True),
        ("cannot connect: connection refused: nothing listens there", False),
        ("no connection within 5 s", False),
        ("the peer closed the connection during the TLS handshake; does it speak TLS on this port?", False),
        ("", False),
    ],
)
def test_an_address_that_takes_no_connection_is_not_looked_at(reason: str, is_so: bool) -> None:
    assert is_no_answer(reason) == is_so
