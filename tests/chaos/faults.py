"""The faults of a chaos run: what there is, how it is drawn from the seed, how it is done to the scene, when it was.

Three threads at once: one hits brokers one after the other, one proxies and Redis, and one connections.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from idemproxy.demo.legacy_cluster import ClusterError
from idemproxy.demo.zookeeper import ZooKeeper

from .clock import now_ms
from .pipe import Strike
from .proxies import Proxy, send_all
from .redis_pair import RedisNode, RedisPair
from .scene import BROKER_LINK, CLIENT_LINK, REDIS_LINK, REPLICATION_LINK, Scene

KNOWN_DOWN_SECONDS = 2.0
"""So long after it was stopped a proxy still gets new connections: a load balancer has to notice first."""
IN_SYNC_SECONDS_MAX = 25.0
_ELECTION_SECONDS_MAX = 10.0
OF_A_WORKER = "one worker"
"""How the detail begins of what was done to one process of a proxy."""


@dataclass(slots=True)
class Fault:
    """``ended_ms``: when the last of it was over; 0 while it lasts. ``count``: connections that it hit, else 1."""

    kind: str
    target: str
    began_ms: int
    ended_ms: int
    detail: str
    count: int = 1


class Saboteur:
    """``faults``: what was done so far, by all threads."""

    def __init__(self, scene: Scene, seed: int, kinds: tuple[str, ...] | None = None) -> None:
        """``kinds``: only these, by the names below."""
        self.faults: list[Fault] = []
        self._scene = scene
        self._stopping = threading.Event()
        self._seed = seed
        self._broker_kinds, self._proxy_kinds = dict(_BROKER_KINDS), dict(_PROXY_KINDS if scene.proxies else {})
        if scene.layout.workers > 1:
            self._proxy_kinds |= _WORKER_KINDS
        self._links = (CLIENT_LINK, BROKER_LINK, REDIS_LINK) if scene.proxies else (BROKER_LINK,)
        if kinds is not None:
            self._broker_kinds = {name: one for name, one in self._broker_kinds.items() if name in kinds}
            self._proxy_kinds = {name: one for name, one in self._proxy_kinds.items() if name in kinds}
        self._connection_kinds = tuple(
            name
            for name in (*_CONNECTION_KINDS, *(_STEERING_KINDS if scene.proxies else ()))
            if kinds is None or name in kinds
        )

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()

    def hit_brokers(self, pause_seconds: float) -> None:
        """One fault after the other until ``stop``, with pauses of about so long."""
        self._hit_processes(self._broker_kinds, Random(f"{self._seed} brokers"), pause_seconds, lambda: None)

    def hit_proxies(self, pause_seconds: float) -> None:
        """The same for proxies and Redis."""
        random = Random(f"{self._seed} proxies")
        self._hit_processes(self._proxy_kinds, random, pause_seconds, self._scene.look_after_proxies)

    def hit_connections(self, pause_seconds: float) -> None:
        """The same for connections."""
        random = Random(f"{self._seed} connections")
        while self._connection_kinds and self._pause(random, pause_seconds):
            self._hit_connection(random)

    def _hit_processes(
        self, kinds: dict[str, tuple[int, _Done]], random: Random, pause_seconds: float, afterwards: Callable[[], None]
    ) -> None:
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        while names and self._pause(random, pause_seconds):
            kinds[random.choices(names, weights)[0]][1](self, random)
            afterwards()

    def _pause(self, random: Random, seconds: float) -> bool:
        """Wait for about so long; return whether to continue."""
        return not self._stopping.wait(min(random.expovariate(1 / seconds), 3 * seconds))

    # ------------------------------------------------------------------ connections
    def _hit_connection(self, random: Random) -> None:
        relay = self._scene.relay
        link, kind = random.choice(self._links), random.choice(self._connection_kinds)
        if kind == "steer":
            self._steer(random)
            return
        share = random.choice((0.1, 0.3, 0.6, 1.0))
        seconds = _seconds(random)
        began = now_ms()
        over_ms = began
        if kind == "cut":
            count = relay.cut(link, share, random)
        elif kind == "half_open":
            count = relay.half_open(link, share, random, client_is_cut=random.random() < 0.5, seconds=seconds)
            over_ms += round(seconds * 1000)
        elif kind == "hold":
            count = relay.hold(link, share, random, seconds)
            over_ms += round(seconds * 1000)
        else:
            before = relay.strikes[link, Strike(kind)]
            relay.arm(link, share, random, Strike(kind))
            time.sleep(1)
            count = relay.strikes[link, Strike(kind)] - before
        if count:
            detail = f"{count} connections" + (f", {seconds:.1f} s" if over_ms > began else "")
            self.faults.append(Fault(kind, link, began, max(over_ms, now_ms()), detail, count))

    def _steer(self, random: Random) -> None:
        """Clients of a proxy that lives have to go to the other one, and it may not know that they have gone."""
        relay, proxy, seconds = self._scene.relay, random.choice(self._scene.proxies), random.uniform(1, 6)
        fault = self._begin("steer", proxy.name)
        proxy.is_shunned = True
        if random.random() < 0.5:
            fault.count = relay.half_open(CLIENT_LINK, 1.0, random, client_is_cut=True, seconds=20, name=proxy.name)
            fault.detail = f"{fault.count} connections are half open for 20 s"
        else:
            fault.count = relay.cut(CLIENT_LINK, 1.0, random, proxy.name)
            fault.detail = f"{fault.count} connections are cut"
        time.sleep(seconds)
        proxy.is_shunned = False
        self._end(fault)

    # ------------------------------------------------------------------ proxies
    def _kill_proxy(self, random: Random) -> None:
        proxy = random.choice(self._scene.proxies)
        fault = self._begin("kill", proxy.name)
        proxy.kill(alone=self._scene.layout.workers > 1 and random.random() < 0.5)
        time.sleep(random.choice((0.0, 0.5, 2.0, 8.0)))
        self._restart(proxy)
        self._end(fault)

    def _stop_proxy(self, random: Random) -> None:
        proxy, seconds = random.choice(self._scene.proxies), _seconds(random)
        fault = self._begin("stop", proxy.name, f"{seconds:.1f} s")
        proxy.signal_all(signal.SIGSTOP)
        time.sleep(min(seconds, KNOWN_DOWN_SECONDS))
        if seconds > KNOWN_DOWN_SECONDS:
            proxy.is_up = False
            time.sleep(seconds - KNOWN_DOWN_SECONDS)
        proxy.signal_all(signal.SIGCONT)
        proxy.is_up = True
        self._end(fault)

    def _kill_worker(self, random: Random) -> None:
        proxy = random.choice(self._scene.proxies)
        fault = self._begin("kill", proxy.name, OF_A_WORKER)
        self._signal_worker(proxy, random, signal.SIGKILL)
        self._end(fault)

    def _stop_worker(self, random: Random) -> None:
        proxy, seconds = random.choice(self._scene.proxies), _seconds(random)
        fault = self._begin("stop", proxy.name, f"{OF_A_WORKER}, {seconds:.1f} s")
        worker = self._signal_worker(proxy, random, signal.SIGSTOP)
        time.sleep(seconds)
        if worker is not None:
            send_all([worker], signal.SIGCONT)
        self._end(fault)

    def _signal_worker(self, proxy: Proxy, random: Random, number: signal.Signals) -> int | None:
        """Send this to one of its workers; None: none runs at this moment."""
        workers = sorted(proxy.process.workers)
        if not workers:
            return None
        worker = random.choice(workers)
        send_all([worker], number)
        return worker

    def _roll_proxies(self, random: Random) -> None:
        for proxy in random.sample(self._scene.proxies, 2):
            fault = self._begin("roll", proxy.name)
            code = proxy.stop()
            if code != 0:
                self._scene.ended_by_themselves.append(f"{proxy.name} ended with code {code} on SIGTERM")
            fault.detail = f"drained in {(now_ms() - fault.began_ms) / 1000:.1f} s"
            self._restart(proxy)
            self._end(fault)
            time.sleep(1)

    def _restart(self, proxy: Proxy) -> None:
        try:
            proxy.start()
        except AssertionError as error:
            self._scene.ended_by_themselves.append(f"{proxy.name} did not start: {error}")
            if proxy.process.exit_code is not None:
                proxy.process.forget()
                proxy.start()

    # ------------------------------------------------------------------ brokers
    def _kill_broker(self, random: Random) -> None:
        broker = self._a_broker(random)
        fault = self._begin("kill", f"broker {broker}")
        self._scene.brokers_away.add(broker)
        self._scene.cluster.kill_broker(broker)
        time.sleep(random.choice((0.0, 1.0, 5.0)))
        self._start_broker(broker)
        self._end(fault)
        self._wait_in_sync()

    def _stop_broker(self, random: Random) -> None:
        broker, seconds = self._a_broker(random), _seconds(random)
        fault = self._begin("stop", f"broker {broker}", f"{seconds:.1f} s")
        self._scene.cluster.pause_broker(broker)
        self._scene.brokers_away.add(broker)
        time.sleep(seconds)
        self._scene.brokers_away.discard(broker)
        self._scene.cluster.resume_broker(broker)
        self._end(fault)
        self._wait_in_sync()

    def _roll_brokers(self, random: Random) -> None:
        for broker in random.sample(self._scene.cluster.broker_ids, len(self._scene.cluster.broker_ids)):
            fault = self._begin("roll", f"broker {broker}")
            self._scene.brokers_away.add(broker)
            self._scene.cluster.stop_broker(broker)
            self._start_broker(broker)
            self._end(fault)
            self._wait_in_sync()

    def _move_leaders(self, random: Random) -> None:
        fault = self._begin("leader_move", "topics")
        places = [
            (topic, number) for topic in self._scene.layout.topics for number in range(self._scene.layout.partitions)
        ]
        moved = random.sample(places, max(1, len(places) // 2))
        orders = {place: random.sample(range(3), 3) for place in moved}
        named = [{"topic": topic, "partition": number} for topic, number in moved]
        wanted = [{**one, "replicas": orders[place]} for one, place in zip(named, moved, strict=True)]
        with ZooKeeper(self._scene.cluster.zookeeper_address) as keeper:
            for node, partitions in (("reassign_partitions", wanted), ("preferred_replica_election", named)):
                path = f"/admin/{node}"
                if not keeper.exists(path):
                    keeper.create(path, json.dumps({"version": 1, "partitions": partitions}).encode())
                end = time.monotonic() + _ELECTION_SECONDS_MAX
                while keeper.exists(path) and time.monotonic() < end:
                    time.sleep(0.1)
        fault.detail = f"{len(moved)} partitions"
        self._end(fault)

    def _a_broker(self, random: Random) -> int:
        return random.choice(list(self._scene.cluster.broker_ids))

    def _start_broker(self, broker: int) -> None:
        self._scene.cluster.start_broker(broker)
        self._scene.brokers_away.discard(broker)

    def _wait_in_sync(self) -> None:
        """Another broker is hit only when all replicas are there again, else nothing could be written."""
        end = time.monotonic() + IN_SYNC_SECONDS_MAX
        layout, cluster = self._scene.layout, self._scene.cluster
        missing = [(topic, number) for topic in layout.topics for number in range(layout.partitions)]
        while missing and time.monotonic() < end and not self._stopping.is_set():
            with contextlib.suppress(OSError, ClusterError):
                missing = [
                    place for place in missing if len(cluster.in_sync_replicas(*place)) < len(cluster.broker_ids)
                ]
            time.sleep(0.2)

    # ------------------------------------------------------------------ Redis
    def _kill_redis(self, random: Random) -> None:
        redis = self._redis()
        fault = self._begin("kill", "Redis master")
        master = redis.master
        master.kill()
        time.sleep(random.choice((0.0, 1.0, 4.0)))
        master.start()
        self._end(fault)
        redis.replica.wait_in_sync()

    def _stop_redis(self, random: Random) -> None:
        seconds = _seconds(random)
        fault = self._begin("stop", "Redis master", f"{seconds:.1f} s")
        master: RedisNode = self._redis().master
        master.signal(signal.SIGSTOP)
        time.sleep(seconds)
        master.signal(signal.SIGCONT)
        self._end(fault)

    def _fail_over(self, random: Random) -> None:
        """The master dies or hangs, the replica takes its place; in one case of three without the last writes."""
        redis, relay = self._redis(), self._scene.relay
        hangs, loses = random.random() < 0.4, random.random() < 0.34
        fault = self._begin(
            "failover", "Redis", ("hangs" if hangs else "dies") + (", last writes lost" if loses else "")
        )
        old = redis.master
        if loses:
            relay.hold(REPLICATION_LINK, 1.0, random, 5)
            time.sleep(random.uniform(0.1, 1.5))
        old.signal(signal.SIGSTOP) if hangs else old.kill()
        time.sleep(0 if loses else random.choice((0.2, 1.0, 3.0)))
        redis.promote()
        relay.cut(REDIS_LINK, 1.0, random)
        relay.cut(REPLICATION_LINK, 1.0, random)
        self._end(fault)
        time.sleep(random.choice((0.5, 3.0)))
        if hangs:
            old.signal(signal.SIGCONT)
        redis.rejoin()

    def _switch_over(self, random: Random) -> None:
        redis, late_seconds = self._redis(), random.choice((0.0, 0.5, 3.0))
        fault = self._begin("switch_over", "Redis", f"the address follows after {late_seconds} s")
        redis.switch_over(late_seconds)
        self._scene.relay.cut(REDIS_LINK, 1.0, random)
        self._end(fault)
        redis.replica.wait_in_sync()

    def _redis(self) -> RedisPair:
        assert self._scene.redis is not None
        return self._scene.redis

    # ------------------------------------------------------------------ the record
    def _begin(self, kind: str, target: str, detail: str = "") -> Fault:
        fault = Fault(kind, target, now_ms(), 0, detail)
        self.faults.append(fault)
        return fault

    def _end(self, fault: Fault) -> None:
        fault.ended_ms = now_ms()


def _seconds(random: Random) -> float:
    """1 to 20 seconds, mostly short: a long one stops much of the load."""
    low, high = random.choices(((1.0, 3.0), (3.0, 8.0), (8.0, 20.0)), (5, 3, 2))[0]
    return random.uniform(low, high)


_Done = Callable[[Saboteur, Random], None]
_BROKER_KINDS: dict[str, tuple[int, _Done]] = {
    "broker_kill": (3, Saboteur._kill_broker),
    "broker_stop": (4, Saboteur._stop_broker),
    "broker_roll": (1, Saboteur._roll_brokers),
    "leader_move": (4, Saboteur._move_leaders),
}
_PROXY_KINDS: dict[str, tuple[int, _Done]] = {
    "proxy_kill": (6, Saboteur._kill_proxy),
    "proxy_stop": (5, Saboteur._stop_proxy),
    "proxy_roll": (2, Saboteur._roll_proxies),
    "redis_kill": (1, Saboteur._kill_redis),
    "redis_stop": (1, Saboteur._stop_redis),
    "redis_failover": (2, Saboteur._fail_over),
    "redis_switch_over": (1, Saboteur._switch_over),
}
_WORKER_KINDS: dict[str, tuple[int, _Done]] = {
    "worker_kill": (6, Saboteur._kill_worker),
    "worker_stop": (3, Saboteur._stop_worker),
}
_CONNECTION_KINDS = ("cut", "half_open", "hold", "lost_answer", "half_request", "late_delivery")
_STEERING_KINDS = ("steer",)
KINDS = (*_BROKER_KINDS, *_PROXY_KINDS, *_WORKER_KINDS, *_CONNECTION_KINDS, *_STEERING_KINDS)
