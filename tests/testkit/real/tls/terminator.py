"""TLS in front of a plain server, as people put stunnel in front of Redis: a thread per connection."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading

from .certificates import Authority, Files


class TlsTerminator:
    """Listens on ``address``; clients show certificates of the authority. A context manager."""

    def __init__(self, behind: tuple[str, int], authority: Authority, own: Files) -> None:
        self._behind = behind
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca_file))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(own.cert, own.key)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self._lines: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TlsTerminator:
        return self

    def __exit__(self, *error: object) -> None:
        for line in (self._listening, *self._lines):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(plain, server_side=True) as near,
            socket.create_connection(self._behind) as far,
        ):
            self._lines += [near, far]
            while True:
                ready = [near] if near.pending() else select.select([near, far], [], [])[0]
                for source, sink in ((near, far), (far, near)):
                    if source in ready:
                        data = source.recv(65536)
                        if not data:
                            return
                        sink.sendall(data)
