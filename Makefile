# Penstock. `make test` on a bare Debian 12 installs what is needed, builds, and runs every test; `make demo` shows it.
#
#   make deps    Debian packages and .venv         make check    sanitizers, formatting, linters
#   make build   libpenstock, programs, package    make soak     the long tests
#   make test    everything above, then tests      make bench    speed and memory, as a table and JSON
#   make demo    a simulation, watched as it runs  make install  C and C++ library to PREFIX
#   make clean   removes what was built

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
RUN ?= examples/gray-scott/run.yaml
TARGETS ?= all
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
# Both builds below must call the compiler by one name, or the compiler cache takes it for two.
export CC := $(if $(filter default,$(origin CC)),cc,$(CC))
export CXX := $(if $(filter default,$(origin CXX)),c++,$(CXX))

.PHONY: all deps apt venv build native package test demo bench check soak install clean

all: build

deps:
	@scripts/install_deps

apt:
	@scripts/install_deps apt

venv: apt
	@scripts/install_deps venv

native: apt
	@cmake --preset default -B $(BUILD)
	@cmake --build $(BUILD) --target $(TARGETS)

# The Python package has a build folder of its own, so that it is what `pip install .` gives anyone; the compiler cache
# makes it cheap after `native`.
package: venv native
	@echo "installing the Python package"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --force-reinstall .

# The packages download while the library compiles; `package` then configures once more, with what they bring (ADIOS2
# for the benchmarks).
build: apt
	@$(MAKE) --no-print-directory -j2 venv native
	@$(MAKE) --no-print-directory package

test: build
	@scripts/run_tests $(BUILD)

soak: build
	@PENSTOCK_SOAK=1 scripts/run_tests $(BUILD)

# The library, the simulation and the package, without tests and benchmarks.
demo:
	@$(MAKE) --no-print-directory build TARGETS=gray-scott
	@PENSTOCK_BIN="$(CURDIR)/$(BUILD)/bin" .venv/bin/penstock run $(RUN)

bench: build
	@.venv/bin/penstock bench streams

check: venv
	@scripts/check

install: native
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf build build-package build-debug build-asan build-tsan dist
