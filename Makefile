# Everything runs in its own virtual environment, .venv, which is made on first use.
# Each extra of pyproject.toml is installed once and again only after pyproject.toml changes.

PYTHON ?= python3
JOBS ?= 2
# Sweeps try some of their cases, other ones for each commit; `make test THIN=` tries all.
THIN ?= --thin
VENV := .venv
RUN := $(VENV)/bin/python -m

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test smoke soak gpu oracle packages lint style types docs bench clean

help:
	@echo "make demo     train a reader of digits here, eager and replay (pictures: build/)"
	@echo "make test     run the tests (JOBS=$(JOBS) processes), with some cases of each sweep; all: THIN="
	@echo "make smoke    run the few tests that take seconds"
	@echo "make soak     run all cases of all tests, interrupt and fork native programs, kill ranks,"
	@echo "              run 20000 programs (hours)"
	@echo "make gpu      run the tests of GPUs, and 2000 programs, on the GPU of this machine"
	@echo "make oracle   compare results with PyTorch (installs torch), as above"
	@echo "make packages compare packages written for PyTorch with and without it (installs them)"
	@echo "make lint     check style (make style) and types (make types)"
	@echo "make docs     write docs/reference and the stub files again"
	@echo "make bench    time against PyTorch and JAX (installs both)"
	@echo "make clean    remove $(VENV), caches and build outputs"

demo: $(VENV)/.installed-test
	@$(VENV)/bin/tapegrad demo digits --output build

test: $(VENV)/.installed-test $(VENV)/.installed-mpi
	$(RUN) pytest tests --ignore=tests/oracle -m "not oracle" -n $(JOBS) --dist loadfile $(THIN)

smoke: $(VENV)/.installed-test
	$(RUN) pytest -q tests/test_smoke.py

soak: $(VENV)/.installed-test $(VENV)/.installed-mpi
	$(MAKE) test oracle THIN=
	$(VENV)/bin/python tests/soak_signals.py 1000
	$(VENV)/bin/python tests/soak_forks.py 200
	$(VENV)/bin/python tests/soak_ranks.py 200
	$(VENV)/bin/python tests/fuzz_replay.py --count 20000 --jobs $(JOBS)

gpu: $(VENV)/.installed-test
	@$(VENV)/bin/python -c 'import sys, tapegrad; sys.exit("this machine has no GPU that CuPy can use" \
		if not tapegrad.cuda.is_available() else 0)'
	$(RUN) pytest tests/test_cuda*.py tests/test_benchmark_gpu.py -n $(JOBS)
	$(VENV)/bin/python tests/fuzz_replay.py --device cuda --count 2000 --jobs $(JOBS)

oracle: $(VENV)/.installed-test $(VENV)/.installed-oracle
	$(RUN) pytest tests/oracle $$(grep -l mark.oracle tests/test_*.py) -m oracle -n $(JOBS) $(THIN)

# The packages come without their dependencies: nothing may install PyTorch beside them.
PACKAGES := build/packages
packages: $(VENV)/.installed-test $(VENV)/.installed-oracle
	@test -x $(PACKAGES)/bin/pip || $(PYTHON) -m venv $(PACKAGES)
	$(PACKAGES)/bin/pip install -qq --disable-pip-version-check --editable . \
		-r tests/packages/needed.txt
	$(PACKAGES)/bin/pip install -qq --disable-pip-version-check --no-deps -r tests/packages/packages.txt
	TAPEGRAD_PACKAGES=$(PACKAGES)/bin/python $(RUN) pytest tests/packages

lint: style types

style: $(VENV)/.installed-lint
	$(RUN) ruff format --check .
	$(RUN) ruff check .

types: $(VENV)/.installed-lint
	$(RUN) mypy

docs: $(VENV)/.installed-test
	$(RUN) tools.stubs
	$(RUN) tools.reference

bench: $(VENV)/.installed-bench
	$(RUN) benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp of one extra: .installed-test, .installed-lint, .installed-oracle, .installed-bench.
$(VENV)/.installed-%: pyproject.toml | $(VENV)/bin/pip
	@echo "Installing tapegrad[$*] into $(VENV)"
	@$(RUN) pip install -qq --disable-pip-version-check --editable '.[$*]'
	@$(RUN) compileall -q tapegrad  # an editable install is not compiled by pip
	@touch $@

# pip is the last thing that venv writes, so an environment that failed halfway is made again.
$(VENV)/bin/pip:
	@command -v $(PYTHON) >/dev/null || \
		{ echo "tapegrad needs Python 3.11 or newer; found no $(PYTHON)." \
			"Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"tapegrad needs Python 3.11 or newer; $(PYTHON) is %d.%d. " % sys.version_info[:2] + \
		"Name a newer one: make PYTHON=/path/to/python3")'
	@$(PYTHON) -m venv --clear $(VENV)
