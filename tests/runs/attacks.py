"""One client that means harm, and a producer that is to notice nothing of it: ``python -m runs.attacks [NAMES]``.

A real 0.10.2.2, Redis and proxy for each attack. Five times alternately the producer works while all is quiet, and
while the attack lasts; newcomers, each with a connection and a producer id of its own, are timed next to it. Each
attack adds a line to ``benchmarks/results/attacks.jsonl``, with what was required and is not so in ``not_held``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import resident_bytes
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.proxies.supervised import Supervised

from .acceptance import pass_by
from .attackers import TOPIC as ATTACKED
from .results import append_result

VICTIM = "victim"
PAIRS = 5
SPELL_SECONDS = 8.0
FLOOD_SECONDS_MAX = 90.0
LOG_BYTES = 45_000_000
PAUSE_SECONDS = 0.005
RETRIABLE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS)
P99_RATIO_MAX = 1.5
P99_MORE_MS_MAX = 5.0
BACK_SECONDS_MAX = 5.0
RESIDENT_MORE_MAX = 20_000_000
SIGTERM_SECONDS_MAX = 25.0
NEWCOMER_SECONDS_MAX = 2.0
HUNG_NEWCOMER_SECONDS_MAX = 10.0
"""Of one that the kernel gave to a worker that hangs: it is replaced when it was silent for a lease."""
FIRST_ATTACK_SECONDS = 2.0
"""Before the SIGTERM that comes while the last attack lasts."""
_LOOK_SECONDS = 0.25
_ATTACKER_ENDS_SECONDS_MAX = 5.0
_WINDOW_SECONDS = 1.0
_PASSWORDS = {"alice": "hers", "idemproxy": "ours"}
_WITHOUT_EXPIRY = """
local found = {0}
for _, key in ipairs(redis.call('KEYS', '*')) do
    found[1] = found[1] + 1
    if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
end
return found"""


@dataclass(frozen=True, slots=True)
class Spell:
    """What the producer saw for a while. Milliseconds."""

    requests: int
    p50_ms: float
    p99_ms: float


def _spell(taken: Sequence[float]) -> Spell:
    inorder = sorted(taken)

    def at(share: float) -> float:
        return round(inorder[min(int(len(inorder) * share), len(inorder) - 1)] * 1000, 2)

    return Spell(len(inorder), at(0.5), at(0.99))


Connect = Callable[[], RawClient]


class Producer:
    """Sends one record after the other on a connection of its own."""

    def __init__(self, connect: Connect) -> None:
        self._client = connect()
        self._producer_id = self._client.new_producer_id()
        self._sequence = 0

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def is_served(self, seconds: float) -> bool:
        """Does its worker answer within this time? It is to be asked only where one stands still."""
        self._client.send(ApiKey.API_VERSIONS, 0, b"")
        served = not self._client.is_silent(seconds)
        if served:
            self._client.answer()
        return served

    def take_late_answer(self) -> None:
        """Of a worker that stood still and resumes."""
        self._client.answer()

    def work_for(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> Spell:
        """Produce for so long, or until this is so. What is refused for now is sent again, in the same time."""
        taken: list[float] = []
        end = time.monotonic() + seconds
        look_at = 0.0
        while not taken or time.monotonic() < end:
            if taken and time.monotonic() > look_at:
                look_at = time.monotonic() + _LOOK_SECONDS
                if is_over():
                    break
            records = batch([b"%d" % self._sequence], producer_id=self._producer_id, sequence=self._sequence)
            began = time.monotonic()
            while (answer := self._client.produce_one(VICTIM, 0, records)).error_code in RETRIABLE:
                time.sleep(PAUSE_SECONDS)
            taken.append(time.monotonic() - began)
            assert (answer.error_code, answer.base_offset) == (0, self._sequence), answer
            self._sequence += 1
            time.sleep(PAUSE_SECONDS)
        return _spell(taken)


class Newcomers:
    """One after the other connects, gets a producer id and has its first batch acknowledged. A thread."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._come)
        self.seconds: list[float] = []
        self.refused: Counter[str] = Counter()

    def __enter__(self) -> Newcomers:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _come(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            began = time.monotonic()
            while not self._is_served() and not self._stop.is_set():
                pass  # as a client does that was disconnected
            self.seconds.append(time.monotonic() - began)

    def _is_served(self) -> bool:
        try:
            with self._connect() as client:
                code, producer_id, _ = client.init_producer_id()
                if code == 0:
                    code = client.produce_one(VICTIM, 1, batch([b"new"], producer_id=producer_id)).error_code
        except OSError as error:
            self.refused[type(error).__name__] += 1
            return False
        if code:
            self.refused[f"error {code}"] += 1
        return code == 0


class Memory:
    """The most memory that the processes of a proxy had together. A thread."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self._proxy = proxy
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.most_bytes = 0

    def now(self) -> int:
        """Bytes of all of them."""
        found = 0
        for process in [self._proxy.pid, *self._proxy.workers]:
            with suppress(OSError, AssertionError):  # it ends
                found += resident_bytes(process)
        return found

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self.most_bytes = max(self.most_bytes, self.now())


class Attacker:
    """A process of ``runs.attackers``."""

    def __init__(self, kind: str, address: tuple[str, int], seconds: float, count: int = 0) -> None:
        command = [sys.executable, "-m", "runs.attackers", kind, address[0], str(address[1])]
        command += ["--seconds", str(seconds), "--count", str(count)]
        environment = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).resolve().parents[1])}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def is_over(self) -> bool:
        """Has it ended?"""
        return self._process.poll() is not None

    def end(self) -> Counter[str]:
        """End it; return what it was answered, nothing if it does not end by itself soon."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ATTACKER_ENDS_SECONDS_MAX)
        self._process.kill()
        said = self._process.communicate()[0].splitlines()
        return Counter(json.loads(said[-1])) if said else Counter()


@dataclass(frozen=True, slots=True)
class Scene:
    """Where an attack takes place. ``begin``: begins one that lasts for so many seconds at most."""

    proxy: ProxyProcess
    connect: Connect
    begin: Callable[[Producer, float], Attack]


class Attack:
    """One attack of a process of its own."""

    def __init__(self, attacker: Attacker) -> None:
        self._attacker = attacker

    def is_over(self) -> bool:
        """Has it ended by itself?"""
        return self._attacker.is_over()

    def end(self) -> Counter[str]:
        """End it."""
        return self._attacker.end()


class Freeze(Attack):
    """A worker that stands still, not that of the producer; over when it was replaced."""

    def __init__(self, proxy: Supervised, producer: Producer) -> None:
        self._proxy = proxy
        its, self._victim = proxy.workers
        os.kill(self._victim, signal.SIGSTOP)
        if not producer.is_served(1.0):
            os.kill(self._victim, signal.SIGCONT)
            producer.take_late_answer()
            self._victim = its
            os.kill(self._victim, signal.SIGSTOP)

    def is_over(self) -> bool:
        """Is another one in its place, which serves?"""
        workers = self._proxy.workers
        return len(workers) == 2 and self._victim not in workers and self._proxy.get("/readyz")[0] == 200

    def end(self) -> Counter[str]:
        """A supervisor that does not replace it leaves that to us: the run has to continue."""
        if self._victim in self._proxy.workers:
            os.kill(self._victim, signal.SIGKILL)
            return Counter({"never replaced": 1})
        return Counter({"replaced": 1})


# ---------------------------------------------------------------------- scenes
@contextmanager
def _plain(directory: Path, kind: str, count: int = 0) -> Iterator[Scene]:
    with LegacyCluster(directory / "kafka", auto_create_topics=False) as cluster:
        cluster.create_topic(VICTIM, 2)
        cluster.create_topic(ATTACKED, 1)
        pass_by(cluster.address(0), (ATTACKED, 0), LOG_BYTES)
        with ProxyProcess(directory / "proxy", cluster.address(0)) as proxy:
            yield Scene(
                proxy,
                lambda: RawClient(proxy.address),
                lambda _producer, seconds: Attack(Attacker(kind, proxy.address, seconds, count)),
            )


@contextmanager
def _workers(directory: Path) -> Iterator[Scene]:
    with LegacyCluster(directory / "kafka", auto_create_topics=False) as cluster:
        cluster.create_topic(VICTIM, 2)
        with Supervised(directory / "proxy", cluster.address(0)) as proxy:
            proxy.wait_until_ready()
            yield Scene(proxy, lambda: RawClient(proxy.address), lambda producer, _seconds: Freeze(proxy, producer))


@contextmanager
def _passing_through(directory: Path) -> Iterator[Scene]:
    with SaslCluster(directory / "kafka", _PASSWORDS, auto_create_topics=False) as cluster:
        cluster.create_topic(VICTIM, 2)
        cluster.allow(f"Topic:{VICTIM}", {name: ["Read", "Write", "Describe"] for name in _PASSWORDS})
        host, port = cluster.sasl_address(0)
        sasl = {"mechanism": "PLAIN", "username": "idemproxy", "password": _PASSWORDS["idemproxy"]}
        listener = {"authentication": "pass_through"}
        upstream = {"bootstrap": [f"{host}:{port}"], "sasl": sasl}
        with ConfiguredProxy(directory / "proxy", {"upstream": upstream}, listener=listener) as proxy:
            address = (HOST, proxy.address[1])

            def connect() -> RawClient:
                client = RawClient(address)
                client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
                token = f"\0alice\0{_PASSWORDS['alice']}".encode()
                if client.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token).error_code:
                    raise ConnectionRefusedError("the good password is refused")
                return client

            yield Scene(
                proxy,
                connect,
                lambda _producer, seconds: Attack(Attacker("wrong_passwords", address, seconds)),
            )


@dataclass(frozen=True, slots=True)
class Kind:
    """One attack. ``seconds``: how long it lasts, at most."""

    scene: Callable[[Path], Any]
    seconds: float = SPELL_SECONDS
    newcomer_seconds_max: float = NEWCOMER_SECONDS_MAX


KINDS = {
    "forged ids, five batches": Kind(lambda directory: _plain(directory, "five_forged")),
    "forged ids, 30000 batches": Kind(
        lambda directory: _plain(directory, "forged_flood", 30_000), seconds=FLOOD_SECONDS_MAX
    ),
    "new names": Kind(lambda directory: _plain(directory, "ever_new_names")),
    "frozen worker": Kind(_workers, seconds=FLOOD_SECONDS_MAX, newcomer_seconds_max=HUNG_NEWCOMER_SECONDS_MAX),
    "wrong passwords": Kind(_passing_through),
}


# ---------------------------------------------------------------------- one attack
@dataclass(slots=True)
class Found:
    """What was seen of one attack."""

    quiet: list[Spell] = field(default_factory=list)
    attacked: list[Spell] = field(default_factory=list)
    back_seconds: list[float] = field(default_factory=list)
    newcomer_seconds: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    resident_quiet_bytes: int = 0
    resident_most_bytes: int = 0
    keys: int = 0
    without_expiry: list[str] = field(default_factory=list)
    sigterm_seconds: float = 0.0

    @property
    def p99_allowed_ms(self) -> float:
        """Of the producer while it is attacked, the median of all spells."""
        quiet = statistics.median(spell.p99_ms for spell in self.quiet)
        return max(P99_RATIO_MAX * quiet, quiet + P99_MORE_MS_MAX)

    def not_held(self, kind: Kind) -> list[str]:
        """Return what was required and is not so."""
        attacked = statistics.median(spell.p99_ms for spell in self.attacked)
        back, new = max(self.back_seconds), max(self.newcomer_seconds)
        more = self.resident_most_bytes - self.resident_quiet_bytes
        said = {
            f"p99 {attacked:.1f} ms, allowed {self.p99_allowed_ms:.1f}": attacked <= self.p99_allowed_ms,
            f"back after {back:.1f} s, allowed {BACK_SECONDS_MAX:g}": back <= BACK_SECONDS_MAX,
            f"a newcomer waited {new:.1f} s, allowed {kind.newcomer_seconds_max:g}": new <= kind.newcomer_seconds_max,
            f"{more / 1e6:.0f} MB more, allowed {RESIDENT_MORE_MAX / 1e6:.0f}": more <= RESIDENT_MORE_MAX,
            f"{len(self.without_expiry)} keys in Redis without expiry": not self.without_expiry,
            f"SIGTERM took {self.sigterm_seconds:.1f} s, allowed {SIGTERM_SECONDS_MAX:g}": (
                self.sigterm_seconds <= SIGTERM_SECONDS_MAX
            ),
        }
        return [what for what, is_held in said.items() if not is_held]

    def line(self, name: str, kind: Kind) -> dict[str, object]:
        """Return what is kept of it."""

        def medians(spells: Sequence[Spell]) -> dict[str, float]:
            return {
                "requests": sum(spell.requests for spell in spells),
                "p50_ms": statistics.median(spell.p50_ms for spell in spells),
                "p99_ms": statistics.median(spell.p99_ms for spell in spells),
            }

        return {
            "attack": name,
            "quiet": medians(self.quiet),
            "attacked": medians(self.attacked),
            "back_seconds": round(max(self.back_seconds), 1),
            "newcomers": len(self.newcomer_seconds),
            "newcomer_seconds": round(max(self.newcomer_seconds), 2),
            "newcomers_refused": dict(self.refused),
            "attacker_was_answered": dict(self.answers),
            "resident_quiet_bytes": self.resident_quiet_bytes,
            "resident_most_bytes": self.resident_most_bytes,
            "keys_in_redis": self.keys,
            "keys_without_expiry": len(self.without_expiry),
            "some_without_expiry": self.without_expiry[:5],
            "sigterm_seconds": round(self.sigterm_seconds, 1),
            "load": round(os.getloadavg()[0], 1),
            "not_held": self.not_held(kind),
        }


def _keys(proxy: ProxyProcess) -> tuple[int, set[str]]:
    """Return how many keys Redis has, and those without expiry."""
    time.sleep(_WINDOW_SECONDS)  # an entry has none as long as its last batch is not committed
    found = proxy.redis("EVAL", _WITHOUT_EXPIRY, 0)
    assert isinstance(found, list)
    return int(found[0]), {key.decode(errors="replace") for key in found[1:]}


def _seconds_until_back(producer: Producer, p99_allowed_ms: float) -> float:
    """Produce until a second is as it is when all is quiet; return how long that took to come."""
    began = time.monotonic()
    while (since := time.monotonic() - began) < 4 * BACK_SECONDS_MAX:
        if producer.work_for(_WINDOW_SECONDS).p99_ms <= p99_allowed_ms:
            return since
    return since


def run(name: str, directory: Path, pairs: int) -> dict[str, object]:
    """Attack so many times; return the line."""
    kind, found = KINDS[name], Found()
    with ExitStack() as stack:
        scene: Scene = stack.enter_context(kind.scene(directory))
        producer = Producer(scene.connect)
        stack.callback(producer.close)
        with Newcomers(scene.connect):
            producer.work_for(SPELL_SECONDS / 2)  # warms up
        before = _keys(scene.proxy)[1]
        memory = stack.enter_context(Memory(scene.proxy))
        for _ in range(pairs):
            with Newcomers(scene.connect):
                found.quiet.append(producer.work_for(SPELL_SECONDS))
            found.resident_quiet_bytes = found.resident_quiet_bytes or memory.now()
            attack = scene.begin(producer, kind.seconds)
            with Newcomers(scene.connect) as newcomers:
                found.attacked.append(producer.work_for(kind.seconds + _WINDOW_SECONDS, attack.is_over))
                found.answers += attack.end()
            found.back_seconds.append(_seconds_until_back(producer, found.p99_allowed_ms))
            found.newcomer_seconds += newcomers.seconds
            found.refused += newcomers.refused
            print(name, found.quiet[-1], found.attacked[-1], f"back {found.back_seconds[-1]:.1f} s", flush=True)
        found.resident_most_bytes = memory.most_bytes
        found.keys, without = _keys(scene.proxy)
        found.without_expiry = sorted(without - before)
        attack = scene.begin(producer, kind.seconds)
        time.sleep(FIRST_ATTACK_SECONDS)
        memory.__exit__()
        began = time.monotonic()
        scene.proxy.stop()
        found.sigterm_seconds = time.monotonic() - began
        with suppress(AssertionError):
            attack.end()
    return found.line(name, kind)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and save; exit status 1 where something that is required does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="of a quiet and an attacked spell (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(KINDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    is_held = True
    for name in options.names or KINDS:
        with tempfile.TemporaryDirectory(prefix="attacks-") as directory:
            line = run(name, Path(directory), options.pairs)
        print(json.dumps(line, indent=2), flush=True)
        append_result("attacks", line)
        is_held = is_held and not line["not_held"]
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
