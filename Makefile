# Every command sets up what it needs: an environment in .venv, packages, jars. Again is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.installed-docs
TOOLS := .venv-tools
TOOLS_INSTALLED := $(TOOLS)/.installed
# A file with another hash than those in `requirements` is not installed, from whatever index it comes.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --require-hashes
BENCHES := $(sort $(patsubst benchmarks/%.py,%,$(shell grep -l __main__ benchmarks/*.py)))
# Tests mostly wait for servers: three files run at a time, each with servers of its own (on two processors 913 s; two
# files 1179 s, four 988 s). The longest come first (tests/durations.json), and the unit tests fill what they leave.
# A worker that ends has its file run again by a new one; one that ends for a third time is no chance.
WORKERS ?= --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 2
# Databases come and go by the hundred, which takes a sixth less of the processors' time in memory than on a disk, where there is
# a file system with 4 GB for it. Tests that pass leave nothing there.
MEMORY = $(shell [ -w /dev/shm ] && [ "$$(df --output=avail -k /dev/shm | tail -n 1)" -gt 4000000 ] && echo /dev/shm)
LOCK = $(TOOLS)/bin/uv pip compile --quiet $(ARGS) --universal --generate-hashes --no-emit-index-url \
  --no-annotate --custom-compile-command 'make lock' --python-version
AS_DEV := --constraint requirements/dev.txt
# The extras in the image of compose/Dockerfile.
IN_IMAGE := relay consume push producer otel schema-registry
# More arguments for the command: make test ARGS='-k outbox', make demo ARGS=--json
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup jars demo webhook test matrix proof fuzz check audit sbom dist lock docs bench scale format clean $(addprefix bench-,$(BENCHES))
.SUFFIXES:
# Benchmarks that run at once measure each other.
.NOTPARALLEL:

help:  ## say what there is
	@awk 'BEGIN { FS = ":.*  ## " } /^[a-zA-Z%-]+:.*  ## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile
	@echo 'make bench-NAME   one benchmark of: $(BENCHES)'
	@echo
	@echo 'PYTHON=python3.12 make …  takes another Python (>= 3.11) for a new $(VENV)'
	@echo "ARGS='…'                  goes to the command that is run"

demo: jars  ## real flights from Postgres to a deduplicated topic, exactly once
	@$(BIN)/dovecote demo $(ARGS)

test: jars  ## all tests, against a real Postgres and a real Kafka
	@$(BIN)/python -m tests.spark_classes
	@$(if $(TMPDIR),,$(if $(MEMORY),TMPDIR=$(MEMORY))) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(WORKERS) $(ARGS)

# With one environment a time, and two files of tests. What is fetched stays in the user's cache, in `matrix`.
matrix: jars $(TOOLS_INSTALLED)  ## the tests that matter on old and new servers, Pythons and packages (ARGS=--quick: CI's)
	@$(if $(TMPDIR),,$(if $(MEMORY),TMPDIR=$(MEMORY))) $(BIN)/python -m tests.matrix $(ARGS)

webhook: jars  ## flights over HTTP to a receiver that verifies their signatures
	@$(BIN)/python -m examples.webhook

proof: jars  ## kill and disturb the relay for ten minutes (ARGS='--seconds 60'), then count
	@$(BIN)/python -m proof $(ARGS)

fuzz: $(INSTALLED)  ## odd records, answers, files, logs and traces for five minutes (ARGS='--minutes 60')
	@$(BIN)/python -m tests.fuzz $(ARGS)

check: $(INSTALLED)  ## format, lint, types, imports, known vulnerabilities
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory audit

# It fails if a package has a known vulnerability, and only then: a machine may reach no database.
audit: $(INSTALLED)  ## look the locked packages up in a database of vulnerabilities
	@$(MAKE) --no-print-directory $(TOOLS_INSTALLED) >/dev/null 2>&1 || true
	@$(BIN)/python -m tests.audit $(TOOLS)/bin/pip-audit

sbom: $(INSTALLED) $(TOOLS_INSTALLED)  ## write dist/dovecote.cdx.json: the installed packages, CycloneDX
	@mkdir -p dist
	@$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml \
	  --output-reproducible --of JSON -o dist/dovecote.cdx.json
	@echo 'dist/dovecote.cdx.json'

# What renders the chart in tests, from source: a minute and a half once, and then a moment.
.helm/helm:
	@command -v go >/dev/null || { echo 'helm is built with Go, and there is none: install Go, or helm itself' >&2; exit 1; }
	GOBIN='$(CURDIR)/.helm' go install helm.sh/helm/v3/cmd/helm@v3.22.0

# The wheel is built from the sdist. Then it is installed for the oldest and the newest Python that is here.
dist: $(INSTALLED) $(TOOLS_INSTALLED)  ## sdist and wheel in dist/, checked, and tried in fresh environments
	@rm -f dist/dovecote-*.tar.gz dist/dovecote-*.whl
	@$(TOOLS)/bin/python -m build --no-isolation --outdir dist . >dist.log 2>&1 || { cat dist.log >&2; rm dist.log; exit 1; }; rm dist.log
	@$(TOOLS)/bin/twine check --strict dist/dovecote-*
	@$(BIN)/python -m tests.artefacts $(ARGS)

# Versions stay as they are unless ARGS says otherwise. Markers serve all Pythons from the given one on.
lock: $(TOOLS_INSTALLED)  ## pin all packages with their hashes in requirements/ (ARGS=--upgrade: newest)
	$(LOCK) 3.11 --output-file requirements/dev.txt --extra dev pyproject.toml
	$(LOCK) 3.11.5 --output-file requirements/docs.txt --extra docs $(AS_DEV) pyproject.toml
	$(LOCK) 3.11 --output-file requirements/image.txt $(foreach each,$(IN_IMAGE),--extra $(each)) $(AS_DEV) pyproject.toml
	$(LOCK) 3.11 --output-file requirements/demo.txt $(foreach each,$(IN_IMAGE) demo,--extra $(each)) $(AS_DEV) pyproject.toml
	$(LOCK) 3.11 --output-file requirements/flights.txt $(AS_DEV) requirements/flights.in
	$(LOCK) 3.11 --output-file requirements/build.txt $(AS_DEV) requirements/build.in
	$(LOCK) 3.11 --output-file requirements/tools.txt requirements/tools.in
	$(LOCK) 3.11 --output-file requirements/sbom.txt --constraint requirements/tools.txt requirements/sbom.in

# Without the variable, Material advertises its successor at each start.
docs: $(DOCS_INSTALLED)  ## build the site of the documents in site/, strictly: links, anchors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo 'open site/index.html'

format: $(INSTALLED)  ## format, and repair what lint can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(addprefix bench-,$(filter-out peers,$(BENCHES)))  ## every benchmark of our own, one JSON line a measurement

$(addprefix bench-,$(BENCHES)): bench-%: jars
	@$(BIN)/python -m benchmarks.$* $(ARGS)

scale: jars $(DOCS_INSTALLED)  ## what an event costs as the work grows, drawn into docs/images/scale (ARGS='--only relay-keys')
	@$(BIN)/python -m benchmarks.scale --folder docs/images/scale $(ARGS)

setup: jars  ## only the environment and the jars

clean:  ## remove the environment and caches; servers' data and fetched jars stay
	rm -rf $(VENV) $(TOOLS) .helm dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# They lie in a cache of the user's; to see that they are there takes a moment only.
jars: $(INSTALLED)
	@$(BIN)/python -m dovecote.devstack.kafka.jars >/dev/null

$(INSTALLED): pyproject.toml requirements/build.txt requirements/dev.txt
	@command -v '$(PYTHON)' >/dev/null || { \
	  echo 'Dovecote needs Python >= 3.11, and there is no $(PYTHON). Install it, or: make PYTHON=/path/to/python3' >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Dovecote needs Python >= 3.11; $(PYTHON) is $$('$(PYTHON)' --version). Try: make PYTHON=python3.12" >&2; exit 1; }
	@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make environments: its module venv or ensurepip is missing. On Debian: apt install python3-venv' >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || '$(PYTHON)' -m venv --clear $(VENV)
	$(INSTALL) --requirement requirements/build.txt
	$(INSTALL) --no-build-isolation --requirement requirements/dev.txt
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED) requirements/docs.txt
	$(INSTALL) --requirement requirements/docs.txt
	@touch $@

$(TOOLS_INSTALLED): requirements/tools.txt
	@'$(PYTHON)' -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --disable-pip-version-check --require-hashes --requirement $<
	@touch $@
