# bccnd: `make demo` shows it, `make test` proves it. Both install what they need.
.DEFAULT_GOAL := help
.PHONY: help demo run test soak lint format pin clean

# The system's Python first: it is the one that services run on, and the fastest build of it.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSTRAINTS := packaging/constraints.txt
PLAY := /tmp/bccnd-play-$(shell id -u)

help:
	@echo 'make demo    set up everything, then show in 20 seconds what bccnd does (loopback only)'
	@echo 'make run     a daemon in the foreground to play with (loopback only, no root)'
	@echo 'make test    set up everything, then check style, types and behaviour'
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
	@$(BIN)/pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@

demo: $(READY)
	@packaging/need.sh cc:gcc cc:libc6-dev socat:socat
	@$(BIN)/python examples/demo.py

run: $(READY)
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

test: lint
	@packaging/need.sh git:git cc:gcc cc:libc6-dev c++:g++ socat:socat ip:iproute2 nft:nftables perl:perl openssl:openssl
	@packaging/unpack-prometheus.sh .cache/prometheus
	$(BIN)/python -m pytest

soak: $(READY)
	$(BIN)/python -m tests.soak.bus --minutes $(or $(MINUTES),10)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pin: $(READY)
	$(BIN)/pip freeze --exclude-editable > $(CONSTRAINTS)

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
