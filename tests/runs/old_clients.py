"""Every configuration of an old client in front of a real Kafka 4: produce with each codec, read in a group that starts
again, read alone, find offsets by time; a client of today reads the brokers' own copy.

``python -m runs.old_clients`` is ``make old-clients``: a line of JSON in benchmarks/results/old_clients.jsonl for each
configuration as soon as it is run, and exit status 1 unless all came out as they should. A run that was interrupted
resumes where it was, like ``runs.matrix``. A client that can not be had here has a line that says why (``not_run``).
``--direct 3.9.1`` runs them at such a broker without a proxy, to tell a client's own faults, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.brokers.kraft_cluster import NEWEST, KraftCluster
from testkit.real.clients.java_clients import JavaClientError
from testkit.real.clients.old_configurations import CONFIGURATIONS, OldConfiguration
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.old_client_trial import PARTITIONS, Trial

from .faulty_client import UNAVAILABLE
from .results import PRODUCT, RESULTS, append_result, rows_of

Line = dict[str, object]
RESULT = "old_clients"
RECORDS = 200
"""With each codec."""
BROKERS = 3
_ROOT = RESULTS.parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the configurations that are missing; return the exit status."""
    names = list(CONFIGURATIONS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", default=names, choices=names, metavar="CLIENT")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--again", action="store_true", help="run also what is in the results file")
    parser.add_argument("--direct", metavar="VERSION", help="at a broker of this version, without a proxy")
    options = parser.parse_args(arguments)
    known = rows_of(RESULT)
    done = set() if options.again or options.direct else _done(known, options.records, options.brokers)
    tried = {line["client"] for line in known}
    ordered = sorted((name for name in options.clients if name not in done), key=lambda name: name in tried)
    status = 0
    with tempfile.TemporaryDirectory(prefix="old-clients-") as folder:
        directory = Path(folder)
        with KraftCluster(
            directory / "kafka",
            version=options.direct or NEWEST,
            brokers=options.brokers,
            auto_create_topics=False,
        ) as cluster:
            for name in ordered:
                configuration = CONFIGURATIONS[name]
                figures, complaints = run_one(
                    configuration, cluster, directory / name, options.records, direct=bool(options.direct)
                )
                if not options.direct:
                    append_result(RESULT, {**figures, "complaints": complaints})
                print(json.dumps(figures), flush=True)
                if complaints:
                    status = 1
                    print(f"{name}:", *complaints, sep="\n", file=sys.stderr, flush=True)
    return status


def run_one(
    configuration: OldConfiguration, cluster: LegacyCluster, directory: Path, records: int, *, direct: bool
) -> tuple[Line, list[str]]:
    """Return the line of a configuration, and what is not as it should be."""
    directory.mkdir(parents=True)
    begun = time.monotonic()
    admin = f"{HOST}:{free_ports(1)[0]}"
    with ExitStack() as stack:
        bootstrap = cluster.bootstrap
        if not direct:
            options = ("--admin-bind", admin)
            proxy = stack.enter_context(ProxyProcess(directory / "proxy", cluster.address(0), options=options))
            bootstrap = "{}:{}".format(*proxy.address)
        topic = fresh_topic(cluster, PARTITIONS)
        trial = Trial(configuration, bootstrap, cluster.bootstrap, topic, directory, records)
        if direct:
            trial.newer_codec = "gzip"  # old clients get no zstd of a broker
        line: Line = {"client": configuration.name, "broker": cluster.version, "records": records}
        line["brokers"] = len(cluster.broker_ids)
        try:
            trial.run(stack.enter_context(ChildProcesses()))
        except UNAVAILABLE as error:
            return {**line, "not_run": _without_places(" ".join(str(error).split()), directory)}, []
        except (AssertionError, JavaClientError) as error:
            trial.complaints.append(f"{type(error).__name__}: {error}")
        line |= {"done": trial.done, "seconds": round(time.monotonic() - begun)}
        if not direct:
            line["raised"] = raised = _raised(admin)
            if bool(raised) != configuration.is_rewritten:
                trial.complaints.append(f"rewritten: {raised}")
    return line, [_without_places(one, directory) for one in trial.complaints]


def _without_places(text: str, directory: Path) -> str:
    """What programs say names files of this machine; the results are for everybody."""
    for place, name in ((directory, ""), (_ROOT, ""), (Path(sys.prefix), "python"), (Path.home(), "~")):
        text = text.replace(f"{place}/", f"{name}/" if name else "")
    return text


def _raised(admin: str) -> dict[str, int]:
    """How many requests of each dropped version the proxy has seen."""
    with urllib.request.urlopen(f"http://{admin}/api/v1/old_clients", timeout=20) as answer:
        told: dict[str, Any] = json.load(answer)
    found: dict[str, int] = {}
    for row in told["clients"]:
        for one in row["requests"]:
            title = f"{one['api']} {one['version']}"
            found[title] = found.get(title, 0) + one["requests"]
    return dict(sorted(found.items()))


def _done(known: Sequence[Mapping[str, Any]], records: int, brokers: int) -> set[str]:
    """The configurations that need not be run again."""
    return {
        line["client"]
        for line in known
        if not line["complaints"]
        and "not_run" not in line
        and line["records"] >= records
        and line["brokers"] == brokers
        if _is_of_this_product(line)
    }


def _is_of_this_product(line: Mapping[str, Any]) -> bool:
    """Is all that is shipped as it was in that run? Not known of a commit that is not here."""
    compared = ["git", "diff", "--quiet", str(line["commit"]), "--", *PRODUCT]
    return not line["changed_since"] and subprocess.run(compared, cwd=RESULTS, capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
