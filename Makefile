# Everything from a bare clone: `make demo` and `make test`. Stamps keep a second call quick.
.DEFAULT_GOAL := help
SHELL := /bin/bash -o pipefail
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(p) 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMPS := $(VENV)/.stamps
NATIVE := $(wildcard hipfile_sim/native/build.py hipfile_sim/native/src/*)
# More processes than two cost memory without gain on a small machine: `make test JOBS=8` on a large one.
JOBS ?= 2

.PHONY: help demo test bench lint format format-check types imports docs examples conformance fuzz soak setup clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  \1\t/' | expand -t 16

# ------------------------------------------------------------------------------------------------------------- set-up
$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo "hipfile-sim needs Python 3.11 or newer: none found on PATH (set PYTHON=...)"; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"hipfile-sim needs Python 3.11 or newer, $(PYTHON) is {v.major}.{v.minor} (set PYTHON=...)")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# What a user of the command line needs.
$(STAMPS)/run: $(STAMPS)/venv pyproject.toml tools/hatch_build.py $(NATIVE)
	$(PY) -m pip install -q --disable-pip-version-check -e '.[cli]'
	@touch $@

# What the tests and the checks need.
$(STAMPS)/dev: $(STAMPS)/run
	$(PY) -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

# Packages that tests use when they are there; a failure is noted and named in the test header.
$(STAMPS)/optional: $(STAMPS)/dev tools/optional.py
	$(PY) tools/optional.py
	@touch $@

setup: $(STAMPS)/optional  ## make .venv with everything

# ---------------------------------------------------------------------------------------------------------------- use
demo: $(STAMPS)/run  ## run the layer-wise KV load on an emulated GPU and show what happened
	$(PY) examples/demo.py

examples: $(STAMPS)/dev  ## run every example
	$(PY) -m pytest -q tests/examples

test: $(STAMPS)/optional  ## every test
	$(PY) -m pytest -q -n $(JOBS) --dist loadfile -m 'not soak and not fuzz' $(ARGS)

bench: $(STAMPS)/dev  ## the benchmarks, as ratios (ARGS="--json FILE" writes them down)
	$(PY) benchmarks/run.py $(ARGS)

conformance: $(STAMPS)/optional  ## the quick conformance profile on the targets of this machine
	$(PY) -m hipfile_conformance run --profile quick --target auto $(ARGS)

fuzz: $(STAMPS)/optional  ## the long form of the fuzz tests, and new random examples for the generated ones
	$(PY) -m pytest -q -m 'fuzz or hypothesis' --hypothesis-profile random --timeout 3600 $(ARGS)

soak: $(STAMPS)/optional  ## the long form of the soak tests
	$(PY) -m pytest -q -m soak --timeout 7200 $(ARGS)

docs: $(STAMPS)/dev  ## run every code block of the documentation
	$(PY) -m pytest -q tests/docs

# -------------------------------------------------------------------------------------------------------------- checks
format: $(STAMPS)/dev  ## reformat
	$(BIN)/ruff check -q --select I --fix . && $(BIN)/ruff format .

format-check: $(STAMPS)/dev
	$(BIN)/ruff format --check .

lint: $(STAMPS)/dev  ## ruff and the import directions
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMPS)/dev  ## mypy, strict, on the packages
	$(BIN)/mypy

clean:  ## remove the environment and every build output
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis hipfile_sim/native/lib
