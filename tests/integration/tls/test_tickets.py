"""A listener gives its clients nothing by which they could come back without showing their certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from idemproxy.proxy.net.tls import server_context
from idemproxy.proxy.settings.tls import TlsServer
from testkit.real.tls.certificates import Authority


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_no_client_gets_a_ticket(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("localhost")
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    trusting.minimum_version = trusting.maximum_version = version
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context(TlsServer(own.cert, own.key)).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    server.write(b"answer")
    assert client.read() == b"answer", "what the server sends after the handshake was read with it"
    assert client.session is not None
    assert not client.session.has_ticket
