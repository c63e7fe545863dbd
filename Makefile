# `make demo` and `make test` are enough to begin with. Every target creates .venv first if it is missing.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOCK   := requirements.lock

# With LOCKED=1, as in CI, .venv gets the versions of requirements.lock, checked by their hashes, and nothing else.
LOCKED ?=

# Processes share compiled modules, also where the caller's environment forbids writing them: tests start hundreds of
# processes, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test lint-and-test test-plain lint unit docs bench bench-nfp bench-memo bench-http bench-ledger bench-curve bench-roles bench-wmp bench-spark wheel test-wheel coverage release-check lock sbom audit-dependencies soak fuzz-api survival abuse clean

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## create .venv with all that the other targets use

$(STAMP): pyproject.toml setup.py $(if $(LOCKED),$(LOCK))
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (once) ..."
ifeq ($(LOCKED),)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".[test,lint,build]"
else
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
endif
	@touch $@

# The tools of `supply`, which most work does not need.
$(VENV)/.supply: $(STAMP)
ifeq ($(LOCKED),)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".[supply]"
endif
	@touch $@

demo: setup      ## watch a tour of the features; FAST=1 ends by itself
	@$(BIN)/python -m polydomo demo $(if $(FAST),--fast,)

lint: setup      ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: setup      ## the fast, pure tests only
	$(BIN)/python -m pytest -q -n 2 tests/wire tests/core tests/dialects

docs: setup      ## regenerate the reference pages that are made from the code
	$(BIN)/python tools/make_reference.py

test: setup      ## everything: lint, the whole suite, and the hot packages' suite again on the compiled wheel
	@$(MAKE) --no-print-directory -j 2 wheel lint-and-test # the compiler uses one core
	@$(MAKE) --no-print-directory test-wheel WHEEL=

lint-and-test:
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test-plain

test-plain: setup ## the whole suite on the source
	@sh tools/system_packages.sh
	@$(BIN)/python -m compileall -q src tests # once, instead of in each process that the tests start
	$(BIN)/python -m pytest -n 4 # how tests are dealt out: tests/support/turns.py

COVERED ?= tests
coverage: setup  ## the suite on the source with coverage: a report per module; fails below tools/coverage_floor.py's floors
	@sh tools/system_packages.sh
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest -n 4 $(COVERED)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage json --quiet
	$(BIN)/python -m coverage report
	$(BIN)/python tools/coverage_floor.py build/coverage/report.json

wheel: setup     ## build the wheel with its hot packages compiled by mypyc, into dist/
	$(BIN)/python tools/build_wheel.py

# The tests whose messages pass through the compiled packages. `make test-wheel TESTS=tests` runs everything.
LIVES := $(addprefix tests/server/test_,counts.py identities.py lost_connections.py resumed_clients.py slow_readers.py)
TESTS ?= tests/wire tests/core tests/dialects tests/abuse tests/test_everyone.py $(LIVES) -m "not slow and not peers"
WHEEL ?= wheel # empty: test the wheel that is in dist/

test-wheel: $(WHEEL) ## run the suite against the compiled wheel in an environment of its own
	$(BIN)/python tools/test_wheel.py -n 4 -q $(TESTS)

release-check: setup $(VENV)/.supply ## build sdist and wheel, install each into an empty environment, start a broker and a worker, call
	$(BIN)/python tools/release_check.py

lock: $(VENV)/.supply ## update requirements.lock after a change of pyproject.toml; UPGRADE=1 takes the newest versions
	$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --all-extras --generate-hashes \
	    $(if $(UPGRADE),--upgrade,) --custom-compile-command "make lock" --output-file $(LOCK) pyproject.toml

sbom: wheel $(VENV)/.supply ## the wheel's software bill of materials (CycloneDX), into dist/
	$(BIN)/python tools/sbom.py

audit-dependencies: $(VENV)/.supply ## look for known vulnerabilities of the versions in requirements.lock
	$(BIN)/python tools/audit_dependencies.py

bench: wheel     ## our broker, plain and compiled, beside a bare pyzmq loop, in one run
	$(BIN)/python bench/run.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-nfp: wheel ## the same beside norfab's own broker, over NFP
	$(BIN)/python bench/nfp.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-memo: wheel ## MemoDB's jobs with NNG peers, beside a loop on pynng's contexts
	$(BIN)/python bench/memo.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-http: wheel ## submit-and-wait over HTTP beside a bare FastAPI echo
	$(BIN)/python bench/web.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-ledger: wheel ## the ledger's cost in the broker
	$(BIN)/python bench/ledger.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-curve: wheel ## our broker with CURVE beside a pyzmq loop with CURVE
	$(BIN)/python bench/curve.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-roles: wheel ## the cost of roles in the broker
	$(BIN)/python bench/roles.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-wmp: wheel ## WMP, devices and joined brokers beside MDP through the same broker
	$(BIN)/python bench/wmp.py --candidate plain=$(BIN)/python --candidate compiled=$$($(BIN)/python tools/wheel_env.py) $(BENCH)

bench-spark: setup ## the pipeline beside bare Spark: ingest, aggregation, bulk calls, plans, growth with the data
	$(BIN)/python bench/ingest.py
	$(BIN)/python bench/aggregate.py
	$(BIN)/python bench/bulk.py
	$(BIN)/python bench/plan.py
	$(BIN)/python bench/growth.py

soak: setup      ## a million requests while peers are killed, frozen and reconnected; a hundred managers, simulated
	$(BIN)/python -m pytest -q -s tests/server/test_soak.py --soak-requests 1000000 --timeout 3600
	$(BIN)/python -m pytest -q tests/dialects/wmp/test_wakeup.py --full --timeout 3600

fuzz-api: setup  ## schemathesis on the REST API, fifty examples per operation
	$(BIN)/python -m pytest -q -s tests/web/api/test_schema.py --schema-examples 50 --timeout 7200

survival: setup  ## kill -9 the broker a hundred times with a thousand durable jobs in flight
	$(BIN)/python -m pytest -q -s tests/server/test_survival.py -k thousand --survival-rounds $(or $(ROUNDS),100) --timeout 3600

abuse: setup     ## thousands of hostile peers at full size: memory, handshakes, polls, floods
	$(BIN)/python -m pytest -q -s tests/abuse --full --timeout 3600

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
