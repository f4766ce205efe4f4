# Everything runs inside .venv, created on first use. PYTHON selects the interpreter.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TRITON ?= .venv-triton
MLSERVER ?= .venv-mlserver
RAY ?= .venv-ray
PERF_ANALYZER ?= .venv-perf
GRPCIO ?= .venv-grpcio
# parallel test processes: three keep two cores busy, since tests wait as well; tests of one file share a process
WORKERS ?= 4
# what `make test-compiled` runs: the tests of transports, codecs and plans
COMPILED_TESTS ?= tests/test_compiled.py tests/protocols/transport/h2 tests/protocols/transport/grpc \
	tests/protocols/transport/http tests/protocols/transport/http1 tests/protocols/transport/brpc \
	tests/protocols/transport/test_writes.py tests/protocols/transport/test_turns.py \
	tests/protocols/transport/test_load.py tests/protocols/test_protobuf_wire.py tests/protocols/oip \
	tests/translator/serving tests/runtime/upstream tests/runtime/models/test_statistics.py
BIN := $(VENV)/bin
# the daemons and commands that tests start would compile every module again
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run run-ray test test-browser test-ray test-ray-short bench-ray constraints test-wheel test-deploy test-workers test-python test-torch lint format docs schemas schemas-check sbom audit properties fuzz chaos kills handovers soak bench hostile bench-bridging peers-install peers clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.installed-run ## install and start the daemon on config.example.yaml
	$(BIN)/interlingua serve -c config.example.yaml

run-ray: $(RAY)/.installed ## install Ray, start a cluster here, and serve examples on it
	$(RAY)/bin/interlingua serve -c examples/ray.yaml

test: $(VENV)/.installed-dev ## install and run every test without special requirements
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

constraints: ## renew constraints.txt with the newest releases for `make test`
	rm -rf $(VENV)-constraints
	$(PYTHON) -m venv $(VENV)-constraints
	$(VENV)-constraints/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(VENV)-constraints/bin/python -m pip install --quiet --disable-pip-version-check --no-deps graphpipe==1.0.4
	$(VENV)-constraints/bin/python -m pip freeze --exclude-editable > constraints.txt
	rm -rf $(VENV)-constraints

test-wheel: $(VENV)/.installed-dev ## build sdist and wheel, test them in an empty environment
	$(BIN)/python scripts/try_wheel.py

test-deploy: $(VENV)/.installed-deploy ## what deploy/ has: schemas, metrics, rules, the steps of the image in empty folders
	DEPLOY_IMAGE=1 $(BIN)/python -m pytest tests/deploy

compiled: $(VENV)-compiled/.installed ## build with hot modules compiled, in .venv-compiled (docs/adr/compiled.md)

test-compiled: $(VENV)-compiled/.installed ## the tests of what is compiled, on that build
	PYTHONSAFEPATH=1 $(VENV)-compiled/bin/python -m pytest -o pythonpath= -n $(WORKERS) $(COMPILED_TESTS)

test-workers: $(VENV)/.installed-dev ## the end-to-end tests with two front ends per daemon (DAEMON_WORKERS=2, EVERY=3: a third)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--daemon-workers $(or $(DAEMON_WORKERS),2) --every $(or $(EVERY),1) tests/e2e

test-browser: $(VENV)/.installed-dev ## the dashboard in a real Chromium, if that is installed
	$(BIN)/python -m pytest -m browser -n 2 tests/browser

test-ray: $(RAY)/.installed ## install Ray and run the tests on a cluster of three nodes here
	$(RAY)/bin/python -m pytest -m ray tests/ray

test-ray-short: $(RAY)/.installed ## the same with one node and two replicas, without the long ones
	$(RAY)/bin/python -m pytest -m 'ray and not long' tests/ray

bench-ray: $(RAY)/.installed ## what a request costs on Ray, vs. here and vs. Serve's proxy (BENCH_ARGS=--quick)
	$(RAY)/bin/python -m benchmarks.ray $(BENCH_ARGS)

test-python: ## `make test` under another CPython, in a tree of Debian that is removed again; as root (SUITE=trixie)
	scripts/test_python.sh $(or $(SUITE),trixie) test WORKERS=$(WORKERS)

test-torch: $(VENV)/.installed-dev ## install PyTorch and run the tests that need it
	$(PIP) install $(TORCH)
	$(BIN)/python -m pytest tests/runtime/backends/test_torch.py tests/e2e/test_torch.py

lint: $(VENV)/.installed-dev ## ruff, ruff format, mypy (strict), imports of every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@echo importing every test
	@found=$$($(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider) || { echo "$$found" | sed '1,/ ERRORS /d'; exit 1; }

format: $(VENV)/.installed-dev ## sort imports and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## the documentation site in site/, with strict links; follow its tutorial in an empty folder
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	DOCS=1 $(BIN)/python -m pytest tests/e2e/test_tutorial.py tests/e2e/test_readme.py

schemas: $(VENV)/.installed-dev ## regenerate descriptor sets and the flatc oracle from schemas/
	$(BIN)/python scripts/compile_schemas.py

schemas-check: $(VENV)/.installed-dev ## fail if a generated artefact is stale
	$(BIN)/python scripts/compile_schemas.py --check

properties: $(VENV)/.installed-dev ## the properties of `make test` with 20 times the examples (PROPERTY_EXAMPLES=2000)
	PROPERTY_EXAMPLES=$(or $(PROPERTY_EXAMPLES),2000) $(BIN)/python -m pytest -m 'hypothesis and not peers' --timeout 3600

fuzz: $(VENV)/.installed-fuzz ## fuzz every decoder, resuming from .fuzz/ (FUZZ_SECS=60 each, FUZZ_TARGETS=all)
	$(BIN)/python -m tests.fuzz --secs $(or $(FUZZ_SECS),60) $(FUZZ_TARGETS)

chaos: $(VENV)/.installed-dev ## faults around the real daemon, clients of every dialect check every answer (CHAOS_ARGS="--secs 6 network")
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

handovers: $(VENV)/.installed-dev ## replace a daemon again and again, under load (HANDOVERS_ARGS="--rounds 10")
	$(BIN)/python -m tests.chaos.handovers $(HANDOVERS_ARGS)

kills: $(VENV)/.installed-dev ## kill each kind of process of a server of several, under load (KILLS_ARGS="--rounds 20")
	$(BIN)/python -m tests.chaos.kills $(KILLS_ARGS)

soak: $(VENV)/.installed-dev ## mixed and hostile traffic for 30 minutes, 100 reloads (SOAK_SECS=1800 SOAK_ROUNDS=100 SOAK_PLOT=)
	SOAK_SECS=$(or $(SOAK_SECS),1800) SOAK_ROUNDS=$(or $(SOAK_ROUNDS),100) SOAK_PLOT=$(SOAK_PLOT) $(BIN)/python -m pytest \
		tests/e2e/test_soak.py tests/e2e/test_reload.py -k "nothing_grows or nothing_is_left" \
		--timeout 3600 --capture no

bench: $(VENV)/.installed-dev ## CPU per request vs. bare servers, batching vs. installed peers (BENCH_ARGS=--quick)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)
	TRITON_ENVIRONMENT=$(wildcard $(TRITON)) MLSERVER_ENVIRONMENT=$(wildcard $(MLSERVER)) \
	$(BIN)/python -m benchmarks.batching $(BENCH_ARGS)
	MLSERVER_ENVIRONMENT=$(wildcard $(MLSERVER)) $(BIN)/python -m benchmarks.tabular $(BENCH_ARGS)

hostile: $(VENV)/.installed-dev ## attacks beside an honest client, both engines and nghttpd (HOSTILE_ARGS=--quick)
	$(BIN)/python -m benchmarks.hostile $(HOSTILE_ARGS)

bench-bridging: $(VENV)/.installed-dev ## CPU per request between caller and upstream, vs. relays (BENCH_ARGS=--quick)
	TRITON_ENVIRONMENT=$(wildcard $(TRITON)) $(BIN)/python -m benchmarks.bridging $(BENCH_ARGS)

peers-install: $(TRITON)/.installed $(MLSERVER)/.installed ## install Triton and MLServer for `make bench`

peers: $(VENV)/.installed-dev $(TRITON)/.installed $(MLSERVER)/.installed $(PERF_ANALYZER)/.installed $(if $(EVERY),,$(GRPCIO)/.installed) ## test with real Triton, MLServer, KServe, perf_analyzer and old grpcio (EVERY=2: half, without grpcio)
	TRITON_ENVIRONMENT=$(TRITON) MLSERVER_ENVIRONMENT=$(MLSERVER) \
	PERF_ANALYZER_ENVIRONMENT=$(PERF_ANALYZER) GRPCIO_ENVIRONMENTS=$(GRPCIO) \
	$(BIN)/python -m pytest -m 'peers$(if $(EVERY), and not long)' --every $(or $(EVERY),1) tests/peers

sbom: $(VENV)-release/.installed $(VENV)-audit/.installed ## list what users install: sbom.cdx.json, in CycloneDX
	$(VENV)-audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON \
		--output-file sbom.cdx.json $(VENV)-release/bin/python

audit: $(VENV)-release/.installed $(VENV)-audit/.installed ## search advisories for what users install (AUDIT_ARGS="-s osv")
	$(VENV)-audit/bin/python scripts/audit.py $(VENV)-release $(AUDIT_ARGS)

clean: ## remove the environments and tool caches
	rm -rf $(VENV) $(RAY) $(VENV)-compiled $(VENV)-constraints $(VENV)-release $(VENV)-audit sbom.cdx.json $(TRITON) $(MLSERVER) $(PERF_ANALYZER) $(GRPCIO) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable '.[onnx,images]'
	@touch $@

# graphpipe's own pins do not resolve on a current Python; it works without them.
$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	$(PIP) install --constraint constraints.txt --no-deps graphpipe
	@touch $@ $(VENV)/.installed-run

# atheris has wheels for Linux on x86-64 alone; without one `make fuzz` reports it.
$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	$(PIP) install --editable '.[fuzz]'
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-run

$(VENV)/.installed-deploy: $(VENV)/.installed-dev
	$(PIP) install --constraint constraints.txt --editable '.[deploy]'
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-run

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-run

# what users install, and nothing else: without pip, which is not part of the program
$(VENV)-release/.installed: pyproject.toml constraints.txt
	rm -rf $(VENV)-release
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt '.[onnx,sklearn,xgboost,lightgbm,jwt,otlp,images]'
	$(VENV)-release/bin/python -m pip uninstall --quiet --yes setuptools pip
	@touch $@

$(VENV)-audit/.installed:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7' 'pip-audit>=2.9'
	@touch $@

# What is installed there takes the place of the sources, with PYTHONSAFEPATH; the environment borrows the
# dependencies of the other and finds the tests by a .pth file, whose paths come last.
$(VENV)-compiled/.installed: $(VENV)/.installed-dev setup.py $(shell find -L interlingua -name '*.py')
	rm -rf $(VENV)-compiled build/lib*
	$(BIN)/python -m venv --without-pip $(VENV)-compiled
	INTERLINGUA_COMPILE=1 $(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(VENV)-compiled .
	$(PIP) --python $(VENV)-compiled install --no-deps $(VENV)-compiled/*.whl
	printf '%s\n' $(abspath $(VENV))/lib/python3*/site-packages $(CURDIR) > \
		$$(echo $(VENV)-compiled/lib/python3*/site-packages)/environment.pth
	@touch $@

$(RAY)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[onnx,images,ray,test]'
	@touch $@

# The wheel contains Triton 2.51's server binary; it requires the system library libpython3.11 and numpy 1.
$(TRITON)/.installed:
	$(PYTHON) -m venv $(TRITON)
	$(TRITON)/bin/python -m pip install --quiet --disable-pip-version-check nvidia-pytriton==0.7.0 'numpy<2' onnxruntime
	@touch $@

$(MLSERVER)/.installed:
	$(PYTHON) -m venv $(MLSERVER)
	$(MLSERVER)/bin/python -m pip install --quiet --disable-pip-version-check mlserver==1.7.1 mlserver-sklearn==1.7.1 \
		mlserver-lightgbm==1.7.1 onnxruntime $$(grep -E '^(scikit-learn|lightgbm|xgboost-cpu)==' constraints.txt)
	$(MLSERVER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mlserver-xgboost==1.7.1
	@touch $@

# An old wheel of tritonclient contains the program; it requires the system library libb64-0d, and the CUDA runtime
# of the other wheel.
$(PERF_ANALYZER)/.installed: $(TRITON)/.installed
	$(PYTHON) -m venv $(PERF_ANALYZER)
	$(PERF_ANALYZER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps tritonclient==2.45.0
	chmod +x $(PERF_ANALYZER)/bin/perf_analyzer
	ln -sf $$(realpath $(TRITON)/lib/python3*/site-packages/nvidia_pytriton.libs/libcudart-*) \
		$(PERF_ANALYZER)/lib/libcudart.so.12
	@touch $@

# An environment for each core of gRPC that resets streams before it opens them, from the oldest to the newest.
$(GRPCIO)/.installed:
	for version in 1.49.1 1.59.5 1.71.2; do \
		$(PYTHON) -m venv $(GRPCIO)/$$version && \
		$(GRPCIO)/$$version/bin/python -m pip install --quiet --disable-pip-version-check grpcio==$$version || exit 1; \
	done
	@touch $@
