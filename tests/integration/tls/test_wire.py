"""TLS between real sockets and endpoints: what passes, who is there, and what the rules R4 and R17 ask of it."""

import fcntl
import socket
import ssl
import sys
import termios
import threading
from contextlib import suppress
from functools import partial

import pytest
import trio

from idemproxy.proxy.net.tls_wire import TlsWire
from idemproxy.proxy.settings.tls import TlsClient, TlsServer
from idemproxy.reactor import Buffer, Wire
from testkit.real.tls.scene import (
    MEGABYTE,
    SECONDS_MAX,
    Recorder,
    Scene,
    TlsKit,
    connected,
    context,
    play,
    read_exactly,
    shake_hands,
    until,
)

RECORD_BYTES = 16 * 1024
"""The largest record of TLS."""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> TlsKit:
    return TlsKit(tmp_path_factory.mktemp("certificates"))


# ---------------------------------------------------------------------- what passes
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_what_is_sent_arrives_whole_and_in_order_in_both_directions(kit: TlsKit, version: ssl.TLSVersion) -> None:
    trusted = context(kit.authority)
    trusted.maximum_version = version
    chunks: list[Buffer] = [b"", b"a", MEGABYTE, memoryview(MEGABYTE)[:16384], bytearray(b"b" * 16385), *[b"cd"] * 3000]
    answer = b"".join(chunks)

    def client(port: int) -> None:
        with connected(port, trusted) as line:
            line.sendall(MEGABYTE)
            assert read_exactly(line, len(answer)) == answer
            assert line.version() == ("TLSv1.2" if version == ssl.TLSVersion.TLSv1_2 else "TLSv1.3")

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire.send(*chunks)
        await trio.to_thread.run_sync(client, scene.port)
        await until(lambda: scene.accepted[0].reasons)
        assert scene.accepted[0].data == MEGABYTE
        assert scene.accepted[0].reasons == ["the peer closed the connection"]

    play(kit.server, act)


@pytest.mark.parametrize("size", [1, 7, 16_411], ids=["byte by byte", "by seven", "a record and a bit"])
def test_it_does_not_matter_how_the_network_cuts_what_is_sent(kit: TlsKit, size: int) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context(kit.authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
    said = MEGABYTE[:3000] if size < 100 else MEGABYTE

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def send() -> None:
                data = outgoing.read()
                for start in range(0, len(data), size):
                    line.sendall(data[start : start + size])

            shake_hands(tls, send, lambda: incoming.write(line.recv(65536)))
            for start in range(0, len(said), 1000):  # a record each
                tls.write(said[start : start + 1000])
            send()

    async def act(scene: Scene) -> None:
        await trio.to_thread.run_sync(client, scene.port)
        await until(lambda: scene.accepted and scene.accepted[0].reasons)
        assert scene.accepted[0].data == said

    play(kit.server, act)


def test_our_own_client_and_listener_understand_each_other(kit: TlsKit) -> None:
    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(kit.authority.ca_file), "upstream.tls")
        far = Recorder(lambda wire: wire.send(MEGABYTE, b"!"))
        scene.begin = lambda wire: wire.send(b"welcome")
        scene.reactor.over_tls(side).connect(("localhost", scene.port), far)
        await until(lambda: scene.accepted and len(scene.accepted[0].data) > len(MEGABYTE) and far.data)
        assert scene.accepted[0].data == MEGABYTE + b"!"
        assert far.data == b"welcome"
        assert far.wire is not None
        assert far.wire.unsent == 0

    play(kit.server, act)


def test_a_listener_learns_the_name_that_was_asked_for_and_who_the_client_is(kit: TlsKit) -> None:
    orders = kit.authority.issue("orders", "orders.example", common_name="orders")

    def client(port: int) -> None:
        with connected(port, context(kit.authority, orders), "LOCALHOST") as line:
            line.recv(1)

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire.send(b".")
        await trio.to_thread.run_sync(client, scene.port)
        (peer,) = scene.peers
        assert peer.host == "127.0.0.1"
        assert peer.server_name == "localhost"
        assert peer.principal is not None
        assert peer.principal.startswith("CN=orders,OU=")
        assert peer.principal.endswith(",O=Example")

    play(kit.strict_server, act)


def test_a_client_may_leave_its_certificate_out_where_it_is_optional(kit: TlsKit) -> None:
    settings = TlsServer(kit.own.cert, kit.own.key, client_ca_file=kit.authority.ca_file, client_auth="optional")

    def client(port: int) -> None:
        for mine in (None, kit.own):
            with connected(port, context(kit.authority, mine), "127.0.0.1") as line:
                line.recv(1)

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire.send(b".")
        await trio.to_thread.run_sync(client, scene.port)
        assert [peer.principal is None for peer in scene.peers] == [True, False]
        assert [peer.server_name for peer in scene.peers] == [None, None], "an address is no server name"

    play(settings, act)


def test_closing_sends_all_that_is_queued_and_says_goodbye(kit: TlsKit) -> None:
    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            assert read_exactly(line, len(MEGABYTE) * 4) == MEGABYTE * 4
            assert line.recv(1) == b"", "an end without goodbye would be an error here"

    def send_and_close(wire: Wire) -> None:
        wire.send(MEGABYTE, MEGABYTE, MEGABYTE, MEGABYTE)
        wire.close()

    async def act(scene: Scene) -> None:
        scene.begin = send_and_close
        await trio.to_thread.run_sync(client, scene.port)
        await trio.sleep(0.05)
        assert scene.accepted[0].reasons == [], "who closed is not told that it is lost"

    play(kit.server, act)


def test_a_client_that_is_not_wanted_sees_the_end_and_not_silence(kit: TlsKit) -> None:
    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            assert line.recv(1) == b""

    async def act(scene: Scene) -> None:
        scene.refuses = True
        await trio.to_thread.run_sync(client, scene.port)

    play(kit.server, act)


# ---------------------------------------------------------------------- flow control and the fence
def test_unsent_bytes_are_encrypted_ones_and_go_down_when_the_peer_reads(kit: TlsKit) -> None:
    may_read, size = threading.Event(), 32 * len(MEGABYTE)

    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            assert may_read.wait(SECONDS_MAX)
            read_exactly(line, size)

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire.send(*[MEGABYTE] * 32)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, client, scene.port))
            await until(lambda: scene.accepted and scene.accepted[0].wire and scene.accepted[0].wire.unsent < size)
            wire = scene.accepted[0].wire
            assert wire is not None
            await trio.sleep(0.05)
            waiting = wire.unsent
            assert waiting > len(MEGABYTE)
            may_read.set()
            await until(lambda: wire.unsent == 0)

    play(kit.server, act)


@pytest.mark.promise("tls")
@pytest.mark.parametrize("looks", [[False], [True, False]], ids=["before the write", "after the write"])
def test_a_fenced_connection_is_reset_without_a_goodbye_when_the_lease_ends(kit: TlsKit, looks: list[bool]) -> None:
    seen: list[object] = []

    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            bare = socket.socket(fileno=line.detach())
            bare.settimeout(SECONDS_MAX)
            with bare:
                try:
                    while data := bare.recv(100):
                        seen.append(data)
                except OSError as error:
                    seen.append(type(error))

    def send_late(wire: Wire) -> None:
        left = iter(looks)
        wire.fence(lambda: next(left))
        wire.send(b"too late")

    async def act(scene: Scene) -> None:
        scene.begin = send_late
        await trio.to_thread.run_sync(client, scene.port)
        assert scene.accepted[0].reasons == ["the lease ended before the last byte was sent"]

    play(kit.server, act)
    assert seen[-1:] == [ConnectionResetError]
    assert len(seen) <= len(looks)


def test_a_fence_is_asked_around_every_write_of_encrypted_bytes(kit: TlsKit) -> None:
    asked: list[int] = []

    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            read_exactly(line, len(MEGABYTE))

    def begin(wire: Wire) -> None:
        def look() -> bool:
            asked.append(wire.unsent)
            return True

        wire.fence(look)
        wire.send(MEGABYTE)

    async def act(scene: Scene) -> None:
        scene.begin = begin
        await trio.to_thread.run_sync(client, scene.port)

    play(kit.server, act)
    assert asked[0] > len(MEGABYTE), "what is encrypted counts with what TLS adds"
    assert asked == sorted(asked, reverse=True) or len(asked) > 2
    assert asked[-1] == 0
    assert len(asked) >= 2 * len(MEGABYTE) // (64 * 1024), "never more than a piece leaves between two looks"


def test_what_is_expected_of_one_message_is_decrypted_in_large_pieces(kit: TlsKit) -> None:
    size = 200 * 1024
    has_sent, may_go = threading.Event(), threading.Event()

    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            assert line.recv(1)
            line.sendall(bytes(size))
            has_sent.set()
            assert may_go.wait(SECONDS_MAX)

    def stop_reading(wire: Wire) -> None:
        assert isinstance(wire, TlsWire)
        wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        wire.pause()
        wire.send(b".")

    async def act(scene: Scene) -> None:
        scene.begin = stop_reading
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, client, scene.port))
            await until(has_sent.is_set)
            (end,) = scene.accepted
            assert isinstance(end.wire, TlsWire)
            held, ours = bytearray(4), end.wire._socket
            await until(lambda: fcntl.ioctl(ours, termios.FIONREAD, held) == 0 and _number(held) > size)
            end.expected = 256 * 1024
            end.wire.expect(size)
            end.wire.resume()
            await until(lambda: end.data == bytes(size))
            may_go.set()
        assert end.sizes[0] > size // 2

    play(kit.server, act)


@pytest.mark.parametrize(
    ("most_bytes", "records"),
    [(64 * 1024, [RECORD_BYTES] * 4 + [2_000]), (200 * 1024, [RECORD_BYTES] * 12 + [10_000])],
    ids=["of any read", "of one message"],
)
def test_bytes_of_an_unfinished_record_count_in_the_read_that_ends_it(
    kit: TlsKit, most_bytes: int, records: list[int]
) -> None:
    may_begin, may_go_on = threading.Event(), threading.Event()
    begun_bytes, left_bytes = 0, 0

    def client(port: int) -> None:
        nonlocal begun_bytes, left_bytes
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context(kit.authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as line:
            shake_hands(tls, lambda: line.sendall(outgoing.read()), lambda: incoming.write(line.recv(65536)))
            tls.write(b".")
            line.sendall(outgoing.read())
            for size in records:
                tls.write(bytes(size))
            sealed = outgoing.read()
            assert may_begin.wait(SECONDS_MAX)
            begun_bytes = int.from_bytes(sealed[3:5], "big") + 4  # the first record but its last byte
            left_bytes = len(sealed) - begun_bytes
            line.sendall(sealed[:begun_bytes])
            assert may_go_on.wait(SECONDS_MAX)
            line.sendall(sealed[begun_bytes:])
            with suppress(ConnectionResetError):
                line.recv(1)  # until the end

    def begin(wire: Wire) -> None:
        assert isinstance(wire, TlsWire)
        wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    async def act(scene: Scene) -> None:
        scene.begin = begin
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, client, scene.port))
            await until(lambda: scene.accepted and scene.accepted[0].data == b".")
            (end,) = scene.accepted
            wire = end.wire
            assert isinstance(wire, TlsWire)
            may_begin.set()
            await until(lambda: begun_bytes and wire._unheard == begun_bytes)
            wire.pause()
            may_go_on.set()
            held = bytearray(4)
            await until(lambda: fcntl.ioctl(wire._socket, termios.FIONREAD, held) == 0 and _number(held) == left_bytes)
            end.expected = most_bytes
            wire.expect(most_bytes)
            wire.resume()
            await until(lambda: len(end.data) == 1 + sum(records))
            wire.close()
        assert len(end.sizes) == 3, "one byte, as much as may be, and the rest"

    play(kit.server, act)


@pytest.mark.promise("tls")
def test_a_peer_that_hangs_up_is_noticed_also_while_nothing_is_read_from_it(kit: TlsKit) -> None:
    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            assert line.recv(1)
            line.sendall(b"a request that is not read")

    def stop_reading(wire: Wire) -> None:
        wire.pause()
        wire.send(b".")

    async def act(scene: Scene) -> None:
        scene.begin = stop_reading
        await trio.to_thread.run_sync(client, scene.port)
        await until(lambda: scene.accepted[0].reasons)
        assert scene.accepted[0].data == b"a request that is not read", "what it sent before comes with its end"

    play(kit.server, act)


def _number(held: bytearray) -> int:
    return int.from_bytes(held, sys.byteorder)
