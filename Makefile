# All commands of the project. Everything is installed into .venv/ and nowhere else.

PYTHON ?= python3
JOBS   ?= 2
ARGS   ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
ORACLE := $(VENV)/.oracle
PIP   := $(BIN)/python -m pip --disable-pip-version-check -q
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Recipes share one .venv, one cache and two cores.
.NOTPARALLEL:

UV_VERSION := 0.13.8

.PHONY: help install test test-all demo bench bench-peers oracle docs lint format types dist lock coverage nightly trust clean distclean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "PYTHON=python3.13 make ... picks the interpreter (3.11 to 3.13); ARGS='-k name' is passed to the underlying command."

install: $(STAMP) ## set up .venv/ (every other command does so by itself)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
	  found="$$($(PYTHON) --version 2>&1 | tail -n 1)" || true; \
	  echo "logwright needs Python 3.11, 3.12 or 3.13, and \`$(PYTHON)\` is: $$found." >&2; \
	  echo "Name another one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@if ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  echo "Creating $(VENV) with $$($(PYTHON) --version)."; \
	  $(PYTHON) -m venv --clear $(VENV) || { \
	    echo "\`$(PYTHON) -m venv\` failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; fi
	@echo "Installing the locked packages into $(VENV). The first time takes a minute or two; PySpark alone is 400 MB."
	@# setuptools first: source packages are then built with the locked one, not with whatever is newest today.
	@awk '/^[^ ]/ { on = /^setuptools==/ } on' requirements.lock > $(VENV)/setuptools.lock
	@$(PIP) install --require-hashes -r $(VENV)/setuptools.lock
	@$(PIP) install --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) install --no-build-isolation --no-deps -e .
	@echo "Compiling the kernels, with and without bounds checks (two minutes)."
	@$(WARMUP) & NUMBA_BOUNDSCHECK=1 NUMBA_OPT=1 $(WARMUP); wait $$!
	@touch $@
WARMUP = $(BIN)/logwright warmup 2>>$(VENV)/warmup.log

$(ORACLE): requirements-oracle.lock $(STAMP)
	@echo "Compiling amulet-leveldb, which judges Minecraft worlds (g++ and the headers of zlib; a minute)."
	@$(PIP) install --no-deps --require-hashes -r requirements-oracle.lock || \
	  echo "amulet-leveldb could not be compiled: the tests that need it are skipped, and say so." >&2
	@touch $@

# Byte code is written even where the environment says not to: without it each process spends half a minute on compiling the tests.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder

test: $(STAMP) ## run a sample of the tests that covers every rule (under four minutes; the Spark tests need Java 17 and are skipped without it)
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-sample} $(PYTEST) tests --ignore=tests/oracle \
	  -m "not nightly and not oracle and not extended" $(ARGS)

test-all: test ## run all tests: the sample, then the rest and the properties with all their examples (twenty minutes)
	$(PYTEST) tests --ignore=tests/oracle -m "not nightly and not oracle and (extended or hypothesis)" $(ARGS)

demo: $(STAMP) ## see what it does, in a minute or two
	@$(BIN)/python -m logwright.demo $(ARGS)

oracle: $(ORACLE) ## let the real systems judge what we write (Java 17, Maven)
	$(PYTEST) tests/oracle $(ARGS)

nightly: $(STAMP) ## the long tests, and the properties with thousands of examples (hours)
	HYPOTHESIS_PROFILE=nightly $(PYTEST) tests -m "nightly or not nightly" $(ARGS)
	$(BIN)/python -m logwright.roundtrip.fuzz all --seconds 300
	$(BIN)/python -m logwright.roundtrip.trust --every-bit

trust: $(STAMP) ## try every promise on every kind of file, and print how much was tried (minutes)
	$(BIN)/python -m logwright.roundtrip.trust $(ARGS)

bench: $(STAMP) ## measure, and print one table (a quick check: ARGS='--scale 0.05 --rounds 1')
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-peers: $(STAMP) ## also measure the alternatives, such as Kafka's own classes (a quarter of an hour; Java 17)
	$(BIN)/python benchmarks/run.py --peers $(ARGS)

docs: $(STAMP) ## make docs/formats and docs/cli.md, and run the examples of all pages (Java 17)
	$(BIN)/python tools/format_pages.py
	$(BIN)/python tools/cli_page.py
	$(BIN)/python tools/doc_examples.py --update

lint: $(STAMP) ## style, mistakes, format, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check . || { echo "Run \`make format\`." >&2; exit 1; }
	$(BIN)/lint-imports

format: $(STAMP) ## format the code, sort imports
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy

# Compiled kernels leave no trace for coverage: the interpreted run counts them, the compiled one everything else. Spark's workers
# are forked and killed, so its tests count for nothing here.
coverage: $(STAMP) ## branch coverage over interpreted and compiled kernels together (twenty minutes)
	$(BIN)/coverage erase
	HYPOTHESIS_PROFILE=coverage NUMBA_DISABLE_JIT=1 $(COVERED) $(INTERPRETED) $(ARGS)
	HYPOTHESIS_PROFILE=ci $(COVERED) tests --ignore=tests/oracle $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report
INTERPRETED = tests/kafka tests/leveldb tests/codec/test_{compress,intrinsics,kernel}.py --ignore-glob='*/test_crash*.py' --ignore-glob='*/test_corpora.py'
COVERED = $(BIN)/coverage run -m pytest -q -n $(JOBS) --dist loadfile -m "not nightly and not oracle and not spark"

dist: $(STAMP) ## wheel, sdist, and for spark-submit the zip for --py-files and the jobs, in dist/
	@rm -rf dist build src/logwright.egg-info
	@# The wheel is built from the sdist, so the sdist is known to be complete. Same commit, same bytes.
	@export SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct 2>/dev/null || echo 315532800)"; \
	  mkdir -p dist; $(BIN)/python -m build --no-isolation --outdir dist . >dist/build.log 2>&1 || { cat dist/build.log; exit 1; }; \
	  rm dist/build.log
	@$(BIN)/python tools/pyfiles.py dist/*.whl
	@ls -l dist

lock: ## resolve requirements.lock again
	@test -x .cache/uv/bin/uv || { $(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip -q install uv==$(UV_VERSION); }
	.cache/uv/bin/uv pip compile -q --universal --python-version 3.11 --extra spark --extra dev --generate-hashes \
	  --no-header --no-annotate $(ARGS) -o requirements.lock pyproject.toml

clean: ## remove what builds, tests and checks left behind
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks \
	  .coverage .coverage.* htmlcov spark-warehouse metastore_db derby.log
	find codec readers writers roundtrip corpora src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv/ and .cache/ as well
	rm -rf $(VENV) .cache
