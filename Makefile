# Two commands do everything: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
TEST_STAMP := $(VENV)/.installed-test
# Exact versions of everything, also of what builds us; `LOCK=` takes the newest that the ranges allow.
LOCK ?= $(CURDIR)/requirements-test.lock
PIP := PIP_CONSTRAINT=$(LOCK) PIP_BUILD_CONSTRAINT=$(LOCK) $(BIN)/pip install --quiet --no-compile --disable-pip-version-check
NPM := VENV=$(CURDIR)/$(VENV) tools/npm
PAGE := src/windlass/_ui/index.html
PAGE_SOURCES := $(shell find web -name node_modules -prune -o -type f ! -name openapi.json ! -name schema.d.ts -print)
NODE_MODULES := web/node_modules/.package-lock.json

# Side by side: most tests wait for processes of theirs.
LANES ?= 3
SUITE := SUITE_BEGAN=$(shell date +%s) $(BIN)/python tools/suite.py --lanes $(LANES)

.PHONY: help demo test test-quick test-frameworks test-engines test-browser test-training test-gpu test-soak test-all test-newest durations steady lock check format bench docs web clean

help:
	@echo "make demo        start the platform, train a small network on 2 workers, show its curve, stop"
	@echo "make test        set up what the tests need and run them: what every change passes"
	@echo "make test-quick  those of them that take moments"
	@echo "make test-frameworks  every framework that is not PyTorch, for real; installs each"
	@echo "make test-engines     real clusters of Kubernetes, Ray and Slurm"
	@echo "make test-browser     every page in Chromium"
	@echo "make test-training    every strategy on real processes, with members that are lost"
	@echo "make test-gpu   what needs a CUDA device"
	@echo "make test-soak   many seeds, long storms, mutants"
	@echo "make test-all    every suite"
	@echo "make test-newest the same with the newest versions that our ranges allow; make lock writes them down"
	@echo "make steady      TESTS twenty times beside a busy machine; counts what fails"
	@echo "make check       ruff, format, mypy, import layers; the page's types and unit tests"
	@echo "make web         build the page that the server serves"
	@echo "make bench       measure what docs/benchmarks.md lists"
	@echo "make docs        write the generated reference pages anew"

demo: $(DEMO_STAMP) web
	@tools/demo

test: $(TEST_STAMP) system
	$(SUITE) test

test-quick: $(TEST_STAMP)
	$(SUITE) quick

test-frameworks: NEEDS := frameworks
test-engines: NEEDS := engines
test-browser test-soak: NEEDS := browser
test-all: NEEDS := frameworks engines browser

test-frameworks test-training test-gpu: test-%: $(TEST_STAMP) system
	$(SUITE) $*

test-engines: $(TEST_STAMP) system kubernetes
	$(SUITE) engines

test-browser test-soak: test-%: $(TEST_STAMP) system web
	$(SUITE) $*

test-all: $(TEST_STAMP) system kubernetes web
	$(SUITE) all

# How long each file of `make test` takes, written down: tests/test_durations.py.
durations: $(TEST_STAMP) system
	$(SUITE) --keep test

# Twenty times beside two busy loops and a writing dd: `make steady TESTS=tests/worker`.
TESTS ?= tests/e2e tests/faults tests/worker tests/engines tests/examples
TIMES ?= 20
steady: $(TEST_STAMP) system
	$(BIN)/python tools/steady.py --times $(TIMES) $(TESTS)

# In an environment of its own, with the newest versions that the ranges allow. When it is green,
# `make lock` writes what it found.
test-newest:
	rm -rf .venv-newest
	$(MAKE) VENV=.venv-newest LOCK= test

lock:
	rm -rf .venv-newest
	$(MAKE) VENV=.venv-newest LOCK= .venv-newest/.installed-test
	.venv-newest/bin/python tools/lock.py > requirements-test.lock
	rm -rf .venv-newest

check: $(TEST_STAMP) $(NODE_MODULES)
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py
	$(BIN)/python -m docs.openapi > web/openapi.json
	$(NPM) run --silent api
	$(NPM) run --silent check
	$(NPM) run --silent test

format: $(TEST_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(TEST_STAMP)
	$(BIN)/python -m benchmarks

docs: $(TEST_STAMP)
	$(BIN)/python -m docs.generate

# The page. Its sources are built anew only when they have changed; Node is brought along where the
# machine has none (tools/npm).
web: $(PAGE)

# Not `npm ci`: it wants the lock to name the native parts of every system, also of those that
# cannot be had here. The versions are those of the lock all the same.
$(NODE_MODULES): web/package-lock.json web/package.json | $(STAMP)
	$(NPM) install --no-save --no-audit --no-fund --loglevel=error
	@touch $@

$(PAGE): $(PAGE_SOURCES) $(NODE_MODULES)
	$(NPM) run --silent build
	@touch $@

# What the tests want from the system. Missing pieces are installed where we may, and otherwise
# the tests that need them say so and are skipped.
.PHONY: system kubernetes
system:
	@bash tools/system-packages $(NEEDS)

kubernetes:
	@bash tools/kubernetes-build || echo "the tests on Kubernetes will be skipped"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "windlass needs Python 3.11 or newer; set PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "this Python has no venv: on Debian, apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml $(LOCK)
	$(PIP) --editable .
	@touch $@

# torch as the lock says: see CONTRIBUTING.md.
$(DEMO_STAMP): $(STAMP)
	$(PIP) torch numpy scikit-learn
	@touch $@

$(TEST_STAMP): $(STAMP) requirements-test.txt
	$(PIP) --requirement requirements-test.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-newest web/node_modules src/windlass/_ui dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
