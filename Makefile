# Two commands set everything up on a machine with only Python, make and gcc:
#   make demo    install into .venv, measure this computer and run a small program on it (demo/this_computer.html), then analyse a real
#                training profile: print its chart and table, write demo/report.html and more
#   make test    install into .venv with all the tests need, and the TPU compiler into .venv-tpu, find or install Chromium and Node, run every check
PYTHON ?= python3
# The two environments are installed side by side, and the static checks run beside the tests, most of which wait now and then.
MAKEFLAGS += --jobs=2
BIN := .venv/bin

.PHONY: demo test static tests test-all test-page test-lowest format requirements schema clean

SOURCES := pyproject.toml setup.py $(wildcard src/roofline/*/*.[ch] src/roofline/*/*/*.[ch] src/roofline/*/*/*/*.[ch])
EXTRAS := --extra cluster --extra jax --extra mcp --extra parquet --extra remote --extra serve
# What requirements/install.py is told: --strict for the versions listed there or nothing.
INSTALL :=
# At most 8 processes: a container may be allowed only a few of the cores that it sees, and each process grows to 1 GB.
TESTS := -m pytest -q -n auto --maxprocesses=8 --durations=15
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate
# The compiler for TPUs needs no TPU, but its wheels are for Linux on x86-64: elsewhere nothing is made, and the tests that need it are skipped.
TPU := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),.venv-tpu/installed)

.venv/installed: $(SOURCES) requirements/run.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python requirements/install.py run $(INSTALL)
	$(BIN)/python -m compileall -q src  # which pip leaves to the first run when it installs in place
	touch $@

.venv/tested: $(SOURCES) requirements/test.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python requirements/install.py test $(INSTALL)
	$(BIN)/python -m compileall -q src
	$(BIN)/python tests/browser/programs.py
	touch .venv/installed $@

# Apart from .venv: beside libtpu, JAX looks for a TPU whenever it starts.
.venv-tpu/installed: requirements/tpu.txt
	$(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python requirements/install.py tpu $(INSTALL)
	touch $@

demo: .venv/installed
	mkdir -p demo
	$(BIN)/roofline chips demo --no-open -o demo/this_computer.html
	$(BIN)/roofline analyze sample:train --chart --top 12 --json demo/report.json -o demo/report.html
	$(BIN)/roofline analyze sample:train -o demo/roofline.svg > demo/report.txt

test: static tests

static: .venv/tested
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: .venv/tested $(TPU)
	$(BIN)/python $(TESTS) -m "not slow" --ignore=tests/browser/test_page_whole.py

# Every test, with those that make test leaves out and ten times as many examples of each law: a workflow runs it every night.
test-all: .venv/tested $(TPU)
	$(BIN)/python $(TESTS) --hypothesis-profile=thorough

# Every view of every kind of page in a browser: some two minutes more.
test-page: .venv/tested
	$(BIN)/python $(TESTS) tests/browser

format: .venv/tested
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The tests with the lowest versions that pyproject.toml promises, but for tools that only the tests need.
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip compile --quiet --no-emit-index-url --resolution lowest-direct $(EXTRAS) pyproject.toml -o .venv-lowest/lowest.txt
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --constraint .venv-lowest/lowest.txt -e ".[test]"
	.venv-lowest/bin/python $(TESTS) -o filterwarnings=default --ignore=tests/browser --ignore=tests/sanitize tests

# New versions, with their hashes, for the demo and the tests; one compiler for TPUs, whatever the Python.
requirements: .venv/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	echo "setuptools>=77" | $(COMPILE) --universal -o requirements/run.txt pyproject.toml -
	echo "setuptools>=77" | $(COMPILE) --universal -o requirements/test.txt -c requirements/run.txt --extra test pyproject.toml -
	echo "jax[tpu]>=0.5" | $(COMPILE) --python-platform x86_64-manylinux_2_31 -o requirements/tpu.txt -

schema: .venv/tested
	$(BIN)/python -c "from roofline.render.export import to_json; from roofline.render.schema import blocks_schema, plan_schema, report_schema; \
	  open('src/roofline/report.schema.json', 'wb').write(to_json(report_schema())); \
	  open('src/roofline/plan.schema.json', 'wb').write(to_json(plan_schema())); \
	  open('src/roofline/blocks.schema.json', 'wb').write(to_json(blocks_schema()))"

clean:
	rm -rf .venv .venv-lowest .venv-tpu build dist demo src/*.egg-info
