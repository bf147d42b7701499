# Everything a developer does with Kron. `make` alone lists the targets.
# The environment (.venv) and all caches (.cache) stay inside the project; both are git-ignored.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
CODE := $(wildcard src tests bench tools examples)
# Two more than two cores: many tests wait for processes and databases.
WORKERS ?= 4
# Most slow tests wait.
SLOW_WORKERS ?= 4
ARGS ?=
T ?=

export UV_COMPILE_BYTECODE := 1
# Without compiled files, every worker and every process a test starts compiles the source again.
unexport PYTHONDONTWRITEBYTECODE
# Nothing is written to the home directory or to the system's temporary folder.
export UV_CACHE_DIR ?= $(CURDIR)/.cache/uv
export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/.cache/hypothesis
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export TMPDIR := $(CURDIR)/.cache/tmp

# Workers take neighbouring tests, so that a module's server is started once.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
SLOWEST := --durations=25 --durations-min=1
FAST := not slow
SAY := printf '[kron] %s\n'
LOCKED := --quiet --constraint constraints.txt --build-constraint constraints.txt
HASHED := --constraint hashes.txt --build-constraint hashes.txt
# uv installs in seconds, and checks the hash of every file; where it cannot reach a package index that pip is
# set up for, pip does the work. pip takes no hashes beside an editable package, so it does none after a mismatch.
define install
@$(SAY) "installing $(1) ..."
@$(BIN)/uv pip install $(LOCKED) $(HASHED) $(2) 2> .cache/tmp/uv.log || { \
	cat .cache/tmp/uv.log >&2; \
	if grep -q 'Hash mismatch' .cache/tmp/uv.log; then exit 1; fi; \
	$(SAY) "uv could not install; trying pip (slower, without hashes) ..."; \
	$(BIN)/python -m pip install $(LOCKED) $(2); }
@touch $@
endef

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

.PHONY: run
run: $(VENV)/.run .cache/tmp ## serve a demo with its pages until Ctrl-C (ARGS="--port 8081")
	@$(BIN)/kron serve --demo $(ARGS)

.PHONY: tour
tour: $(VENV)/.run .cache/tmp ## take a tour of the command line
	@$(BIN)/python examples/tour.py $(ARGS)

.PHONY: test
test: $(VENV)/.dev .cache/tmp ## run the fast tests, about three minutes (T=tests/core for all tests there, ARGS=... for pytest)
	@$(SAY) "running $(if $(T),all tests in $(T),the fast tests) on $(WORKERS) workers ..."
	@$(PYTEST) $(SLOWEST) $(if $(T),,-m "$(FAST)" --hypothesis-profile=fast) $(ARGS) $(T)

.PHONY: test-all
# Its second half runs all examples of the properties, so the first one runs none.
test-all: FAST := not slow and not hypothesis
test-all: test ## run every test: the fast ones, then the slow ones and all examples of the properties
ifeq ($(T),)
	@$(SAY) "running the slow tests and all examples of the properties on $(SLOW_WORKERS) workers ..."
	@$(PYTEST) -n $(SLOW_WORKERS) $(SLOWEST) -m "slow or hypothesis" --hypothesis-profile=all $(ARGS)
endif

.PHONY: test-cluster
test-cluster: $(VENV)/.dev .cache/tmp ## run the operator against a real cluster (KRON_TEST_KUBECONFIG=...); it needs no nodes
	@test -n "$$KRON_TEST_KUBECONFIG" || { $(SAY) "set KRON_TEST_KUBECONFIG to the kubeconfig of a cluster"; exit 2; }
	@$(BIN)/python -m pytest -n 0 $(ARGS) tests/kubernetes/test_cluster.py

.PHONY: check
check: $(VENV)/.dev .cache/tmp ## check formatting, lint, types, import layers, shape, dependencies and documentation (AUDIT=--require: fail if no advisory service answers)
	@$(SAY) "formatting (ruff format)"
	@$(BIN)/ruff format --check --quiet --diff .
	@$(SAY) "lint (ruff check)"
	@$(BIN)/ruff check --quiet .
	@$(SAY) "types (mypy --strict): $(CODE)"
	@$(BIN)/mypy --no-error-summary $(CODE)
	@$(SAY) "layers (import-linter)"
	@$(BIN)/lint-imports --cache-dir .cache/import-linter
	@$(SAY) "shape of the source (figures)"
	@figures=$$($(BIN)/python tools/figures.py --no-trace) || { printf '%s\n' "$$figures"; exit 1; }
	@$(SAY) "dependencies (pins and advisories)"
	@$(BIN)/python tools/audit.py $(AUDIT)
	@$(MAKE) --no-print-directory docs
	@$(SAY) "all checks passed"

.PHONY: format
format: $(VENV)/.dev ## format the code and apply ruff's fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.dev ## build the documentation into site/
	@$(SAY) "documentation (mkdocs --strict)"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

.PHONY: bench
bench: $(VENV)/.bench .cache/apscheduler4/.made .cache/dag_peers/.made .cache/tmp ## measure Kron beside its peers (ARGS=... for the benchmark)
	@$(BIN)/python -m bench $(ARGS)

.PHONY: crons
crons: $(VENV)/.bench .cache/tmp ## observe what other crons do at clock changes, with overlaps and after outages (needs Debian's cron, faketime and root)
	@$(BIN)/python -m bench.crons $(ARGS)

.PHONY: soak
soak: $(VENV)/.dev .cache/tmp ## simulate 10,000 years, explore every order of a few events, draw fresh examples of every property (ARGS=... for the simulator)
	@$(SAY) "simulating, several minutes (a violation prints its seed and the smallest scenario) ..."
	@$(BIN)/python tools/soak.py $(ARGS)
	@$(SAY) "drawing ten times the usual examples of every property, many minutes (a failure prints its example) ..."
	@$(PYTEST) -m hypothesis --hypothesis-profile=soak -o timeout=0

.PHONY: chaos
chaos: $(VENV)/.dev .cache/tmp ## kill, freeze and restart a real service at random, then check every period (ARGS=...)
	@$(SAY) "injecting faults, three times three minutes (ARGS=\"--minutes 10 --seed 1\" for more; a violation prints its history) ..."
	@$(BIN)/python -m tests.chaos $(ARGS)

.PHONY: abuse
abuse: $(VENV)/.dev .cache/tmp ## attack a real service as a hostile tenant, and measure the starts of its neighbour (ARGS="--requests 10000")
	@$(SAY) "attacking, some eight minutes (ARGS=\"--seconds 3 --minutes 1\" for less) ..."
	@$(BIN)/python -m tests.abuse $(ARGS)

.PHONY: protections
protections: $(VENV)/.dev .cache/tmp ## remove each protection of the threat model from a copy of Kron; its test must fail (ARGS="--only cookie")
	@$(SAY) "testing copies of the source without one protection each, some twenty minutes ..."
	@$(BIN)/python -m tests.abuse.protections $(ARGS)

.PHONY: planted
planted: $(VENV)/.dev .cache/tmp ## put faults that tests have to notice into a copy of Kron, one at a time; their tests must fail (ARGS="--only backfill")
	@$(SAY) "testing copies of the source with one fault each, some twenty minutes ..."
	@$(BIN)/python -m tools.faults $(ARGS)

.PHONY: mutants
mutants: $(VENV)/.dev .cache/tmp ## check that the simulator detects each of a list of injected bugs
	@$(SAY) "simulating copies of the source with one bug each, a few minutes ..."
	@$(BIN)/python tools/mutants.py $(ARGS)

.PHONY: mutation
mutation: $(VENV)/.dev .cache/tmp ## change one detail of app, stores, launchers or auth at a time; a test must fail (ARGS="--module app/catalog")
	@$(SAY) "testing mutants of the source, one at a time; the first run measures which test runs which line ..."
	@$(BIN)/python tools/mutation.py $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.dev .cache/tmp ## send generated texts to the readers of crontabs and krontabs, and requests to every route of the service, from a fresh seed (ARGS=... for schemathesis)
	@$(SAY) "fuzzing the readers of crontabs and krontabs, a minute ..."
	@$(BIN)/python -m pytest -q -n 2 --hypothesis-profile=soak -o timeout=0 -k "any_text or percent" \
		tests/core/cron/test_vixie.py tests/core/cron/test_crontab.py tests/core/job/test_from_crontab.py tests/core/job/test_krontab.py
	@$(SAY) "fuzzing the API, some minutes (a failure is printed with its seed and a request that shows it) ..."
	@$(BIN)/python -m tests.service.fuzz $(ARGS)
	@$(SAY) "no failures"

.PHONY: screenshots
screenshots: $(VENV)/.dev .cache/tmp ## take the pictures of README and documentation from the demo (needs Chromium)
	@$(SAY) "starting the demo and taking its pictures ..."
	@$(BIN)/python -m tests.service.screenshots

.PHONY: figures
figures: $(VENV)/.dev .cache/tmp ## measure the shape of the source beside its goals (ARGS="--list vague")
	@$(BIN)/python tools/figures.py $(ARGS)

.PHONY: lock
lock: $(VENV)/.run ## rewrite constraints.txt and hashes.txt (ARGS=--upgrade for the newest versions)
	@$(SAY) "resolving every extra and group for Python 3.11 ..."
	@$(BIN)/python tools/pins.py $(ARGS)

.PHONY: clean
clean: ## remove the environment, the caches and the builds
	@rm -rf $(VENV) .cache site dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment: one stamp for running, one for developing, one for measuring ---

$(VENV)/.run: pyproject.toml constraints.txt hashes.txt | .cache/tmp
	@python=; for candidate in $(PYTHON) python3.11 python3; do \
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1; \
		then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
		$(SAY) "Kron needs Python 3.11 or newer; found none as python3.11 or python3 (set PYTHON=...)" >&2; exit 1; fi; \
	if ! $(BIN)/python -m pip --version > /dev/null 2>&1; then \
		$(SAY) "creating environment in $(VENV) with $$("$$python" --version) ..."; \
		"$$python" -m venv --clear $(VENV); fi
	@$(SAY) "installing the installer ..."
	@$(BIN)/python -m pip install -qq --constraint constraints.txt pip uv
	$(call install,kron with its command line and service,--editable '.[service]')

$(VENV)/.dev: $(VENV)/.run
	$(call install,the tools for tests and checks,--group dev)

$(VENV)/.bench: $(VENV)/.run
	$(call install,the peers to measure against,--group bench)

# It conflicts with the version in .venv, so it is installed in a separate folder.
.cache/apscheduler4/.made: bench/apscheduler4.txt $(VENV)/.run
	@rm -rf $(@D)
	@$(SAY) "installing APScheduler 4 to measure against ..."
	@$(BIN)/uv pip install --quiet --target $(@D) --requirement $< || { \
		$(SAY) "uv could not install; trying pip (slower) ..."; \
		$(BIN)/python -m pip install --quiet --target $(@D) --requirement $<; }
	@touch $@

# Prefect and Dagster pin what the service uses in other versions, so they are installed in a separate folder.
.cache/dag_peers/.made: bench/dag_peers.txt $(VENV)/.run
	@rm -rf $(@D)
	@$(SAY) "installing Prefect and Dagster to measure against ..."
	@$(BIN)/uv pip install --quiet --target $(@D) --requirement $< || { \
		$(SAY) "uv could not install; trying pip (slower) ..."; \
		$(BIN)/python -m pip install --quiet --target $(@D) --requirement $<; }
	@touch $@

.cache/tmp:
	@mkdir -p $@
