"""What kafka-python leaves open fails no test."""

import gc
import socket

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError


def open_sockets() -> list[socket.socket]:
    """The sockets that this process has not closed."""
    return [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() != -1]


@pytest.fixture
def refusing_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_refused_connection_of_kafka_python_leaves_no_socket_behind(refusing_port: int) -> None:
    before = open_sockets()
    with pytest.raises(KafkaTimeoutError) as raised:  # kept until the end: it keeps what the client has made
        KafkaProducer(bootstrap_servers=f"127.0.0.1:{refusing_port}", bootstrap_timeout_ms=1000)
    left = [one for one in open_sockets() if not any(one is other for other in before)]
    own_pair = [one for one in left if one.family == socket.AF_UNIX]  # a producer that was never made closes nothing
    for one in own_pair:
        one.close()
    assert ([one for one in left if one not in own_pair], raised.type) == ([], KafkaTimeoutError)
