SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.requirements-installed

.PHONY: help setup demo test parts check explore soak test-vllm audit sbom bench lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## the virtual environment .venv from the lock file, all extras

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

lock: ## resolve pyproject.toml anew into requirements.lock (names, versions, hashes; no addresses)
	$(PYTHON) -m venv .cache/lock && .cache/lock/bin/pip install --quiet uv
	.cache/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes --no-annotate --no-header --no-emit-package lora-autoscaler pyproject.toml -o requirements.lock

demo: setup ## the main job on this machine: a fleet suffers, then the controller cures it
	$(BIN)/lora-autoscaler demo $(ARGS)

# Real parts share two cores with nobody else; what fails on a busy machine gets one second chance, and both are shown.
test: setup parts ## every test, with the real parts
	$(BIN)/pytest -q -n 2 -m 'not e2e' $(ARGS) || $(BIN)/pytest -q -m 'not e2e' --last-failed --last-failed-no-failures none $(ARGS)
	$(BIN)/pytest -q -m e2e $(ARGS) || $(BIN)/pytest -q -m e2e --last-failed --last-failed-no-failures none $(ARGS)

parts: setup ## the real parts that `test` runs: Debian packages when root, control plane, Prometheus 3, Helm, kubectl
	$(BIN)/python -m tests.e2e.parts

check: setup ## format, lint, types, import contracts, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2 -m 'not slow and not e2e'

explore: setup ## property tests on examples that nobody ran yet; keep what fails as a test
	HYPOTHESIS_PROFILE=explore $(BIN)/pytest -q -n 2 -m 'not e2e' $(ARGS)

soak: setup ## hours in virtual time, then 20 minutes of everything for real: memory and file handles must stay flat
	$(BIN)/python -m tests.soak $(ARGS)

test-vllm: setup ## two real vLLM servers on the processor under the controller; 6 GB of disk and 9 GB of memory, 10 minutes and more
	$(BIN)/python -m tests.vllm.install
	$(BIN)/pytest -q -s --timeout 3600 tests/vllm/real_vllm.py $(ARGS)

audit: setup ## ask the public advisory database about every locked package; needs a network that reaches it
	$(BIN)/pip-audit --disable-pip --require-hashes -r requirements.lock

sbom: setup ## the locked packages as a CycloneDX bill of materials, sbom.cdx.json; needs no network
	$(BIN)/python -m tests.security.sbom > sbom.cdx.json

bench: setup ## every benchmark, one table; recordings are read from DATA where it is given
	$(BIN)/python -m benchmarks $(if $(DATA),--data $(DATA))

clean: ## remove what the targets made
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
