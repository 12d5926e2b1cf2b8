# Everything from a fresh clone: `make report` measures the embedded engine, `make test` tests this
# project. Both need Python >= 3.11, make and a C compiler, and set up .venv by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUDGET ?= quick
TORCH_CPU ?= 2.13.0+cpu
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 2

.DEFAULT_GOAL := help
.PHONY: help report test micro acceptance check wheel serve clean real-engines llamacpp-quick schema

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, this is " + sys.version.split()[0] + ": make PYTHON=/path/to/python3.11")'
	@echo "setting up $(VENV) ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# A machine without an NVIDIA GPU gets the CPU build of torch (200 MB instead of several GB).
$(VENV)/.torch: $(VENV)/.base
	@if $(BIN)/python -c 'import torch' 2>/dev/null; then :; \
	elif command -v nvidia-smi >/dev/null 2>&1 || [ "$$(uname -s)" != Linux ]; then \
	  echo "installing torch"; $(PIP) 'torch>=2.11,<3'; \
	else \
	  echo "installing torch $(TORCH_CPU)"; \
	  $(PIP) --extra-index-url https://download.pytorch.org/whl/cpu 'torch==$(TORCH_CPU)' || \
	  { echo "torch $(TORCH_CPU) is not to be had here; installing the newest CPU build"; \
	    $(PIP) --index-url https://download.pytorch.org/whl/cpu 'torch>=2.11,<3'; } || \
	  { echo "no CPU build is to be had here; installing the default build of torch (may be several GB)"; \
	    $(PIP) 'torch>=2.11,<3'; }; \
	fi
	@touch $@

$(VENV)/.engine: $(VENV)/.torch pyproject.toml
	@echo "installing the harness and the embedded engine"
	@$(PIP) -e '.[engine]'
	@touch $@

$(VENV)/.test: $(VENV)/.engine pyproject.toml
	@echo "installing what the tests need"
	@$(PIP) -e '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test pyproject.toml
	@echo "installing linters"
	@$(PIP) -e '.[dev]'
	@touch $@

report: $(VENV)/.engine  ## start the embedded engine, run the suites, write runs/latest/report.html
	@$(BIN)/fidelity run --deployment embedded --budget $(BUDGET)

test: $(VENV)/.test  ## the project's own tests
	@$(BIN)/python -m pytest tests

micro: $(VENV)/.test  ## the microtests of the patches, on the CPU
	@$(BIN)/python -m pytest suites/patches

acceptance: $(VENV)/.test  ## real runs of the product: faults, proxies, kills (Linux; half an hour)
	@$(BIN)/python -m pytest tests/acceptance -m acceptance -v --durations=0 --durations-min=1

check: $(VENV)/.dev  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

wheel: $(VENV)/.base  ## build the wheel of the endpoint harness into dist/
	@$(PIP) build
	@$(BIN)/python -m build --wheel --outdir dist .

serve: $(VENV)/.engine  ## serve the embedded engine on port 8000
	@$(BIN)/python -m engine serve --model engine/checkpoints/nano --port 8000

schema: $(VENV)/.base  ## write what fidelity.toml may hold: JSON schema and docs/configuration.md
	@$(BIN)/fidelity schema --into docs/fidelity.schema.json
	@$(BIN)/fidelity schema --reference --into docs/configuration.md

real-engines: $(VENV)/.base  ## install real engines into .real-engines/ (ENGINES=llamacpp for one of them)
	@$(BIN)/python deploy/real_engines/install.py $(ENGINES)

llamacpp-quick: $(VENV)/.engine  ## install llama.cpp's server and run two quick suites on it (5 minutes)
	@$(MAKE) --no-print-directory real-engines ENGINES=llamacpp
	@$(BIN)/python deploy/real_engines/quick_check.py llamacpp

clean:  ## remove the environment, caches and build products (keeps runs/)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
