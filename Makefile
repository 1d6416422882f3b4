# Everything a contributor runs. Needs make, Python 3.11 or newer, and pip; no git, no root.
#
#   make demo     a night's work in half a minute
#   make check    format, lint, types on three systems, layers, quick tests; under a minute
#   make test     everything, the short torture included
#
# Tests whose servers or tools are missing are skipped with a message; with CI=true they fail.

PYTHON ?= python3
VENV   ?= .venv
PARALLEL ?= 2
# Most tests wait: for a disk, a server, a lease that expires. Two test processes per core halve the time of the suites.
CROWD ?= $(shell expr $(PARALLEL) \* 2)

# Without bytecode files every test process, and every child that a test starts, would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

BIN   := $(VENV)/bin
PLAIN_STAMP := $(VENV)/.installed-plain
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
PYTEST := $(BIN)/python -m pytest
SERVED := $(BIN)/python tests/with_servers.py
# Failed tests run once more, alone. Those that pass then are named at the end of make test.
FLAKY := $(VENV)/.flaky
TWICE := $(SERVED) $(BIN)/python tests/run_again.py --remember $(FLAKY) --dist worksteal
# These suites must exist; make test also runs everything else in tests/.
SUITES := tests/unit tests/stores tests/contract tests/property tests/simulation tests/face tests/cli tests/worker \
    tests/server tests/acceptance tests/on_servers tests/demo
# Quick tests use one process, or a few short-lived ones, and no server. Only make test runs tests that start many
# processes, wait for leases to expire, drive a whole screen or compute for seconds, and the examples of the docs.
QUICK := tests/unit tests/stores tests/face tests/cli --ignore-glob='*/test_*processes.py' \
    --ignore-glob='*/test_locks.py' --ignore=tests/unit/test_readme.py \
    --ignore=tests/cli/test_worker.py --ignore=tests/stores/postgres --ignore=tests/stores/redis \
    --ignore=tests/cli/test_top_screens.py --ignore=tests/cli/test_top.py --ignore=tests/cli/test_sweep.py \
    --ignore=tests/cli/test_sagas.py --ignore=tests/face/test_waits.py --ignore=tests/unit/test_worker_parts.py \
    --ignore=tests/unit/test_webhook.py --ignore=tests/unit/test_eta.py --ignore=tests/unit/test_run_again.py \
    --ignore=tests/stores/test_sqlite_fast_path.py --ignore=tests/stores/directory/test_failing_disk.py \
    --ignore=tests/stores/directory/test_planted_faults.py --ignore=tests/unit/test_wats_client.py \
    --deselect=tests/unit/test_docs.py::test_what_a_page_shows_runs_and_prints_what_it_says \
    --deselect=tests/face/test_limiting.py::test_ten_thousand_at_once

.DEFAULT_GOAL := help
.PHONY: help demo test servers check static unit bench bench-compare torture docs clean

help:
	@echo "make demo           a night's work in half a minute: a sweep, an urgent job, a worker that is killed"
	@echo "make check          format, lint, types, layers and quick tests: under a minute"
	@echo "make test           everything: check, docs, torture in its short form, and every suite"
	@echo "make docs           run the examples in README and docs, follow their links"
	@echo "make torture        the long torture: processes killed, stopped and starved"
	@echo "make bench          measure speed; writes benchmarks/results/"
	@echo "make bench-compare  measure again and fail on a loss of speed"

# -- the environment -------------------------------------------------------------------------------------------------

# Debian without python3-venv cannot create an environment with pip: then the system's pip installs it.
# The environment is updated only when pyproject.toml or constraints.txt changes.
$(PLAIN_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Daybreak needs Python 3.11 or newer; $(PYTHON) is older. Name another: make PYTHON=python3.12"; exit 1; }
	@echo "== environment: $(VENV), with the versions of constraints.txt"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --clear --without-pip $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install --quiet pip
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

$(STAMP): $(PLAIN_STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e . --group dev
	@touch $@

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e . --group bench
	@touch $@

demo: $(PLAIN_STAMP)
	@$(BIN)/daybreak demo

# -- checks ----------------------------------------------------------------------------------------------------------

# One mypy cache per system: with a shared one, each run would discard the cache of the last. So the runs can be parallel.
static: $(STAMP)
	@echo "== format and lint"
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@echo "== types on linux, win32 and darwin"
	@printf '%s\n' linux win32 darwin | \
	    xargs -P $(PARALLEL) -I SYSTEM $(BIN)/mypy --platform SYSTEM --cache-dir .mypy_cache/SYSTEM
	@echo "== layers"
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

unit: $(STAMP)
	@echo "== quick tests"
	@$(PYTEST) -n $(CROWD) --dist worksteal $(QUICK)

check: static unit

# Install PostgreSQL, Redis, NATS, RabbitMQ, PgBouncer, Prometheus, Chromium, espeak-ng and bubblewrap if we are root. Tests that miss one are
# skipped with a message, or fail in CI.
servers:
	@missing=""; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || missing="$$missing postgresql"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	command -v nats-server >/dev/null || test -x /usr/sbin/nats-server || missing="$$missing nats-server"; \
	test -x /usr/lib/rabbitmq/bin/rabbitmq-server || missing="$$missing rabbitmq-server"; \
	command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer || missing="$$missing pgbouncer"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v espeak-ng >/dev/null || missing="$$missing espeak-ng"; \
	command -v bwrap >/dev/null || missing="$$missing bubblewrap"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== servers:$$missing"; \
	    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install $$missing; } >/dev/null 2>&1 || \
	    echo "!! could not be installed:$$missing"; \
	elif [ -n "$$missing" ]; then echo "!! not installed:$$missing; as root: apt-get install$$missing"; fi

# $(call found,folder): continue if the folder has tests; otherwise print a message, and fail in CI.
define found
if ! ls $(1)/test_*.py >/dev/null 2>&1; then \
    echo "!! SKIPPED: $(1) holds no tests yet"; test "$$CI" != true || exit 1; \
else
endef

# Only the long torture measures time, so the short form can run in parallel. The other suites run last, so that their
# count is the last line.
test: static servers
	@rm -f $(FLAKY)
	@echo "== torture, short form, $(PARALLEL) at a time"
	@$(call found,tests/torture) $(TWICE) -n $(PARALLEL) tests/torture; fi
	@for suite in $(SUITES); do $(call found,$$suite) :; fi; done
	@echo "== all other suites, with the examples of README and docs, $(CROWD) at a time"
	@$(TWICE) -n $(CROWD) tests --ignore=tests/torture

docs: $(STAMP)
	@echo "== examples and links of README and docs"
	@$(PYTEST) -n $(PARALLEL) tests/unit/test_docs.py tests/unit/test_readme.py tests/demo/test_examples.py

# -- longer ----------------------------------------------------------------------------------------------------------

torture: $(STAMP)
	@echo "== torture, long form"
	@$(call found,tests/torture) DAYBREAK_TORTURE=long $(SERVED) $(PYTEST) tests/torture; fi

bench: $(BENCH_STAMP)
	@test -f benchmarks/__main__.py || { echo "!! the benchmarks are not there yet"; exit 1; }
	$(BIN)/python -m benchmarks prepare
	$(BIN)/python -m benchmarks

bench-compare: $(BENCH_STAMP)
	@test -f benchmarks/__main__.py || { echo "!! the benchmarks are not there yet"; exit 1; }
	$(BIN)/python -m benchmarks compare

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
