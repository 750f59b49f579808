# Every target sets up what it needs in .venv, from hash-pinned files. Needs Python 3.11 or newer, and make.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip install -q --no-input
COMPILE := uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: help demo demo-vast test test-browser gpu-check test-prover test-crash test-images test-vast-conformance test-diagnosis bench-prover bench-market bench-archive lint lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(VENV)/.control ## start everything, benchmark this machine, stay up (ARGS=--once: stop afterwards)
	@PROVEFLEET_STATE_DIR="$${PROVEFLEET_STATE_DIR:-$(CURDIR)/.provefleet}" $(BIN)/provefleet demo $(ARGS)

demo-vast: $(VENV)/.dev ## the demo on a marketplace that is only here, with real agents (ARGS=--once: stop afterwards)
	@$(BIN)/python -m tests.fakes.vast.demo $(ARGS)

test: $(VENV)/.dev ## the core tests, under 8 minutes; lists at the end what was skipped and why
	$(BIN)/python -m pytest -rs -n 4 --dist loadgroup -m "not browser and not images and not crash and not prover and not conformance and not corpus" $(ARGS)

test-prover: $(VENV)/.cuda-build ## the long tests of the prover: every operation, malformed files, daemon and bench; 10 minutes
	$(BIN)/python -m pytest -rs -n 2 --dist loadgroup -m prover tests/gpu $(ARGS)

gpu-check: $(VENV)/.control ## check and time the prover on this machine's GPU, at most 5 minutes; figures in gpu-check.json
	@$(BIN)/python -m gpu.cuda.presence
	@$(MAKE) -s gpu/cuda/kernels/manifest.json
	@$(BIN)/python -m gpu.cuda.check $(ARGS)

.PHONY: gpu/cuda/kernels/manifest.json  # only the build knows what is up to date
gpu/cuda/kernels/manifest.json: $(VENV)/.cuda-build
	@$(BIN)/python -m gpu.cuda.build gpu/cuda/kernels

test-crash: $(VENV)/.dev ## 10,000 schedules of cuts, the nasty cases of the marketplace, the longer faults against the running stack
	$(BIN)/python -m pytest -rs -n 3 --dist loadgroup -m crash $(ARGS)

test-images: $(VENV)/.dev ## build the images and run the demo inside (root, buildah and debootstrap), 8 minutes
	@./tests/images/install
	$(BIN)/python -m pytest -rs -m images tests/images $(ARGS)

test-vast-conformance: $(VENV)/.dev .venv-vastai/.made ## the real vastai CLI and SDK drive the fake market (ARGS=--record: keep what they said), 2 minutes
	$(BIN)/python -m pytest -rs -m conformance tests/conformance $(ARGS)

test-diagnosis: $(VENV)/.dev ## causes of the labelled failures in tests/corpus: top-1 and top-3 on cases that no signature was written from
	$(BIN)/python -m pytest -rs -s -m corpus tests/corpus $(ARGS)

test-browser: $(VENV)/.dev ## every page in headless Chromium, in four sizes, light and dark
	$(BIN)/python -m pytest -rs -m browser tests/browser $(ARGS)

bench-prover: $(VENV)/.bench tests/js/node_modules ## the prover beside snarkjs, groth16py, arkworks, py_ecc (FULL=1: 2^20 too; ROWS=msm,ntt: some)
	$(BIN)/python -m tests.bench.prover

bench-market: $(VENV)/.dev ## ranking, forecasts, early stops and reconcile on simulated markets (PARTS="rank choice": some; ROUNDS=12; SEED=8000)
	$(BIN)/python -m tests.bench.market $(PARTS)

bench-archive: $(VENV)/.dev ## ingest, loss on SIGKILL, page of a 1,000,000-line log, search of 1 GB, tail latency of 200 viewers (PARTS="ingest search": some)
	$(BIN)/python -m tests.bench.archive $(PARTS)

lint: $(VENV)/.dev ## ruff, the arrows between the rooms, mypy
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

lock: ## write requirements/*.txt anew from pyproject.toml (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv; see CONTRIBUTING.md" >&2; exit 1; }
	$(COMPILE) pyproject.toml -o requirements/base.txt
	$(COMPILE) pyproject.toml --extra control -o requirements/control.txt
	$(COMPILE) pyproject.toml --extra control --extra dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra control --extra dev --extra cuda --extra cuda-build -o requirements/cuda-build.txt
	$(COMPILE) pyproject.toml --extra cuda-build -o requirements/kernels.txt
	$(COMPILE) pyproject.toml --extra cuda -o requirements/cuda.txt
	$(COMPILE) pyproject.toml --extra control --extra bench -o requirements/bench.txt
	echo "vastai==1.9.1" | $(COMPILE) - -o requirements/vastai.txt
	echo "hatchling>=1.27" | $(COMPILE) - -o requirements/build.txt

clean: ## remove .venv and the caches (not the state folder)
	rm -rf $(VENV) .venv-vastai .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# A half-made folder has no stamp, and is made again.
$(VENV)/.made:
	@./.ci/venv $(VENV)
	@touch $@

$(VENV)/.control: $(VENV)/.made requirements/control.txt requirements/build.txt pyproject.toml
	@echo "installing what the control plane needs into $(VENV)"
	@$(PIP) --require-hashes -r requirements/build.txt
	@$(PIP) --require-hashes -r requirements/control.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q provefleet.py web jobs gpu logs  # pip does that for what it copies
	@touch $@

$(VENV)/.dev: $(VENV)/.control requirements/dev.txt
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

# The compiler of the GPU kernels, 800 MB: only what tests or builds kernels needs it.
$(VENV)/.cuda-build: $(VENV)/.dev requirements/cuda-build.txt
	@echo "installing what compiles GPU kernels into $(VENV)"
	@$(PIP) --require-hashes -r requirements/cuda-build.txt
	@touch $@

# Vast's own client, 200 MB: in a place of its own, since its exact pins fit no Flask app.
.venv-vastai/.made: requirements/vastai.txt
	@./.ci/venv .venv-vastai
	@.venv-vastai/bin/python -m pip install -q --no-input --require-hashes -r requirements/vastai.txt
	@touch $@

tests/js/node_modules: tests/js/package-lock.json
	npm ci --prefix tests/js --no-audit --no-fund --silent
	@touch $@

$(VENV)/.bench: $(VENV)/.control requirements/bench.txt
	@echo "installing the peers of the benchmarks into $(VENV)"
	@$(PIP) --require-hashes -r requirements/bench.txt
	@touch $@
