# SPDX-License-Identifier: Apache-2.0
# The commands of the first five minutes; CMakePresets.json has all others.

TRACE ?= tests/data/code_small.safetensors

.PHONY: help build demo test
help:
	@echo "make demo   install what is missing, build, select the Top-K of a small real trace"
	@echo "make test   install what is missing, build, run all tests"
	@echo "make build  install what is missing, build build/release/dosa"

build:
	@scripts/install_deps.sh
	@cmake --preset release
	@cmake --build --preset release

demo: build
	build/release/dosa run $(TRACE)

test: build
	@ctest --preset release
