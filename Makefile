# Everything a newcomer needs: `make run` trains and writes a report, `make test` proves the installation.
PYTHON ?= python3
BIN := .venv/bin
GPU_PYTHON ?= $(BIN)/python
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
NATIVE := CMakeLists.txt $(wildcard csrc/*)
# Three test processes share two cores, since tests of workers wait for half of their time. Threads that spin while
# they wait take the core from those that work.
# Tests of Spark are one group: they share one Java machine. A test process that dies is replaced, but not for ever.
TEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q -n 3 --dist loadgroup --max-worker-restart 2

.PHONY: run test test-all test-gpu check format bench soak sbom lock verify clean help
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z.-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

.venv: .venv/.stamp  ## set up only: virtual environment, dependencies, native core
.venv/.stamp: pyproject.toml constraints.txt $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv (the first time takes a few minutes: torch is fetched, the native core compiled)"
	@$(BIN)/pip install --quiet -e ".[dev]"
	@touch $@

run: .venv/.stamp  ## train on the built-in graph with two workers, show what they sent, write report.html
	@$(BIN)/weft train recipes/default.toml --workers 2 --out runs/default-$$(date +%Y%m%d-%H%M%S)

test: check  ## the checks and the tests (under 15 minutes on two cores)
	@$(TEST) -m "not slow" --ignore tests/test_architecture.py  # which the checks ran

test-all: check  ## everything, the slow tests included
	@$(TEST)

test-gpu:  ## the tests of kernels and training on a GPU; GPU_PYTHON is the interpreter that has CUDA's torch
	@$(GPU_PYTHON) -c "import torch; assert torch.cuda.is_available()" 2> /dev/null || \
		{ echo "make test-gpu: $(GPU_PYTHON) has no torch that sees a GPU; name one that has: GPU_PYTHON=python3"; exit 2; }
	@WEFT_TEST_DEVICE=cuda PYTHONPATH=src $(GPU_PYTHON) -m pytest -q -m gpu $(GPU_PYTEST) \
		$$(grep -rlF --include='test_*.py' 'mark.gpu' tests | sort)

check: .venv/.stamp  ## formatting, lint, types, direction of imports
	@$(BIN)/ruff format --check src tests benchmarks examples
	@$(BIN)/ruff check src tests benchmarks examples
	@$(BIN)/clang-format --dry-run --Werror csrc/*.cpp csrc/*.h
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_architecture.py

format: .venv/.stamp  ## rewrite the sources in the house format
	@$(BIN)/ruff format src tests benchmarks examples
	@$(BIN)/ruff check --fix src tests benchmarks examples
	@$(BIN)/clang-format -i csrc/*.cpp csrc/*.h

bench: .venv/.stamp  ## the benchmarks, rivals in the same run; tables go to benchmarks/results
	@$(BIN)/python -m benchmarks.run

MINUTES ?= 60
soak: .venv/.stamp  ## long runs, killed at random, against undisturbed ones (MINUTES=60); the picture goes to benchmarks/results
	@WEFT_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m benchmarks.run soak

sbom: .venv/.stamp  ## what the wheel depends on, with versions and licences, as CycloneDX: dist/sbom.json
	@mkdir -p dist
	@$(BIN)/python docs/sbom.py dist/sbom.json

LOCK ?= installed.lock
SITE = $(wildcard .venv/lib/python3*/site-packages)
lock: .venv/.stamp  ## write a hash of each installed package to a file that you keep (LOCK=installed.lock)
	@$(PYTHON) -I docs/lock.py $(SITE) $(LOCK) --write

verify:  ## compare every installed file with what its package states, and each package with that file
	@$(PYTHON) -I docs/lock.py $(SITE) $(LOCK)

clean:  ## remove what was built
	rm -rf .venv build runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
