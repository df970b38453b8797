# Everything that is built, checked and shown, by name: `make help`.
# What is downloaded goes to .tools/, what is built to target/; nothing else is touched.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
export PYTHONDONTWRITEBYTECODE := 1
MAKEFLAGS += --no-print-directory

VENV := scripts/python-venv
# What only the layer's real build and the checks of deploying need is left to them.
VENVS := $(filter-out layer sam snippets,$(patsubst scripts/requirements-%.txt,%,$(wildcard scripts/requirements-*.txt)))
SHELL_SCRIPTS := .ci/run $(shell grep -lsE '^\#!.*\b(ba)?sh' scripts/*)
# One feature set and one profile for every build, so that nothing is compiled twice.
EVERYTHING := --workspace --all-targets --locked

.PHONY: help
help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

.PHONY: test
test: fmt-check clippy build unit doctest vectors node python lint layer-check ## Every check (cold: under 30 minutes, warm: under 5)
	@echo '== all checks passed'

.PHONY: demo
demo: ## Handlers taking turns on one lock, through real processes
	@command -v cargo >/dev/null || { echo 'make: cargo is needed and not on PATH' >&2; exit 1; }
	@echo 'building (the first time takes a few minutes)' >&2
	@cargo build -q --workspace --bins --locked
	@! command -v python3 >/dev/null || scripts/build-layer --clients "$${CARGO_TARGET_DIR:-target}/opt"
	@"$${CARGO_TARGET_DIR:-target}/debug/demo"

.PHONY: lifecycle
lifecycle: tools build clients ## Every way an invocation can end, measured; writes docs/LIFECYCLE.md
	"$${CARGO_TARGET_DIR:-target}/debug/evidence" lifecycle

.PHONY: proof
proof: tools build clients ## Everything that tries to break the lock, at full length (half an hour); writes docs/PROOF.md
	"$${CARGO_TARGET_DIR:-target}/debug/evidence" proof

.PHONY: fuzz
fuzz: ## The socket under the fuzzer, a minute for each target (needs a nightly compiler)
	scripts/fuzz

.PHONY: build
build: ## Compile everything, tests included
	@echo '== build'
	cargo build $(EVERYTHING)

.PHONY: fmt
fmt: ## Format the Rust sources
	cargo fmt --all

.PHONY: fmt-check
fmt-check:
	@echo '== format'
	cargo fmt --all --check

.PHONY: clippy
clippy:
	@echo '== clippy'
	cargo clippy $(EVERYTHING) -- -D warnings
	cargo clippy -p leasekeeper --no-default-features --locked -- -D warnings

.PHONY: unit
unit: tools build clients
	@echo '== tests'
	if command -v cargo-nextest >/dev/null; then cargo nextest run --workspace --locked; else cargo test --workspace --all-targets --locked; fi

.PHONY: clients
clients: ## The Python and Node packages laid out as in the layer, where the tests' functions find them
	scripts/build-layer --clients "$${CARGO_TARGET_DIR:-target}/opt"

.PHONY: doctest
doctest:
	@echo '== documentation examples'
	cargo test --doc --workspace --locked

.PHONY: vectors
vectors: tools ## The shared test vectors, read by Python and by Node
	@echo '== vectors in Python and in Node'
	python3 tests/vectors/run.py
	node tests/vectors/run.mjs

.PHONY: node
node: build ## The Node client: packed, installed, tested with Node 18, 20 and 22, types, lint
	@echo '== Node client'
	scripts/check-node

.PHONY: python
python: build ## The Python client: packed, installed, tested with every Python there is, types, lint
	@echo '== Python client'
	scripts/check-python

.PHONY: lint
lint: tools ## Template and shell scripts
	@echo '== cfn-lint, shellcheck'
	.tools/lint/bin/cfn-lint template.yaml
	.tools/lint/bin/shellcheck $(SHELL_SCRIPTS)

.PHONY: layer-check
layer-check: build
	@echo '== layer, staged from the debug build'
	scripts/build-layer --check "$${CARGO_TARGET_DIR:-target}/debug/leasekeeper"

.PHONY: mutants
mutants: ## Mutations of the protocol and the messages, and which of them the tests notice (an hour)
	scripts/mutants

.PHONY: layer
layer: ## The layer as it is shipped: release build against glibc 2.26, zipped (several minutes)
	scripts/build-layer

.PHONY: release-check
release-check: layer layer-again measure sam snippets packages ## What only a release needs: the layer twice, start and size, deploying, packages

.PHONY: layer-again
layer-again: ## The same sources in another folder make the same extension, byte for byte (several minutes)
	scripts/build-layer --again --arch x86_64

.PHONY: measure
measure: build ## Start and size of the layer's extension, medians against their limits (after `make layer`, on a quiet machine)
	"$${CARGO_TARGET_DIR:-target}/debug/measure"

.PHONY: sam
sam: ## template.yaml: sam validate, its transform in three partitions, sam build (no account, no Docker)
	scripts/check-sam

.PHONY: snippets
snippets: ## The Terraform and CDK examples of docs/DEPLOY.md, by their own parsers
	scripts/check-snippets

.PHONY: packages
packages: ## Pack what is published, as for a release, and publish nothing
	scripts/check-packages

.PHONY: tools
tools: ## Download what the tests need into .tools/
	@for tool in python3 node cargo; do command -v $$tool >/dev/null || { echo "make: $$tool is needed and not on PATH" >&2; exit 1; }; done
	@for name in $(VENVS); do $(VENV) $$name scripts/requirements-$$name.txt >/dev/null; done
	@for script in $(wildcard scripts/fetch-*); do $$script >/dev/null; done

.PHONY: clean-tools
clean-tools: ## Remove .tools/
	rm -rf .tools
