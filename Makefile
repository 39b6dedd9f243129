# pymq: one command per thing a developer does. `make` alone prints the table.
#
# Everything a target needs is a prerequisite, so each works on a fresh machine with Python >= 3.11, a C compiler and make.
# `make V=1 …` shows command lines. Stamps (.venv/.tools, .venv/.installed, build/.built) make a second run cheap.

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
EXTRAS := test perf lint
PYTEST_ARGS ?=
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
KILL_RUNS ?= 200
CRASH_STATES ?= 10000
DIFFERENTIAL_SEQUENCES ?= 2000

PYX_SOURCES := $(wildcard pymq/_core/*.pyx pymq/_core/*.pxd pymq/_core/*.pxi pymq/_scan/_build.py)
C_SOURCES := $(wildcard csrc/codec/*.c csrc/store/*.c csrc/wire/*.c csrc/remoting/*.c csrc/serve/*.c)
C_HEADERS := $(wildcard csrc/include/pymq/*.h csrc/*/*.h)
C_TESTING := $(wildcard csrc/testing/*.c)
# Linux is the platform. Empty on purpose: a source that says `#define _GNU_SOURCE` itself says the same.
C_DIALECT := -std=gnu11 -D_GNU_SOURCE=
C_WARNINGS := -Wall -Wextra -Werror -Wshadow -Wconversion -Wno-sign-conversion
C_ALL := $(C_SOURCES) $(C_TESTING) $(wildcard csrc/fuzz/*.c tests/native/*.c)

# --- set-up ----------------------------------------------------------------------------------------------------

.PHONY: help venv build run demo
help: ## this table
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

venv: $(VENV)/.tools ## the virtual environment with every tool and dependency
build: build/.built ## native modules, in place; rebuilds only what changed

$(VENV)/.tools: pyproject.toml tools/requirements.py
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -c 'import sys; sys.exit("pymq needs Python >= 3.11; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PY) tools/requirements.py $(EXTRAS) > $(VENV)/requirements.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/requirements.txt
	touch $@

# Spark is large, and only its own tests and jobs need it: a broker is not kept waiting for it.
$(VENV)/.spark: $(VENV)/.tools
	$(PY) tools/requirements.py spark > $(VENV)/requirements-spark.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/requirements-spark.txt
	touch $@

# Metadata only: the modules are compiled in place below, once and incrementally. (pymq/__init__.py: a package must exist to be mapped.)
$(VENV)/.installed: $(VENV)/.tools pyproject.toml $(wildcard pymq/__init__.py)
	PYMQ_NO_EXTENSIONS=1 $(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@

# A change of build switches is a change of every source.
SWITCHES := debug=$(PYMQ_DEBUG) sanitize=$(PYMQ_SANITIZE) coverage=$(PYMQ_COVERAGE)
ifneq ($(SWITCHES),$(shell cat build/.switches 2>/dev/null))
$(shell mkdir -p build && echo '$(SWITCHES)' > build/.switches)
endif

build/.built: $(VENV)/.installed build/.switches setup.py $(PYX_SOURCES) $(C_SOURCES) $(C_HEADERS)
	@tools/need.sh cc build-essential
	@mkdir -p build
	$(PY) setup.py --quiet build_ext --inplace
	touch $@

run: build ## a broker with a name server inside, on loopback, its store in ~/store
	$(PY) -m pymq.broker
demo: build ## a demonstration of the embedded store
	$(PY) -m pymq.demo

# --- tests -----------------------------------------------------------------------------------------------------

.PHONY: test lint lint-python lint-c sanitize native-test bench fuzz kill-loop crash-sweep full clean
test: build native-build interop-tools $(VENV)/.spark ## every test that fits in a few minutes
	$(PY) tools/run_tests.py $(PYTEST_ARGS)

.PHONY: interop-tools interop-apache interop-modes interop-exchange
interop-tools:
	@if [ -d tests/interop ]; then \
		{ tools/need.sh javac openjdk-17-jdk-headless && tools/need.sh mvn maven && tools/need.sh go golang-go && \
		tools/need.sh openssl openssl; } || \
		echo "test: without a JDK, Maven, Go and openssl interop tests are skipped (an error with PYMQ_CI=1)"; fi

interop-apache: build interop-tools ## tests/interop/clients and /scenarios against Apache RocketMQ, to test the tests
	PYMQ_INTEROP_TARGET=apache $(PY) -m pytest tests/interop/clients tests/interop/scenarios --timeout=1800 $(PYTEST_ARGS)

interop-modes: build interop-tools ## all of tests/interop/scenarios in every mode: data plane, flush, transient pool
	PYMQ_INTEROP_MODES=all $(PY) -m pytest tests/interop/scenarios --timeout=1800 $(PYTEST_ARGS)

interop-exchange: build interop-tools ## stores that change hands between pymq and Apache RocketMQ, with every workload
	PYMQ_FULL=1 $(PY) -m pytest tests/interop --ignore=tests/interop/clients --ignore=tests/interop/scenarios \
		--ignore=tests/interop/differential --ignore=tests/interop/spark --timeout=1800 $(PYTEST_ARGS)

lint: ## ruff, mypy --strict, cppcheck, clang's warnings, our own C rules, the tidy test
	@+$(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync=target lint-python lint-c
	$(PY) -m pytest -q -p no:cacheprovider tests/test_tidy.py

lint-python: build
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	@if compgen -G 'pymq/*.py' > /dev/null; then $(VENV)/bin/mypy --strict pymq; fi

CPPCHECK := cppcheck --std=c11 --language=c --enable=warning,performance,portability --error-exitcode=1 --quiet \
	--inline-suppr --platform=unix64 -Icsrc/include -Itests/native -j 2 \
	--suppress=ctuuninitvar:csrc/serve/get_message.c # a struct with large arrays, of which only what is read is set
lint-c: $(VENV)/.tools
	$(PY) tools/c_lint.py
	@tools/need.sh cppcheck cppcheck
	@mkdir -p build/cppcheck
	$(CPPCHECK) --cppcheck-build-dir=build/cppcheck $(C_ALL)
	@tools/need.sh clang clang
	clang -fsyntax-only $(C_DIALECT) $(C_WARNINGS) -pthread -Icsrc/include -Itests/native $(filter-out csrc/fuzz/%,$(C_ALL))

# --- native programs: tests/native/test_*.c, each linked with what it uses of the core, once per variant --------

NATIVE_TESTS := $(wildcard tests/native/test_*.c)
NATIVE_HELPERS := $(filter-out $(NATIVE_TESTS),$(wildcard tests/native/*.c))
NATIVE_NAMES := $(basename $(notdir $(NATIVE_TESTS)))
NATIVE_VARIANTS := plain asan tsan
NATIVE_FLAGS := $(C_DIALECT) -g -fno-omit-frame-pointer -pthread $(C_WARNINGS) -Icsrc/include -Itests/native -MMD -MP
NATIVE_FLAGS_plain := -O2
NATIVE_FLAGS_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
NATIVE_FLAGS_tsan := -O1 -fsanitize=thread
NATIVE_TIMEOUT_S ?= 300
SANITIZED_FLIPS := 400 # of the plain program's 1,200 flipped bits: sanitizers look at the code, not at each bit
QUIET := $(if $(V),,@)

define native_variant
build/native/$(1)/%.o: %.c Makefile
	@mkdir -p $$(@D)
	@echo "  cc $(1) $$<"
	$$(QUIET)$$(CC) $$(NATIVE_FLAGS) $$(NATIVE_FLAGS_$(1)) -c $$< -o $$@

NATIVE_OBJECTS_$(1) := $$(patsubst %.c,build/native/$(1)/%.o,$$(C_SOURCES) $$(C_TESTING) $$(NATIVE_HELPERS))
NATIVE_PROGRAMS_$(1) := $$(addprefix build/native/$(1)/bin/,$$(NATIVE_NAMES))

build/native/$(1)/core.a: $$(NATIVE_OBJECTS_$(1))
	@rm -f $$@ && ar rcs $$@ $$^

$$(NATIVE_PROGRAMS_$(1)): build/native/$(1)/bin/%: build/native/$(1)/tests/native/%.o build/native/$(1)/core.a
	@mkdir -p $$(@D)
	$$(QUIET)$$(CC) $$(NATIVE_FLAGS_$(1)) $$^ -o $$@ -lpthread

-include $$(wildcard build/native/$(1)/csrc/*/*.d build/native/$(1)/tests/native/*.d)
endef
$(foreach variant,$(NATIVE_VARIANTS),$(eval $(call native_variant,$(variant))))
.SECONDARY:

# Compiled by as many processes as there are processors, whatever make itself was told.
.PHONY: native-build native-programs sanitize-programs
native-build: $(VENV)/.tools
	@+$(MAKE) --no-print-directory --jobs=$(JOBS) native-programs
native-programs: $(NATIVE_PROGRAMS_plain)
sanitize-programs: $(NATIVE_PROGRAMS_asan) $(NATIVE_PROGRAMS_tsan)

native-test: native-build ## the C tests, as they are
	$(PY) tools/run_native.py --variant plain --timeout-s $(NATIVE_TIMEOUT_S) $(NATIVE_PROGRAMS_plain)

# One more at a time than there are processors: some of them wait for a slow disk or for time to pass.
SANITIZED_AT_ONCE = $(shell expr $(JOBS) + 1)
sanitize: $(VENV)/.tools ## the C tests under ASan + UBSan and under TSan
	@+$(MAKE) --no-print-directory --jobs=$(JOBS) sanitize-programs
	PYMQ_FLIPS=$(SANITIZED_FLIPS) $(PY) tools/run_native.py --jobs $(SANITIZED_AT_ONCE) --variant asan --timeout-s $(NATIVE_TIMEOUT_S) $(NATIVE_PROGRAMS_asan)
	PYMQ_FLIPS=$(SANITIZED_FLIPS) $(PY) tools/run_native.py --jobs $(SANITIZED_AT_ONCE) --variant tsan --timeout-s $(NATIVE_TIMEOUT_S) $(NATIVE_PROGRAMS_tsan)

# --- the long ones ---------------------------------------------------------------------------------------------

bench: build $(VENV)/.spark ## the figures of perf/, as ratios in one run
	$(PY) -m pytest perf -p no:cacheprovider $(PYTEST_ARGS)

.PHONY: bench-side-by-side
bench-side-by-side: build ## pymq beside Apache RocketMQ, real processes, half an hour (SIDE_BY_SIDE_ARGS=--quick: minutes)
	@tools/need.sh cc build-essential && tools/need.sh javac openjdk-17-jdk-headless && tools/need.sh mvn maven
	@tools/need.sh redis-server redis-server || echo "bench-side-by-side: without Redis as a neighbour"
	$(PY) -m perf.side_by_side $(SIDE_BY_SIDE_ARGS)

.PHONY: profile
profile: build ## flame graphs of the broker in the runs that miss a mark, into docs/profiles (PROFILE_ARGS)
	@tools/need.sh cc build-essential && tools/need.sh perf linux-perf
	$(PY) -m perf.side_by_side.profile $(PROFILE_ARGS)

.PHONY: bench-audit
bench-audit: build $(VENV)/.spark ## what auditing stores of 1, 4 and 10 GiB costs; half an hour, 30 GiB of disk
	$(PY) -m perf.audit $(AUDIT_ARGS)

FUZZERS := $(basename $(notdir $(wildcard csrc/fuzz/fuzz_*.c)))
# What a harness begins with, besides what its last run found.
FUZZ_FRAMES := tests/data/golden-frames/json tests/data/golden-frames/rocketmq
FUZZ_SEEDS_fuzz_command := $(FUZZ_FRAMES)
FUZZ_SEEDS_fuzz_frame := $(FUZZ_FRAMES)
fuzz: ## libFuzzer over every harness of csrc/fuzz, FUZZ_SECONDS each (60)
	@tools/need.sh clang clang
	@ls "$$(clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer* > /dev/null 2>&1 || \
		{ [ "$$(id -u)" -eq 0 ] && apt-get install -y -qq --no-install-recommends libclang-rt-dev >&2; } || \
		{ echo "fuzz: clang has no fuzzer; please install it (Debian and Ubuntu: apt-get install libclang-rt-dev)" >&2; exit 1; }
	@declare -A seeds=($(foreach name,$(FUZZERS),[$(name)]="$(FUZZ_SEEDS_$(name))")); \
	for name in $(FUZZERS); do \
		mkdir -p build/fuzz/corpus-$$name && echo "fuzz: $$name for $(FUZZ_SECONDS) s" && \
		clang $(C_DIALECT) -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Icsrc/include \
			csrc/fuzz/$$name.c $(C_SOURCES) -lpthread -o build/fuzz/$$name && \
		build/fuzz/$$name -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
			-artifact_prefix=build/fuzz/$$name- build/fuzz/corpus-$$name $${seeds[$$name]} || exit 1; \
	done

kill-loop: build native-build ## kill a writing process KILL_RUNS times a mode (200); nothing acknowledged may be lost
	PYMQ_KILL_RUNS=$(KILL_RUNS) $(PY) tools/run_native.py --show --variant plain --timeout-s 7200 \
		build/native/plain/bin/test_crash_kill
	@if compgen -G 'tests/crash/test_*kill*.py' > /dev/null; then \
		PYMQ_KILL_RUNS=$(KILL_RUNS) $(PY) -m pytest tests/crash -k kill --timeout=7200 $(PYTEST_ARGS); fi

crash-sweep: native-build ## recover CRASH_STATES modelled crash images (10,000); the seed is printed
	PYMQ_CRASH_STATES=$(CRASH_STATES) $(PY) tools/run_native.py --show --variant plain --timeout-s 7200 \
		build/native/plain/bin/test_crash_sweep

.PHONY: full-sizes
full-sizes: build native-build ## the bit flips and models at the sizes of their requirements (PYMQ_FULL=1), an hour
	PYMQ_FULL=1 $(PY) tools/run_native.py --show --variant plain --timeout-s 7200 build/native/plain/bin/test_crash_bit_flips
	PYMQ_FULL=1 $(PY) -m pytest tests/model tests/fault --timeout=7200 $(PYTEST_ARGS)

.PHONY: audit-detection audit-full
audit-detection: build interop-tools $(VENV)/.spark ## R27: every audit finds each of its 10 seeded faults, and nothing in clean dumps
	PYMQ_FULL=1 $(PY) -m pytest -s tests/spark_jobs/test_detection.py --timeout=7200 $(PYTEST_ARGS)

audit-full: build interop-tools $(VENV)/.spark ## everything of tests/spark_jobs at its long size, audit-detection included
	PYMQ_FULL=1 $(PY) -m pytest tests/spark_jobs tests/interop/spark --timeout=7200 $(PYTEST_ARGS)

.PHONY: differential
differential: build interop-tools ## DIFFERENTIAL_SEQUENCES (2,000) random sequences to pymq and to Apache RocketMQ, and to both data planes
	PYMQ_DIFFERENTIAL_SEQUENCES=$(DIFFERENTIAL_SEQUENCES) PYMQ_CONTRACT_SEQUENCES=$(DIFFERENTIAL_SEQUENCES) \
		$(PY) -m pytest -s tests/interop/differential tests/contract --timeout=7200 $(PYTEST_ARGS)

full: build ## everything above, long sizes, hours (STEPS="fuzz bench": some of it); the result goes to docs/full-result.md
	$(PY) tools/full.py docs/full-result.md $(STEPS)

clean: ## remove what was built, keep the virtual environment's tools
	rm -rf build dist *.egg-info $(VENV)/.installed .pytest_cache .mypy_cache .ruff_cache
	find pymq spark_jobs pyspark_rocketmq_store tests perf tools -name __pycache__ -type d -prune -exec rm -rf {} +
	find pymq -name '*.so' -delete
