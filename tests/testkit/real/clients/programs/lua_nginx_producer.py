"""Numbered records by lua-resty-kafka in a real nginx, of Debian's packages: each is one HTTP request, answered with
the offset that the library reports. Every error it gives its user is counted."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from .program import Told, arguments

FOLDER_VARIABLE = "LUA_NGINX_FOLDER"
_START_SECONDS_MAX = 20.0
_ANSWER_SECONDS_MAX = 60.0
_LUA = """
local producer = require "nginx.kafka.producer"
local function chosen(key) return tonumber(key) end
local sender = producer:new({{ {{ host = "{host}", port = {port} }} }}, {{
    api_version = {api_version}, required_acks = {acks}, max_retry = 3, partitioner = chosen
}})
ngx.req.read_body()
local offset, error = sender:send("{topic}", ngx.var.arg_partition, ngx.req.get_body_data())
if not offset then
    ngx.status = 500
    ngx.print(error)
else
    ngx.print((string.gsub(tostring(offset), "U?LL", "")))
end
"""
_CONFIGURATION = """
daemon off;
master_process off;
pid {here}/nginx.pid;
error_log {here}/error.log warn;
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {here}/body;
    proxy_temp_path {here}/proxy;
    fastcgi_temp_path {here}/fastcgi;
    uwsgi_temp_path {here}/uwsgi;
    scgi_temp_path {here}/scgi;
    lua_package_path "{packages}/?.lua;;";
    server {{
        listen 127.0.0.1:{listens};
        location /send {{ content_by_lua_file {here}/send.lua; }}
    }}
}}
"""


def main() -> None:
    """Start nginx, send, say what became of the records."""
    given = arguments()
    root = Path(os.environ[FOLDER_VARIABLE])
    host, _, port = given["bootstrap"].split(",")[0].rpartition(":")
    settings = given["settings"]
    told = Told(given["partitions"], given["told_file"], given["pace"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listens = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="lua-nginx-") as folder:
        here = Path(folder)
        lua = {"host": host, "port": port, "topic": given["topic"], **settings}
        (here / "send.lua").write_text(_LUA.format(**lua))
        modules, packages = root / "usr/lib/nginx/modules", root / "usr/share/lua/5.1"
        (here / "nginx.conf").write_text(
            _CONFIGURATION.format(here=here, modules=modules, packages=packages, listens=listens)
        )
        libraries = [os.fspath(one.parent) for one in root.rglob("lib*.so*")]
        nginx = subprocess.Popen(
            [root / "usr/sbin/nginx", "-p", here, "-c", here / "nginx.conf", "-e", here / "error.log"],
            env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(dict.fromkeys(libraries))},
        )
        try:
            _wait_until_listening(nginx, listens)
            for partition, number, value in told.records(given["name"], given["records"]):
                try:
                    told.acknowledged(partition, number, _send(listens, partition, value))
                except OSError as error:
                    told.failed(error.read() if isinstance(error, urllib.error.HTTPError) else error)
        finally:
            nginx.terminate()
            nginx.wait()
    told.finish()


def _wait_until_listening(nginx: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if nginx.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("nginx does not listen") from None
            time.sleep(0.05)


def _send(port: int, partition: int, value: bytes) -> int:
    """Return the offset; the library reports the one after the last message that it has sent."""
    url = f"http://127.0.0.1:{port}/send?partition={partition}"
    with urllib.request.urlopen(urllib.request.Request(url, value), timeout=_ANSWER_SECONDS_MAX) as answer:
        return int(answer.read()) - 1


if __name__ == "__main__":
    main()
