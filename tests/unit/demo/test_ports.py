"""Ports that are given away: nobody else gets them, and a server can listen on them."""

import socket

import pytest

from idemproxy.demo import ports
from idemproxy.demo.ports import HOST, free_ports, neighbouring_ports


def test_a_server_that_allows_reuse_listens_on_a_port_that_is_held() -> None:
    (port,) = free_ports(1)
    with socket.create_server((HOST, port)), socket.create_connection((HOST, port)):
        pass


def test_nobody_answers_at_a_port_that_is_only_held() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, free_ports(1)[0]))


def test_a_port_is_not_given_away_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_LOWEST", 16_000)  # below those that other tests take
    monkeypatch.setattr(ports, "_HIGHEST", 16_020)
    monkeypatch.setattr(ports, "_TRIES_MAX", 20)
    first = free_ports(5)
    assert not set(first) & set(free_ports(5))
    with pytest.raises(OSError, match="no 20 free ports"):
        free_ports(20)


def test_ports_side_by_side() -> None:
    first = neighbouring_ports(3)
    for port in range(first, first + 3):
        socket.create_server((HOST, port)).close()


def test_only_the_last_ones_are_held() -> None:
    (port,) = free_ports(1)
    for _ in range(ports._HELD_MAX):
        free_ports(1)
    with socket.socket() as server:
        server.bind((HOST, port))
