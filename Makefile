# bccnd: `make demo` shows it, `make test` proves it. Both install what they need, and print it first.
.DEFAULT_GOAL := help
.PHONY: help announce demo demo-fleet stills run ready ready-report test test-all test-slow test-systemd test-docs test-mutants coverage \
	wheel deb man docs docs-parts bench bench-pipeline scale fuzz simulate test-faults soak lint format pin clean

# The system's Python first: it is the one that services run on, and the fastest build of it.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
CONSTRAINTS := packaging/constraints.txt
, := ,
PLAY := /tmp/bccnd-play-$(shell id -u)

help:
	@echo 'make demo    set up everything, then show in a minute what bccnd does, and a page about it (loopback only; 540 MB, no Java)'
	@echo 'make demo-fleet  simulate an hour of 20 hosts with known faults, and show the report that finds them'
	@echo 'make run     a daemon in the foreground to play with, no root (loopback only; INTERFACE=eth0: your own segment)'
	@echo 'make ready-report  install what the recorder and the report need besides'
	@echo 'make ready   the same with Spark, and what the tests need'
	@echo 'make test    style, types and behaviour: three minutes, ten where things must be installed (ARGS=tests/core: a part)'
	@echo 'make test-all  all tests there are: what make test runs, on more examples, and all below (root; one to two hours)'
	@echo 'make test-slow  Spark, demonstrations, browsers, meshes of real hosts, long histories (half an hour)'
	@echo 'make test-systemd  boot hosts by systemd and test the package on them (root; five minutes; RELEASE=trixie: Debian 13)'
	@echo 'make test-docs  follow the pages for newcomers, command by command, and make the site (root; five minutes)'
	@echo 'make test-mutants  put small faults into the core, and see that the tests find them (a quarter of an hour)'
	@echo 'make test-faults  put known faults back, one at a time, and see that the simulation finds each (half an hour)'
	@echo 'make coverage  branches of the package that the tests reach, measured on the uncompiled core (five minutes)'
	@echo 'make wheel   build into dist/: the sdist, a wheel for this Python, hot path compiled, and a pure one for programs'
	@echo 'make deb     build the Debian package into dist/ (DEB_VERSION=1.0.0+test2: its version; RELEASE=trixie: for Debian 13)'
	@echo 'make man     look through the manual pages, and lay them out as text in build/man/'
	@echo 'make stills  make the pictures of what `make demo` prints in a terminal (a few seconds)'
	@echo 'make docs    make the site of the documents as they are in build/docs/ (100 MB, no compiler)'
	@echo 'make docs-parts  write the generated parts of documents and manual pages'
	@echo 'make bench   what a message costs, beside the least it can cost and other brokers (half an hour, a quiet machine)'
	@echo 'make scale   what it costs as things grow; the tables and charts of docs/scaling.md (half an hour)'
	@echo 'make bench-pipeline  what the tables of 1 and 10 million rows take, and that they are right (ten minutes)'
	@echo 'make fuzz    inputs that nobody would think of, for everything that reads bytes (ten minutes; ARGS=--help)'
	@echo 'make simulate  simulate fleets of hosts under a virtual clock, with faults at random (ARGS="--fleets 24", --help)'
	@echo 'make soak    half an hour of everything at once on three hosts; an account in build/soak (ARGS="--rounds 3")'
	@echo 'make lint    style and types only'
	@echo 'make format  put the style right'
	@echo 'make pin     write the versions in use to $(CONSTRAINTS), and the hashes of the wheels that make deb takes'
	@echo 'make clean   remove what make has made here'

# Five steps: what the daemon and its tools need; what most tests do besides; the recorder; the tables and their report;
# all the rest, which is Spark and the tools of style, types and documents.
CORE := $(VENV)/.core
TESTS := $(VENV)/.tests
RECORDER := $(VENV)/.recorder
REPORT := $(VENV)/.report
READY := $(VENV)/.ready
PIP = PIP_CONSTRAINT=$(CONSTRAINTS) BCCND_PURE=1 $(BIN)/pip install -q --disable-pip-version-check
GROUP = $(BIN)/python packaging/dependency_group.py
PYTHON_HEADER = "$$("$$(ls $(BIN)/python 2>/dev/null || echo '$(PYTHON)')" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h:python3-dev"
VENV_PACKAGE = $$(test -e $(BIN)/python || '$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || echo ensurepip:python3-venv)
CORE_PACKAGES = $(VENV_PACKAGE) cc:gcc pkg-config:pkg-config /usr/include/stdlib.h:libc6-dev \
	/usr/include/systemd/sd-daemon.h:libsystemd-dev $(PYTHON_HEADER)
HAS_PYTHON = test -n '$(PYTHON)' || { echo 'bccnd needs Python 3.11 or newer; Debian and Ubuntu: apt-get install python3'; exit 2; }
BUILD_PACKAGES = cc:gcc /usr/include/stdlib.h:libc6-dev /usr/include/openssl/sha.h:libssl-dev $(PYTHON_HEADER)

$(CORE): pyproject.toml $(CONSTRAINTS)
	@$(HAS_PYTHON)
	@packaging/need.sh $(CORE_PACKAGES)
	@echo '+ pip install -e .    into $(VENV): the daemon'"'"'s Python packages, 90 MB, half a minute'
	@'$(PYTHON)' -m venv --clear $(VENV)
	@$(GROUP) build >$(VENV)/build.txt
	@$(PIP) --use-pep517 -e . -r $(VENV)/build.txt
	@touch $@

$(TESTS): $(CORE)
	@echo '+ pip install pytest, hypothesis, ...    into $(VENV): what tests run with, 20 MB'
	@$(GROUP) test >$(VENV)/test.txt
	@$(PIP) -r $(VENV)/test.txt
	@touch $@

$(RECORDER): $(CORE)
	@echo '+ pip install -e .[recorder]    into $(VENV): Arrow, 170 MB'
	@$(PIP) -e '.[recorder]'
	@touch $@

$(REPORT): $(RECORDER)
	@echo '+ pip install -e .[report]    into $(VENV): DuckDB, Delta tables; 280 MB'
	@$(PIP) -e '.[report]'
	@touch $@

$(READY): $(REPORT)
	@echo '+ pip install -e .[all]    into $(VENV): Spark, pandas, tools for tests and documents; 1.4 GB, two to five minutes'
	@$(GROUP) dev docs >$(VENV)/dev.txt
	@$(PIP) -e '.[all]' -r $(VENV)/dev.txt
	@touch $(TESTS) $(VENV)/.docs $@

# The library of the compiled modules: see setup.py.
SOURCES := setup.py $(wildcard $(foreach folder,bccnd bccnd/* bccnd/*/*,$(addprefix $(folder)/*,.py .pxd .pyx)))
$(BUILT): $(CORE) $(SOURCES)
	@packaging/need.sh $(BUILD_PACKAGES)
	@echo 'compiling the hot path (one to three minutes)'
	@find bccnd -name '*.so' -delete
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# What is still to be installed and made, before anything is. INSTALLS: the last of the five steps that the target takes.
INSTALLS = $(READY)
SIZE_CORE := 90 MB, half a minute
SIZE_TESTS := 110 MB, half a minute
SIZE_RECORDER := 260 MB, a minute
SIZE_REPORT := 540 MB, a minute
SIZE_READY := 1.4 GB with Spark, two to five minutes
SIZE = $(strip $(foreach step,CORE TESTS RECORDER REPORT READY,$(if $(filter $($(step)),$(INSTALLS)),$(SIZE_$(step)))))
announce:
	@$(HAS_PYTHON)
	@test -e $(INSTALLS) || echo 'This installs first: system packages that are missing (apt-get; root or sudo), and Python' \
		'packages into $(VENV) ($(SIZE), beyond the download).'
	@test -e $(BUILT) || echo 'Then it compiles the hot path, in one to three minutes.'

demo: INSTALLS = $(REPORT)
demo: announce $(REPORT) $(BUILT)
	@packaging/need.sh cc:gcc cc:libc6-dev socat:socat
	@$(BIN)/python examples/demo.py

# Pictures of what the demo prints, for the documents.
stills: $(CORE) $(BUILT)
	@packaging/need.sh cc:gcc cc:libc6-dev socat:socat
	@DEMO_PAUSE=0 $(BIN)/python -m docs.stills

demo-fleet: $(REPORT) $(BUILT)
	@$(BIN)/python -m examples.fleet

run: INSTALLS = $(CORE)
run: announce $(BUILT)
	@install -d -m 0700 $(PLAY)
	@echo '{$(if $(INTERFACE),,host: play$(,) )segments: [{$(if $(INTERFACE),interface: $(INTERFACE),address: 127.255.255.255)}],' \
		'bus: {path: $(PLAY)/bus.sock}}' > $(PLAY)/bccnd.yaml
	@echo 'In another terminal:'
	@echo '  export BCCN_SOCKET=$(PLAY)/bus.sock PATH=$$PATH:$(CURDIR)/$(BIN)'
	@echo "  bccn sub 'demo/'"
	@echo '  bccn pub demo/hello world'
	@echo 'In a browser: http://127.0.0.1:9540/'
	@echo 'Ctrl-C ends it.'
	@trap 'rm -rf $(PLAY)' EXIT; trap : INT; $(BIN)/bccnd --config $(PLAY)/bccnd.yaml

ready-report: $(REPORT) $(BUILT)

ready: $(READY) $(BUILT)
	@packaging/need.sh java:default-jre-headless

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Tests start a thousand programs: without their bytecode each takes a third longer to load, and each worker twice as
# long to collect the tests. Images of Python forbid to write it; `make clean` removes it.
unexport PYTHONDONTWRITEBYTECODE

# Test processes, each with a network of its own; more than cores, as whole programs wait for each other most of the time.
WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal --durations=15
TOOLS_PACKAGES = git:git cc:gcc cc:libc6-dev socat:socat ip:iproute2 nft:nftables perl:perl openssl:openssl \
	systemd-analyze:systemd man:man-db groff:groff-base bash:bash curl:curl nngcat:nng-utils tcpdump:tcpdump
PART_PACKAGES = git:git ip:iproute2 perl:perl openssl:openssl nngcat:nng-utils
TOOLS = @packaging/need.sh $(TOOLS_PACKAGES) && packaging/unpack-prometheus.sh .cache/prometheus
# Ubuntu has Chromium as a snap only: what needs a browser is skipped there.
MORE_TOOLS = @packaging/need.sh c++:g++ go:golang-go zsh:zsh fish:fish java:default-jre-headless pdftotext:poppler-utils \
		jq:jq unshare:util-linux tshark:tshark lua5.2:lua5.2 lua5.4:lua5.4 dh:debhelper /usr/share/perl5/Debian/Debhelper/Sequence/python3.pm:dh-python && \
	{ packaging/need.sh chromium:chromium || true; }

# Parts whose tests need little: ARGS that name only these, as folders or files in them, install only that.
LIGHT := bus client config core daemon doctor fleet gateways handover log monitoring native net
ARROW := journal recorder
part = $(foreach name,$(1),tests/$(name) tests/$(name)/%)
NAMED := $(filter tests/%,$(ARGS))
ifeq ($(NAMED),)
else ifeq ($(filter-out $(call part,$(LIGHT)),$(NAMED)),)
PART := $(TESTS)
else ifeq ($(filter-out $(call part,$(LIGHT) $(ARROW)),$(NAMED)),)
PART := $(TESTS) $(RECORDER)
endif

.PHONY: more-tools test-packages test-suite
test: INSTALLS = $(or $(lastword $(PART)),$(READY))
test: announce test-packages $(or $(PART),$(READY)) $(BUILT)
ifdef ARGS
	@$(PYTEST) -m 'not slow' $(ARGS)
else
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line lint test-suite
endif

# All that `make test` takes of the system, at once: whoever is asked is asked once.
test-packages:
	@packaging/need.sh $(CORE_PACKAGES) $(BUILD_PACKAGES) $(if $(PART),$(PART_PACKAGES),$(TOOLS_PACKAGES))
	$(if $(PART),,@packaging/unpack-prometheus.sh .cache/prometheus)

test-suite:
	@$(PYTEST) -m 'not slow' --ignore=tests/systemd tests

more-tools:
	$(TOOLS)
	$(MORE_TOOLS)

test-all: $(READY) $(BUILT) more-tools lint
	@$(PYTEST) --hypothesis-profile=full -m 'not slow' --ignore=tests/systemd tests
	@$(MAKE) --no-print-directory test-slow test-systemd test-docs test-mutants test-faults

test-slow: $(READY) $(BUILT) more-tools deb
	$(PYTEST) --hypothesis-profile=full -m slow --ignore=tests/systemd --ignore=tests/docs tests $(ARGS)

# A sample of the mutants of the core; `python -m tools.mutation --help` says more.
test-mutants: $(READY) $(BUILT)
	$(BIN)/python -m tools.mutation bccnd/core --sample 60 $(ARGS)

coverage: $(READY) $(BUILT)
	@mkdir -p build/coverage
	@rm -f build/coverage/data*
	@COVERAGE_FILE=build/coverage/data BCCND_CORE=python \
		$(BIN)/python -m coverage run --branch --source=bccnd -m pytest -q -m 'not slow' \
		tests/core tests/net tests/client tests/endpoint tests/handover tests/bus tests/daemon tests/gateways \
		tests/recorder tests/journal
	@COVERAGE_FILE=build/coverage/data $(BIN)/python -m coverage html -q -d build/coverage
	@COVERAGE_FILE=build/coverage/data $(BIN)/python -m coverage report --skip-covered --include='bccnd/core/*' \
		--fail-under=95
	@echo 'line by line, with the other parts: build/coverage/index.html'

# Where no hosts can be booted, the tests say why and are skipped; BCCND_REQUIRE_SYSTEMD=1 has them fail instead.
test-systemd: $(READY) $(BUILT)
	@packaging/need.sh systemd-nspawn:systemd-container debootstrap:debootstrap zstd:zstd ip:iproute2 \
		nft:nftables nsenter:util-linux cc:gcc /usr/include/stdlib.h:libc6-dev /usr/include/openssl/sha.h:libssl-dev || true
	$(BIN)/python -m pytest --host-network --durations=5 tests/systemd $(ARGS)

# Pages that are followed command by command, and the site.
test-docs: $(READY) $(BUILT)
	@packaging/need.sh unshare:util-linux ip:iproute2 nft:nftables curl:curl jq:jq socat:socat
	@packaging/unpack-prometheus.sh .cache/prometheus
	$(BIN)/python -m pytest --durations=5 -m slow tests/docs $(ARGS)

wheel: $(CORE)
	@rm -f dist/*.whl dist/*.tar.gz
	@packaging/need.sh $(BUILD_PACKAGES)
	$(BIN)/python -c "from setuptools.build_meta import build_sdist; build_sdist('dist')" >/dev/null
	BCCND_PURE=1 PIP_CONSTRAINT=$(CONSTRAINTS) $(BIN)/pip wheel -q --disable-pip-version-check --no-deps -w dist .
	BCCND_PURE=0 PIP_CONSTRAINT=$(CONSTRAINTS) $(BIN)/pip wheel -q --disable-pip-version-check --no-deps -w dist .
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

# The site of the documents as they are: without the package, and without what it needs.
DOCS := $(VENV)/.docs
$(DOCS): pyproject.toml $(CONSTRAINTS)
	@$(HAS_PYTHON)
	@packaging/need.sh $(VENV_PACKAGE)
	@test -e $(BIN)/python || '$(PYTHON)' -m venv $(VENV)
	@echo '+ pip install sphinx, furo, myst-parser    into $(VENV): 100 MB, half a minute'
	@$(GROUP) docs >$(VENV)/docs.txt
	@$(PIP) -r $(VENV)/docs.txt
	@touch $@

docs: $(DOCS)
	@$(BIN)/python -m docs

docs-parts: $(READY) $(BUILT)
	@$(BIN)/python -m docs --write

MATPLOTLIB = $(BIN)/python -c 'import matplotlib' 2>/dev/null || { echo '+ pip install matplotlib    for the charts; 50 MB'; \
	$(GROUP) bench >$(VENV)/bench.txt && $(PIP) -r $(VENV)/bench.txt; }

bench: $(READY) $(BUILT)
	@packaging/need.sh taskset:util-linux
	@packaging/unpack-peers.sh .cache/peers
	$(BIN)/python -m tools.bench --figures docs/figures.json $(ARGS)
	$(BIN)/python -m docs --write

bench-pipeline: $(READY) $(BUILT)
	@packaging/need.sh java:default-jre-headless
	$(BIN)/python -m tools.bench.tables $(ARGS)

scale: $(READY) $(BUILT)
	@packaging/need.sh taskset:util-linux chrt:util-linux
	@$(MATPLOTLIB)
	$(BIN)/python -m tools.bench --axes growth --rounds 3 --figures docs/figures.json $(ARGS)
	$(BIN)/python -m tools.bench.charts
	$(BIN)/python -m docs --write

fuzz: $(TESTS) $(RECORDER) $(BUILT)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || { echo '+ pip install atheris    the fuzzer; 40 MB'; \
		$(GROUP) fuzz >$(VENV)/fuzz.txt && $(PIP) -r $(VENV)/fuzz.txt; }
	$(BIN)/python -m tools.fuzz $(ARGS)

simulate: $(BUILT)
	@packaging/need.sh cc:gcc cc:libc6-dev ip:iproute2
	@$(BIN)/python -m tools.simulate $(ARGS)

# Each known fault within ten minutes; `make simulate ARGS=--list-faults` names them.
test-faults: $(BUILT)
	@packaging/need.sh cc:gcc cc:libc6-dev ip:iproute2
	@for fault in $$($(BIN)/python -m tools.simulate --list-faults | cut -d' ' -f1); do \
		$(BIN)/python -m tools.simulate --fault $$fault --minutes 10 || exit 1; done

soak: $(READY) $(BUILT)
	$(BIN)/python -m tools.soak $(ARGS)
	$(BIN)/python -m tools.soak.local

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pin: $(READY)
	$(BIN)/pip freeze --all --exclude-editable | grep -v '^pip==' > $(CONSTRAINTS)
	$(BIN)/python packaging/pin_wheels.py

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find bccnd -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
