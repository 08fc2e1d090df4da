# Everything here works in a fresh clone: each target installs what it needs into .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
EXTRAS := eval,serve,hub,offline
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
UV = $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt
# What sandboxed processes import, which cannot write byte-code: on all processors, where pip would use one and compile everything.
# torch has a file for newer Pythons, which does not compile under 3.11.
COMPILE = $(BIN)/python -m compileall -q -j 0 $(addprefix $(VENV)/lib/python*/site-packages/,torch triton sympy mpmath networkx numpy einops) > /dev/null || true

# The tests start hundreds of short processes: where this is set, each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup install demo test test-all lint ruff format bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(DEV_STAMP)  ## make .venv with every extra the tests need

$(STAMP): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory install WITH='$(EXTRAS)'
	@touch $(STAMP)

# Without the step above, so that the tests do not install twice, and the demo does not wait for their tools.
$(DEV_STAMP): pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory install WITH='$(EXTRAS),dev'
	@touch $(STAMP) $(DEV_STAMP)

# pip chooses torch, since it also looks where this machine keeps wheels; uv installs the rest, in a tenth of the time, from
# the index that pip is set up for (which is not printed: it may hold a password).
install:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kernelmill needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) uv torch triton
	@index="$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}"; \
	if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$$index"; fi; \
	echo "$(UV) -e '.[$(WITH)]'"; $(UV) -e '.[$(WITH)]'
	@$(COMPILE)

demo: $(STAMP)  ## from modules to a dataset of verified kernels: no GPU, no key, no network
	$(BIN)/kernelmill run configs/offline.toml

# Each worker begins with one half of the files, whole, and takes from the other's rest when it is done: what the tests
# of a file share is built once, and no worker waits for the other. Many tests wait for a while, so there are three workers for
# two cores, and torch has no threads beside them. The examples are the same in every run (tests/conftest.py).
test: $(DEV_STAMP) ruff  ## lint, types and tests (minutes)
	@$(BIN)/mypy & types=$$!; HYPOTHESIS_PROFILE=same $(PYTEST) -m "not heavy"; tests=$$?; wait $$types && exit $$tests

test-all: $(DEV_STAMP) lint  ## all tests, also the long ones, with random examples
	$(PYTEST)

lint: ruff
	$(BIN)/mypy

ruff: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV_STAMP)  ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV_STAMP)  ## run the benchmarks of this machine; results go to bench/results
	$(BIN)/python bench/small_costs.py
	$(BIN)/python bench/llm_engine.py
	$(BIN)/python bench/rerun_and_memory.py
	$(BIN)/python bench/curate.py
	$(BIN)/python bench/lengths.py
	$(BIN)/python bench/publish.py
	$(BIN)/python bench/evaluator_quality.py
	$(BIN)/python bench/evaluator_robustness.py
	$(BIN)/python bench/reward_server.py
	$(BIN)/python bench/teacher.py

clean:  ## remove what was built here
	rm -rf $(VENV) demo_outputs .pytest_cache .mypy_cache .ruff_cache .hypothesis
