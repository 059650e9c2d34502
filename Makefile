# Two commands do everything: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
TEST_STAMP := $(VENV)/.installed-test

# Side by side: most tests wait for processes of theirs.
LANES ?= 3
SUITE := SUITE_BEGAN=$(shell date +%s) $(BIN)/python tools/suite.py --lanes $(LANES)

.PHONY: help demo test test-quick test-frameworks test-soak test-all check format bench docs clean

help:
	@echo "make demo        start the platform, train a small network on 2 workers, show its curve, stop"
	@echo "make test        set up what the tests need and run them: what every change passes"
	@echo "make test-quick  those of them that take moments"
	@echo "make test-frameworks  every framework that is not PyTorch, for real; installs each"
	@echo "make test-soak   many seeds, long storms, mutants"
	@echo "make test-all    every suite"
	@echo "make check       ruff, format, mypy, import layers"
	@echo "make bench       measure what docs/benchmarks.md lists"
	@echo "make docs        write the generated reference pages anew"

demo: $(DEMO_STAMP)
	@tools/demo

test: $(TEST_STAMP) system
	$(SUITE) test

test-quick: $(TEST_STAMP)
	$(SUITE) quick

test-frameworks test-soak test-all: test-%: $(TEST_STAMP) system
	$(SUITE) $*

check: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

format: $(TEST_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(TEST_STAMP)
	$(BIN)/python -m benchmarks

docs: $(TEST_STAMP)
	$(BIN)/python -m docs.generate

# What the tests want from the system. Missing pieces are installed where we may, and otherwise
# the tests that need them say so and are skipped.
.PHONY: system
system:
	@bash tools/system-packages

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "windlass needs Python 3.11 or newer; set PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "this Python has no venv: on Debian, apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable .
	@touch $@

# The CPU build, pinned: see CONTRIBUTING.md.
$(DEMO_STAMP): $(STAMP)
	$(BIN)/pip install --quiet torch==2.13.0 numpy scikit-learn
	@touch $@

$(TEST_STAMP): $(STAMP) requirements-test.txt
	$(BIN)/pip install --quiet --requirement requirements-test.txt
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
