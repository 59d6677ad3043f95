# Every task of the project. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The interpreter that makes the environment; give another with `make PYTHON=python3.12 …`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What goes into `make test`: all of tests/ unless TESTS says otherwise; WORKERS is the number of processes.
TESTS ?= tests
WORKERS ?= auto
# The room that `make quick` and `make test-room` are about, as it is called below src/penstock; `make quick` takes all.
ROOM ?=
SCHEDULES ?= 1000000
# Campaigns keep a record in bench/results/campaigns, of which docs/reference/campaigns.md is made, pass or fail.
# How often `make kill-campaign` kills the agent and the node.
AGENT_KILLS ?= 88
NODE_KILLS ?= 12
# How often `make pipeline-kills` kills a process that the pipeline needs.
PIPELINE_KILLS ?= 100
# How long `make soak` runs.
SOAK_MINUTES ?= 30
# How many rounds of random schema changes `make ddl-matrix` plays.
ROUNDS ?= 10

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The editable package has its kernels beside their source; nothing may be written into a read-only cache elsewhere.
export PYTHONUNBUFFERED := 1

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml setup.py $(wildcard src/penstock/*/_*.py src/penstock/*/*/_*.py src/penstock/*/*/*/_*.py)
	@scripts/check-python $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from penstock.system import kernels as k; print(f"penstock: {k.complaint()}. {k.REMEDY}") if k.complaint() else None' >&2
	@touch $@

.PHONY: install
install: $(STAMP) ## Create .venv from the lock file and install penstock into it

.PHONY: run
run: install ## Install, then run the demo: a small cluster, its change logs, Spark, Delta tables, a live view
	@scripts/prepare-run
	@$(BIN)/penstock demo

.PHONY: test
test: install ## Run every test (TESTS=path picks some, WORKERS=n sets the processes)
	@scripts/prepare-tests $(BIN)/python
	PATH="$(CURDIR)/.cache/go/bin:$$PATH" $(BIN)/python -m pytest --numprocesses $(WORKERS) --durations 20 --durations-min 1 $(TESTS)

.PHONY: quick
quick: install ## Run the quick tests of every room: no server, no Java, no Spark (ROOM=log picks a room)
	$(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) --durations 20 --durations-min 0.5 --quick \
		$(if $(ROOM),tests/unit/$(ROOM),tests/unit tests/contract tests/property)

.PHONY: test-room
test-room: install ## Run all unit tests of one room, for example ROOM=log
	@test -n "$(ROOM)" && test -d "tests/unit/$(ROOM)" || { echo "ROOM is one of: $$(cd tests/unit && echo */)" >&2; exit 1; }
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations 20 --durations-min 1 tests/unit/$(ROOM)

.PHONY: test-cassandra
test-cassandra: TESTS := tests/integration/cassandra tests/integration/test_commit_log_writer_referee.py
test-cassandra: test ## Run only the tests against real Cassandra (they are part of `make test`)

.PHONY: check
check: install ## Lint, format check, strict types, layers, house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest --quiet tests/unit/test_tidy.py

.PHONY: format
format: install ## Format the code and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: bench
bench: install ## Measure speed against the peers, in one run (Kafka's needs Java 17 and Maven)
	@scripts/check-java
	$(BIN)/python -m bench

.PHONY: fuzz
fuzz: install ## Feed the decoders millions of damaged inputs (also part of `make test`)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations 10 tests/property/test_decoders_fuzzed.py \
		tests/property/test_mutations_fuzzed.py

.PHONY: crash-campaign
crash-campaign: install ## Crash the log a million times; SCHEDULES=n sets how often
	PENSTOCK_CAMPAIGN="make crash-campaign SCHEDULES=$(SCHEDULES)" PENSTOCK_SCHEDULES=$(SCHEDULES) $(BIN)/python -m pytest --numprocesses $(WORKERS) --timeout 0 \
		tests/simulation/test_log_crashes.py -k campaign || failed=1; \
		$(BIN)/python scripts/campaigns_page.py --write; exit $${failed:-0}

.PHONY: kill-campaign
kill-campaign: install ## Kill the agent and real Cassandra nodes under load; AGENT_KILLS=n NODE_KILLS=n set how often
	PENSTOCK_CAMPAIGN="make kill-campaign AGENT_KILLS=$(AGENT_KILLS) NODE_KILLS=$(NODE_KILLS)" \
		PENSTOCK_AGENT_KILLS=$(AGENT_KILLS) PENSTOCK_NODE_KILLS=$(NODE_KILLS) $(BIN)/python -m pytest --timeout 0 -s \
		tests/integration/cassandra/test_kills.py || failed=1; \
		$(BIN)/python scripts/campaigns_page.py --write; exit $${failed:-0}

.PHONY: pipeline-kills
pipeline-kills: install ## Kill driver, Spark workers, Kafka broker and search node under load; PIPELINE_KILLS=n sets how often
	@scripts/check-java
	PENSTOCK_CAMPAIGN="make pipeline-kills PIPELINE_KILLS=$(PIPELINE_KILLS)" PENSTOCK_PIPELINE_KILLS=$(PIPELINE_KILLS) \
		$(BIN)/python -m pytest --timeout 0 -s tests/integration/pipeline/test_kills.py || failed=1; \
		$(BIN)/python scripts/campaigns_page.py --write; exit $${failed:-0}

.PHONY: soak
soak: install ## Run agents for half an hour under load, floods, slow readers and restarts; SOAK_MINUTES=n sets how long
	PENSTOCK_CAMPAIGN="make soak SOAK_MINUTES=$(SOAK_MINUTES)" PENSTOCK_SOAK_MINUTES=$(SOAK_MINUTES) \
		$(BIN)/python -m pytest --timeout 0 -s tests/integration/test_soak.py || failed=1; \
		$(BIN)/python scripts/campaigns_page.py --write; exit $${failed:-0}

.PHONY: ddl-matrix
ddl-matrix: install ## Change schemas at random on real nodes and compare Delta with SELECT JSON; ROUNDS=n sets how often
	@scripts/check-java
	PENSTOCK_DDL_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest --timeout 0 -s tests/integration/cassandra/test_ddl_matrix.py

.PHONY: docs
docs: install ## Make the generated pages and build the documentation into site/
	$(BIN)/python scripts/settings_page.py --write
	$(BIN)/python scripts/debezium_page.py --write
	$(BIN)/python scripts/metrics_page.py --write
	$(BIN)/python scripts/campaigns_page.py --write
	$(BIN)/python scripts/errors_page.py --write
	$(BIN)/python scripts/build_site.py site

.PHONY: java
java: ## Say whether Java 17 is here, or how to install it (for real Cassandra nodes, and the benchmarks)
	@scripts/check-java

.PHONY: test-lowest
test-lowest: install ## Run tests with the lowest versions that pyproject.toml declares, and write them down
	@scripts/versions lowest $(BIN)/python

.PHONY: test-newest
test-newest: install ## Run the same tests with the newest versions that pyproject.toml allows, resolved anew
	@scripts/versions newest $(BIN)/python

.PHONY: test-drivers
test-drivers: install ## Run tests on a real Cassandra node with each of the two Python drivers
	@scripts/versions drivers $(BIN)/python

.PHONY: audit
audit: ## Ask an advisory database about the versions in requirements.lock
	@scripts/audit $(PYTHON)

.PHONY: wheel
wheel: ## Build a wheel and an sdist into dist/, install both elsewhere and start them
	@scripts/check-python $(PYTHON)
	@scripts/wheel $(PYTHON)

.PHONY: lock
lock: ## Resolve the dependencies again and write requirements.lock
	@scripts/lock $(PYTHON)

.PHONY: clean
clean: ## Remove everything that was made: .venv, builds, caches, documentation
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .cache
	find src -name '*.so' -delete
	find src -name '*.c' -delete
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
