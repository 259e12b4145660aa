# `make demo` and `make test` work in a fresh clone: they first install what is pinned into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint .ci/constraints.txt

.PHONY: demo test test-all fuzz lint bench readme wheel venv

demo: $(INSTALLED)
	@$(BIN)/python -m mlirc.demo

test: $(INSTALLED)
	@$(BIN)/python -m pytest -n 2 --dist worksteal

# With the tests marked `full`: every operator of OpInfo in all dtypes, the models at full size, and 20 minutes of random
# programs. SHARD=3/16 is the fourth of sixteen parts, with programs of its own.
SHARD ?= 0/1
test-all: $(INSTALLED)
	@$(BIN)/python -m tests.fuzz --minutes 20 --seed $$((2000000 + 100000 * $(firstword $(subst /, ,$(SHARD))))) --out build/fuzz
	@SHARD=$(SHARD) $(BIN)/python -m pytest -n $(or $(JOBS),2) --dist worksteal -m "full or not full"

# Random programs, compiled and compared with eager: `make fuzz HOURS=8 SEED=100000`. What is found goes to build/fuzz/.
HOURS ?= 1
SEED ?= 1000000
fuzz: $(INSTALLED)
	@$(BIN)/python -m tests.fuzz --minutes $$(($(HOURS) * 60)) --seed $(SEED) --out build/fuzz

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

# The table goes to the terminal, results.jsonl and speedup.png to build/bench/.
bench: $(INSTALLED)
	@$(BIN)/python -m benchmarks.run

# The tables of README.md, from benchmarks/results.
readme: $(INSTALLED)
	@$(BIN)/python -m benchmarks.readme

wheel: $(INSTALLED)
	@$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .

venv: $(INSTALLED)

# Torch comes first and by itself: with an open range, pip would fetch gigabytes of another build.
$(INSTALLED): pyproject.toml .ci/constraints.txt Makefile
	$(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable .[test,lint,bench,gpu]
	@# pip compiles one file after another; this takes all cores, and leaves out a third of the source, which hardly anything imports.
	@# A package may hold files that no Python compiles.
	@$(BIN)/python -m compileall -q -q -j 0 -x '/transformers/models/|/tests/' .venv/lib || true
	@touch $@
