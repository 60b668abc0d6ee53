# Thin names for the work of CMake presets and a few scripts. `make help` lists them.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BUILD := build/release

.PHONY: help deps build demo test install lint format asan tsan cov fuzz bench bench-peer clean
help: ## these names
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / — /'

deps: ## installs what the build needs with apt (DLAB_NO_APT=1: only says what is missing)
	@tools/deps.sh build
build: deps ## the command, at build/release/dlab
	@tools/build.sh release dlab
demo: ## from nothing to a measured table: installs, fetches the model, builds, runs the quickstart
	@tools/demo.sh
test: ## builds and runs every test
	@tools/test.sh
install: build ## the command, its experiments and its plot templates under PREFIX
	@cmake --install $(BUILD) --prefix "$(PREFIX)"
lint: ## clang-format, clang-tidy, shellcheck, includes
	@tools/lint.sh
format: ## clang-format in place
	@tools/format.sh
asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/sanitize.sh asan
tsan: ## the threaded tests under ThreadSanitizer
	@tools/sanitize.sh tsan
cov: ## line coverage of the tests
	@tools/cov.sh
fuzz: ## each fuzz target, FUZZ_SECONDS (60) and at least 100 000 executions
	@tools/fuzz.sh
bench: build ## prompt processing and generation speed of the model, as llama-bench would show
	@build/release/dlab bench
bench-peer: ## the same against llama.cpp, in turns, with an interval (CASES, QUICK=1: docs/peers.md)
	@tools/bench_peer.sh
clean: ## removes the build folder
	@rm -rf build
