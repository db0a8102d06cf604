# bccnd: `make demo` shows it, `make test` proves it. Both install what they need.
.DEFAULT_GOAL := help
.PHONY: help demo demo-fleet run test test-systemd wheel deb man bench bench-pipeline scale soak lint format pin clean

# The system's Python first: it is the one that services run on, and the fastest build of it.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BUILT := $(VENV)/.built
CONSTRAINTS := packaging/constraints.txt
PLAY := /tmp/bccnd-play-$(shell id -u)

help:
	@echo 'make demo    set up everything, then show in a minute what bccnd does, and a page about it (loopback only)'
	@echo 'make demo-fleet  simulate an hour of 20 hosts with known faults, and show the report that finds them'
	@echo 'make run     a daemon in the foreground to play with (loopback only, no root)'
	@echo 'make test    set up everything, then check style, types and behaviour'
	@echo 'make test-systemd  boot hosts by systemd and test the package on them (root; five minutes)'
	@echo 'make wheel   build a wheel for this Python, hot path compiled, into dist/ (BCCND_PURE=1: not compiled)'
	@echo 'make deb     build the Debian package into dist/ (DEB_VERSION=0.1.0+test2: under another version)'
	@echo 'make man     look through the manual pages, and lay them out as text in build/man/'
	@echo 'make bench   what a message costs, beside the least it can cost and other brokers (half an hour, a quiet machine)'
	@echo 'make scale   what it costs as things grow; the tables and charts of docs/scaling.md (half an hour)'
	@echo 'make bench-pipeline  what the tables of 1 and 10 million rows take, and that they are right (ten minutes)'
	@echo 'make soak    ten minutes of random frames from 50 clients, held to a model (MINUTES=10)'
	@echo 'make lint    style and types only'
	@echo 'make format  put the style right'
	@echo 'make pin     write the versions in use to $(CONSTRAINTS)'
	@echo 'make clean   remove what make has made here'

$(READY): pyproject.toml $(CONSTRAINTS) packaging/need.sh
	@test -n '$(PYTHON)' || { echo 'bccnd needs Python 3.11 or newer: apt-get install python3'; exit 2; }
	@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || packaging/need.sh ensurepip:python3-venv
	@echo 'installing the Python packages into $(VENV)'
	@'$(PYTHON)' -m venv --clear $(VENV)
	@PIP_CONSTRAINT=$(CONSTRAINTS) BCCND_PURE=1 $(BIN)/pip install -q --disable-pip-version-check -e '.[dev,all]'
	@touch $@

# The compiled modules, beside their sources: see setup.py. BCCND_PURE=1 does without them.
SOURCES := setup.py $(wildcard bccnd/*/*.py bccnd/*/*.pxd bccnd/*/*.pyx)
ifneq ($(or $(filter-out 0,$(BCCND_PURE)),),)
$(BUILT): $(READY)
	@find bccnd -name '*.so' -delete
	@touch $@
else
$(BUILT): $(READY) $(SOURCES)
	@packaging/need.sh cc:gcc /usr/include/stdlib.h:libc6-dev /usr/include/openssl/sha.h:libssl-dev \
		"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h:python3-dev"
	@echo 'compiling the hot path'
	@$(BIN)/python setup.py -q build_ext --inplace -j 2
	@touch $@
endif

demo: $(BUILT)
	@packaging/need.sh cc:gcc cc:libc6-dev socat:socat java:default-jre-headless
	@$(BIN)/python examples/demo.py

demo-fleet: $(BUILT)
	@packaging/need.sh java:default-jre-headless
	@$(BIN)/python examples/fleet.py

run: $(BUILT)
	@install -d -m 0700 $(PLAY)
	@echo '{host: play, segments: [{address: 127.255.255.255}], bus: {path: $(PLAY)/bus.sock}}' > $(PLAY)/bccnd.yaml
	@echo 'In another terminal:'
	@echo '  export BCCN_SOCKET=$(PLAY)/bus.sock PATH=$$PATH:$(CURDIR)/$(BIN)'
	@echo "  bccn sub 'demo/'"
	@echo '  bccn pub demo/hello world'
	@echo '  curl http://127.0.0.1:9540/metrics'
	@echo 'Ctrl-C ends it.'
	@trap 'rm -rf $(PLAY)' EXIT; trap : INT; $(BIN)/bccnd --config $(PLAY)/bccnd.yaml

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What does not depend on how the hot path is built is tested once, and what tests the tests' own tools as well.
ONCE := $(patsubst %,--ignore=tests/%,pipeline recorder journal cli/test_report.py e2e/test_fleet.py e2e/test_recorder.py \
	e2e/test_demo.py e2e/test_bench.py e2e/test_scale.py test_packaging.py)

test: $(BUILT) lint
	@packaging/need.sh git:git cc:gcc cc:libc6-dev c++:g++ socat:socat ip:iproute2 nft:nftables perl:perl openssl:openssl \
		systemd-analyze:systemd man:man-db groff:groff-base bash:bash java:default-jre-headless tcpdump:tcpdump \
		pdftotext:poppler-utils
	@# Ubuntu has it as a snap only: what needs a browser is skipped there
	@packaging/need.sh chromium:chromium || true
	@packaging/unpack-prometheus.sh .cache/prometheus
	@echo 'the tests, with the hot path compiled'
	BCCND_BUILD=compiled $(BIN)/python -m pytest --ignore=tests/systemd
	@echo 'and without'
	@rm -rf build/pure
	@BCCND_PURE=1 $(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation --target build/pure .
	BCCND_BUILD=pure PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/pure:$(CURDIR) $(BIN)/python -m pytest \
		--import-mode=append --ignore=tests/systemd $(ONCE)

# Where no hosts can be booted, the tests say why and are skipped; BCCND_REQUIRE_SYSTEMD=1 has them fail instead.
test-systemd: $(BUILT)
	@packaging/need.sh systemd-nspawn:systemd-container debootstrap:debootstrap zstd:zstd ip:iproute2 \
		nsenter:util-linux cc:gcc /usr/include/stdlib.h:libc6-dev /usr/include/openssl/sha.h:libssl-dev || true
	$(BIN)/python -m pytest --durations=5 tests/systemd $(ARGS)

wheel: $(READY)
	@rm -rf dist
	@packaging/need.sh cc:gcc /usr/include/stdlib.h:libc6-dev /usr/include/openssl/sha.h:libssl-dev
	PIP_CONSTRAINT=$(CONSTRAINTS) $(BIN)/pip wheel -q --disable-pip-version-check --no-deps -w dist .
	@ls dist

deb:
	@packaging/deb.sh '$(DEB_VERSION)'

man:
	@packaging/need.sh man:man-db groff:groff-base
	@mkdir -p build/man
	@for page in packaging/man/*; do \
		complaints=$$(MANWIDTH=100 LC_ALL=C.UTF-8 man --warnings -l "$$page" 2>&1 >build/man/$$(basename "$$page").txt); \
		test -z "$$complaints" || { echo "$$complaints"; exit 1; }; done
	@ls build/man

MATPLOTLIB = $(BIN)/python -c 'import matplotlib' 2>/dev/null || { echo 'installing matplotlib for the charts'; \
	$(BIN)/pip install -q --disable-pip-version-check -c $(CONSTRAINTS) 'matplotlib>=3.8'; }

bench: $(BUILT)
	@packaging/need.sh taskset:util-linux
	@packaging/unpack-peers.sh .cache/peers
	@$(MATPLOTLIB)
	$(BIN)/python -m tests.bench $(ARGS)

bench-pipeline: $(BUILT)
	@packaging/need.sh java:default-jre-headless
	@$(BIN)/python -c 'import duckdb' 2>/dev/null || { echo 'installing DuckDB to compare with'; \
		$(BIN)/pip install -q --disable-pip-version-check -c $(CONSTRAINTS) 'duckdb>=1.0'; }
	$(BIN)/python -m tests.bench.spark --steps $(ARGS)

scale: $(BUILT)
	@packaging/need.sh taskset:util-linux chrt:util-linux
	@$(MATPLOTLIB)
	$(BIN)/python -m tests.bench.scale --docs docs/scaling.md $(ARGS)

soak: $(BUILT)
	$(BIN)/python -m tests.soak.bus --minutes $(or $(MINUTES),10)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pin: $(READY)
	$(BIN)/pip freeze --all --exclude-editable | grep -v '^pip==' > $(CONSTRAINTS)

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find bccnd -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
