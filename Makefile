# Penstock. `make test` on a bare Debian 12 installs what is needed, builds, and runs every test; `make demo` shows it.
#
#   make deps    Debian packages and .venv         make check    sanitizers, formatting, linters, types
#   make build   libpenstock, programs, package    make soak     the long tests
#   make test    everything above, then tests      make bench    speed and memory, as a table and JSON
#   make demo    a simulation, watched as it runs  make install  C and C++ library to PREFIX
#   make clean   removes what was built

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
RUN ?= examples/gray-scott/run.yaml
TARGETS ?= all
export BUILD RUN TARGETS
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
# The builds of library and package must call the compiler by one name, or the compiler cache takes it for two.
export CC := $(if $(filter default,$(origin CC)),cc,$(CC))
export CXX := $(if $(filter default,$(origin CXX)),c++,$(CXX))

.PHONY: all deps apt venv build native package test demo bench check soak install clean

all: build

deps:
	@scripts/steps packages environment

apt:
	@scripts/steps packages

venv:
	@scripts/steps packages environment

native:
	@scripts/steps packages library

build package:
	@scripts/steps packages environment library package

test:
	@scripts/steps packages environment library package tests

soak:
	@PENSTOCK_SOAK=1 scripts/steps packages environment library package tests

# The library, the simulation and the package, without tests and benchmarks.
demo: TARGETS = gray-scott
demo:
	@scripts/steps packages environment library package demo

bench: build
	@.venv/bin/penstock bench streams

check: build
	@scripts/check

install: native
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf build build-package build-debug build-asan build-tsan dist
