"""examples/kv_store.py for a long time: leaders that are killed or stand still, by two proxies that are killed, and a
history that an existing checker looks at.

``python -m runs.kv_store`` is ``make kv-store``: a line of JSON of what was done, and what the checker says.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from random import Random

from yaml import safe_dump, safe_load

from testkit.real.brokers.kraft_cluster import cluster_class
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.scenes.kv_store import Nodes, Users, check, checker_program, kill_leaders, wait_until_served

from .results import append_result

_TOPIC, _SHARDS, _NODES, _USERS, _KEYS = "kv-long", 4, 3, 8, 40
_EVERY_SECONDS = 6.0
_CHECK_SECONDS_MAX = 900


def main() -> None:
    """Run it, judge it, write the line."""
    parser = argparse.ArgumentParser(prog="make kv-store", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--broker", default="0.10.2.2", help="the release of Kafka (default: %(default)s)")
    parser.add_argument("--settings", default="{}", help="of the proxies, in YAML, beside topics.conditional")
    given = parser.parse_args()
    checker_program()
    random = Random(given.seed)
    settings = safe_dump({"topics": {"conditional": ["kv-*"]}, **safe_load(given.settings)})
    with (
        tempfile.TemporaryDirectory() as name,
        cluster_class(given.broker)(directory := Path(name), version=given.broker) as cluster,
    ):
        cluster.create_topic(_TOPIC, _SHARDS)
        with TwoProxies(directory, cluster, settings=settings) as pair:
            bootstrap = ",".join("{}:{}".format(*address) for address in pair.addresses)
            with Nodes(directory, bootstrap, _TOPIC, _SHARDS, _NODES) as nodes:
                users = Users(nodes, _SHARDS, _USERS, _KEYS, seed=given.seed)
                users.start()
                wait_until_served(users, 120.0)
                began = time.monotonic()
                kills = stops = proxy_kills = 0
                while (left := given.seconds - (time.monotonic() - began)) > 0:
                    killed, stopped = kill_leaders(nodes, users, random, seconds=min(left, 60.0), every=_EVERY_SECONDS)
                    kills, stops = kills + killed, stops + stopped
                    proxy = random.choice(pair.proxies)
                    proxy.kill()
                    proxy.start()
                    proxy_kills += 1
                wait_until_served(users, 120.0)
                users.finish()
            seconds = time.monotonic() - began
            errors = pair.errors_of_ours()
        history = directory / "history.jsonl"
        users.write(history)
        said = check(history, _CHECK_SECONDS_MAX)
    assert errors == [], errors
    figures = {
        "seed": given.seed,
        "broker": given.broker,
        "settings": given.settings,
        "seconds": round(seconds),
        "nodes": _NODES,
        "shards": _SHARDS,
        "operations": len(users.history),
        "told": users.told,
        "leaders_killed": kills,
        "leaders_stopped": stops,
        "proxies_killed": proxy_kills,
        "checker": said,
    }
    print(figures)
    print(append_result("kv_store", figures))


if __name__ == "__main__":
    main()
