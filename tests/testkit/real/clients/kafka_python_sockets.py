"""Closes the sockets that kafka-python 3 leaves to the collector of cycles: those of connections that were refused
while they opened. Their warnings would fail whichever test runs when they are collected."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka.net.inet import KafkaNetSocket


@contextmanager
def refused_sockets_closed() -> Iterator[None]:
    """While it lasts, a socket of kafka-python in this process whose connection cannot be opened is closed."""
    connect = KafkaNetSocket.sock_connect

    async def closing(self: Any, net: Any, sock: socket.socket, *given: Any, **named: Any) -> Any:
        try:
            return await connect(self, net, sock, *given, **named)
        except BaseException:
            sock.close()
            raise

    KafkaNetSocket.sock_connect = closing
    try:
        yield
    finally:
        KafkaNetSocket.sock_connect = connect
