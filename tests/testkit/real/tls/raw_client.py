"""The client without manners, over TLS."""

from __future__ import annotations

import ssl

from testkit.real.clients.raw_client import RawClient

from .certificates import Authority, Files


class TlsRawClient(RawClient):
    """One connection, with a certificate of its own or without."""

    def __init__(self, address: tuple[str, int], authority: Authority, own: Files | None = None) -> None:
        super().__init__(address)
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        if own is not None:
            context.load_cert_chain(own.cert, own.key)
        self._socket = context.wrap_socket(self._socket, server_hostname=address[0])
