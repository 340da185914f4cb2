"""Two drivers of Spark create one manifest at once through each driver of fsspec that the sink takes: one wins. The
drivers are real; they talk to a small store on this machine that holds both requests until the second is there, and
then heeds the condition that each carries, or, where there is none, takes both.

Not a part of ``make test``, which does not have the drivers: ``make object-stores`` runs it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import fsspec
import pytest

from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.storage import ObjectStorage

ROUNDS: Final = 25
ROOT: Final = "bucket/checkpoint/sink"
pytestmark = pytest.mark.timeout(300)


class Store(ThreadingHTTPServer):
    """Objects by name. ``heeds``: whether it looks at conditions, as old stores do not."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.heeds = True
        self.together: threading.Barrier | None = None
        self.conditional = 0

    def put(self, name: str, data: bytes, is_conditional: bool) -> bool:
        """Store it, and return True; False: the condition is that there is none, and there is one."""
        if self.together is not None:
            self.together.wait(60)
        with self.lock:
            self.conditional += is_conditional
            if is_conditional and self.heeds and name in self.objects:
                return False
            self.objects[name] = data
            return True


class Requests(BaseHTTPRequestHandler):
    """As much of S3, Google's and Azure's protocol as creating, reading and removing one object needs."""

    protocol_version = "HTTP/1.1"
    server: Store

    def log_message(self, *_: object) -> None: ...

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do_PUT(self) -> None:
        """S3's PutObject and Azure's Put Blob."""
        body, name = self._body(), unquote(urlsplit(self.path).path).lstrip("/")
        is_azure = "x-ms-version" in self.headers
        if self.server.put(name.removeprefix("account/"), body, self.headers.get("if-none-match") == "*"):
            date = "Sun, 29 Nov 2026 00:00:00 GMT"
            self._answer(201 if is_azure else 200, etag='"1"', last_modified=date, x_ms_request_server_encrypted="true")
        elif is_azure:
            error = b"<?xml version='1.0'?><Error><Code>BlobAlreadyExists</Code><Message>exists</Message></Error>"
            self._answer(409, error, x_ms_error_code="BlobAlreadyExists", content_type="application/xml")
        else:
            error = b"<Code>PreconditionFailed</Code><Message>x</Message><Condition>If-None-Match</Condition>"
            error = b"<Error>%s</Error>" % error
            self._answer(412, error, content_type="application/xml")

    def do_POST(self) -> None:
        """Google's upload; S3's DeleteObjects."""
        body, parts = self._body(), urlsplit(self.path)
        asked = parse_qs(parts.query, keep_blank_values=True)
        if "delete" in asked:
            self._answer(200, b"<DeleteResult/>", content_type="application/xml")
            return
        if not parts.path.startswith("/upload/"):
            self._answer(200, b"", content_type="multipart/mixed; boundary=x")
            return
        _, head, content = body.split(b"\n--==0==", 2)[0:3] if body.startswith(b"\n") else (b"", *_parts(body))
        name = f"bucket/{json.loads(head)['name']}"
        if self.server.put(name, content, asked.get("ifGenerationMatch") == ["0"]):
            told = {"name": json.loads(head)["name"], "bucket": "bucket", "size": str(len(content)), "generation": "1"}
            self._answer(200, json.dumps(told).encode(), content_type="application/json")
        else:
            error = {"error": {"code": 412, "message": "conditionNotMet", "errors": [{"reason": "conditionNotMet"}]}}
            self._answer(412, json.dumps(error).encode(), content_type="application/json")

    def do_GET(self) -> None:
        """One object; anything else is not there."""
        name = unquote(urlsplit(self.path).path).lstrip("/").removeprefix("account/")
        found = self.server.objects.get(name)
        self._answer(404 if found is None else 200, found or b"", etag='"1"', content_type="application/octet-stream")

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        """Forget an object."""
        self._body()
        self.server.objects.pop(unquote(urlsplit(self.path).path).lstrip("/").removeprefix("account/"), None)
        self._answer(202)


def _parts(body: bytes) -> tuple[bytes, bytes]:
    """Return metadata and content of an upload in two parts."""
    parts = [part.partition(b"\n\n")[2] for part in body.split(b"--==0==")[1:3]]
    return parts[0].strip(), parts[1][:-1]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def storage_of(kind: str, store: Store) -> ObjectStorage:
    url = f"http://127.0.0.1:{store.server_address[1]}"
    more: dict[str, Any] = {"skip_instance_cache": True}
    if kind == "s3":
        more |= {"key": "k", "secret": "s", "endpoint_url": url, "client_kwargs": {"region_name": "us-east-1"}}
    elif kind == "gs":
        more |= {"token": "anon", "endpoint_url": url, "project": "p"}
    else:
        key = "Zm9vYmFy"
        more |= {"connection_string": f"AccountName=account;AccountKey={key};BlobEndpoint={url}/account;"}
    return ObjectStorage(fsspec.filesystem(kind, **more), ROOT, f"{kind}://{ROOT}")


@pytest.mark.parametrize("kind", ["s3", "gs", "abfs"])
def test_of_two_drivers_that_create_one_manifest_at_once_one_wins(kind: str, store: Store) -> None:
    storages = [storage_of(kind, store) for _ in range(2)]
    store.together = threading.Barrier(2)
    for number in range(ROUNDS):
        won: list[bytes] = []

        def create(storage: ObjectStorage, data: bytes, name: str = f"{number}.json", won: list[bytes] = won) -> None:
            if storage.create(name, data):
                won.append(data)

        threads = [
            threading.Thread(target=create, args=(one, data)) for one, data in zip(storages, (b"1", b"2"), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.objects[f"{ROOT}/{number}.json"] == won[0]
    assert store.conditional == 2 * ROUNDS


@pytest.mark.parametrize("kind", ["s3", "gs", "abfs"])
def test_a_store_that_does_not_heed_the_condition_is_refused(kind: str, store: Store) -> None:
    store.heeds = False
    with pytest.raises(SinkProblem, match="two drivers could both create the file"):
        storage_of(kind, store).check()
