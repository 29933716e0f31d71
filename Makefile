# SPDX-License-Identifier: Apache-2.0
# The commands of the first five minutes; CMakePresets.json has all others.

TRACE ?= tests/data/code_small.safetensors

.PHONY: help configure build demo test
help:
	@echo "make demo   install what is missing, build the command, select the Top-K of a small trace"
	@echo "make test   install what is missing, build everything, run all tests"
	@echo "make build  install what is missing, build build/release/dosa and the libraries"

configure:
	@scripts/install_deps.sh
	@cmake --preset release

build: configure
	@cmake --build --preset release --target dosa dosa_static dosa_command

demo: configure
	@cmake --build --preset release --target dosa_command
	build/release/dosa run $(TRACE)

test: configure
	@cmake --build --preset release
	@ctest --preset release
