# make run         a working copilot with a page to try it, no key needed
# make test        the checks, and the tests that fit into ten minutes (EXT=planner: one extension)
# make test-quick  the tests of the core, in a minute and a half
# make test-all    every test: all clients, pages and stores, kills, fuzzing, the site, the wheel

PYTHON ?= python3
BIN := .venv/bin
HOST ?= 127.0.0.1
PORT ?= 8000
# a third of a worker's time is waiting; each costs half a minute and a gigabyte for the imports
WORKERS ?= 3
# hundreds of processes start in the tests: each would compile the package anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup system run test test-quick test-all suite check style types packages attack format docs docs-site protos lock wheel bench bench-streaming bench-agui bench-threads bench-adapters bench-knowledge bench-planner bench-telemetry bench-analyst bench-scale bench-simulation clean

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*##/ —/' | awk -F' — ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: .venv/ready-dev  ## Make .venv with everything that tests and benchmarks need

# pip knows package indexes of its own settings, of which uv has never heard
install = $(BIN)/uv pip install --quiet --no-cache --python $(BIN)/python --no-deps --requirement $(1) 2>.venv/uv.log \
	|| $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --requirement $(1)

# what serves, and no more
.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "copilot-runtime needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	@echo 'Installing, about a minute'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --constraint requirements.lock uv
	@$(call install,requirements.lock)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv/ready-dev: .venv/ready requirements-dev.lock
	@$(call install,requirements-dev.lock)
	@touch $@

system:  ## Install Chromium and nginx for the tests, where we may
	@scripts/system

run: export COPILOT_CONFIG ?= $(firstword $(wildcard copilot.yml) examples/demo.yml)
run: .venv/ready  ## Serve the demo at http://127.0.0.1:8000 (HOST=, PORT=)
	$(BIN)/copilot-runtime serve --host $(HOST) --port $(PORT)

# a test that fails runs again, alone: the summary lists it as unstable if it passes then
PYTEST = $(BIN)/pytest --numprocesses=$(WORKERS) --max-worker-restart=0 --dist=loadfile --no-loadscope-reorder --rerun-failed

ifdef EXT
test: setup system packages
	$(PYTEST) -m "not nightly" $(ARGS) tests/extensions/$(EXT)

test-all: setup system packages
	$(PYTEST) $(ARGS) tests/extensions/$(EXT)
else
test: setup system  ## Run the checks and the tests of ten minutes (EXT=planner: one extension's tests)
	@$(MAKE) --no-print-directory --jobs=4 style packages types .venv/ready-tests
	@$(MAKE) --no-print-directory suite

# a process is killed this often in each test of kills
test-all: export KILLS ?= 20
test-all: WORKERS = 4
test-all: setup system  ## Run every check and every test, as each night and before a release
	@$(MAKE) --no-print-directory --jobs=4 style packages types .venv/ready-tests
	$(PYTEST) $(ARGS)
endif

suite:
	$(PYTEST) -m "not nightly" $(ARGS)

# each worker would compile all tests at once, and what they import
.venv/ready-tests: .venv/ready-dev $(shell find copilot_runtime tests -name '*.py')
	@$(BIN)/pytest -m "not nightly" --collect-only --quiet --quiet > .venv/collected.log || { cat .venv/collected.log; exit 1; }
	@touch $@

test-quick: setup  ## Run the tests of the core, without browsers, npm and servers in other processes
	$(PYTEST) -m quick $(ARGS)

check: style types  ## Check format, style and types

style: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/pyright

packages: setup  ## Install the npm packages of the tests, and build the pages of the examples
	$(BIN)/python -m tests.prepare

# as many deaths as SIZE, 25 times as many inputs, and all tests of limits, secrets and rights
SIZE ?= 600
KILL = $(BIN)/python -m tests.extensions.cluster.kills --count
attack: setup system  ## Attack it, as SECURITY.md says (SIZE=12000 takes half a day)
	$(KILL) $$(($(SIZE) * 7 / 12))
	$(KILL) $$(($(SIZE) / 5)) --store postgres --carrier redis
	$(KILL) $$(($(SIZE) / 5)) --store postgres --carrier postgres
	$(KILL) $$(($(SIZE) / 300 + 1)) --outage partition --carrier postgres
	$(BIN)/python -m tests.fuzz.analyst_sql --count $$(($(SIZE) * 3))
	$(BIN)/python -m tests.extensions.access.matrix --full
	FUZZ=$$(($(SIZE) * 22)) KILLS=$$((20 + $(SIZE) / 60)) $(PYTEST) -rP tests/fuzz/test_[fg]*.py tests/test_stalls.py \
		tests/extensions/test_budgets.py tests/extensions/guardrails tests/extensions/knowledge/policies \
		tests/extensions/operations/test_secrets.py tests/extensions/planner/test_takeover.py \
		tests/extensions/analyst/sql tests/extensions/analyst/engine/test_sandbox.py tests/extensions/analyst/http/test_two_users.py \
		$(wildcard tests/extensions/*/test_*hostile.py tests/extensions/*/*/test_*hostile*.py)

format: setup  ## Format the code and repair what can be repaired
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup  ## Write anew what is generated: schema.graphql, parts of the pages and copilot.example.yml
	$(BIN)/copilot-runtime develop schema > schema.graphql
	$(BIN)/copilot-runtime develop schema --knowledge > schema.knowledge.graphql
	$(BIN)/python -m tests.documents

docs-site: setup  ## Build the site of the documents into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

protos: setup  ## Write anew what is generated of our .proto files
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. copilot_runtime/extensions/grpc/protos/*.proto

lock: .venv/ready  ## Choose versions anew
	scripts/lock

wheel: setup  ## Build the wheel into dist/
	$(BIN)/python -m hatchling build -t wheel

bench: bench-streaming bench-agui bench-threads bench-adapters bench-knowledge bench-planner bench-telemetry bench-analyst bench-scale  ## Run all benchmarks

bench-streaming: setup  ## Measure streaming beside the Node runtime 1.10.6 (ARGS=--quick)
	$(BIN)/python -m benchmarks.streaming.runner $(ARGS)

bench-agui: setup  ## Measure AG-UI beside the Node runtime 1.74 and pydantic-ai (ARGS=--quick)
	$(BIN)/python -m benchmarks.agui.runner $(ARGS)

bench-threads: setup  ## Measure the stores of threads (ARGS=--quick)
	$(BIN)/python -m benchmarks.threads $(ARGS)

bench-adapters: setup  ## Measure the adapters beside the SDKs of their vendors (ARGS=--quick)
	$(BIN)/python -m benchmarks.adapters $(ARGS)

bench-knowledge: setup  ## Measure knowledge beside numpy and faiss (ARGS=--quick)
	$(BIN)/python -m benchmarks.knowledge $(ARGS)

bench-planner: setup  ## Measure the planner and assistants beside LangGraph (ARGS=--quick)
	$(BIN)/python -m benchmarks.planner $(ARGS)

bench-telemetry: setup  ## Measure the stores of traces (ARGS=--quick)
	$(BIN)/python -m benchmarks.telemetry $(ARGS)

bench-analyst: setup  ## Measure questions about data beside LangChain's SQL toolkit (ARGS=--quick)
	$(BIN)/python -m benchmarks.analyst $(ARGS)

bench-scale: setup  ## Measure several processes (ARGS="--cases workers", or --quick)
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-simulation: setup  ## Say what breaks first at 100 machines and a million open threads
	$(BIN)/python -m benchmarks.scale.simulation $(ARGS)

clean:  ## Remove what was made
	rm -rf .venv dist .pytest_cache .ruff_cache .hypothesis .copilot examples/*/node_modules examples/*/dist tests/conformance/*/node_modules tests/adapters/*/node_modules benchmarks/*/targets/*/node_modules benchmarks/*/targets/*/.venv
