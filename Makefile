# Two commands set everything up on a machine with only Python, make and gcc:
#   make demo    install into .venv, analyse a real training profile, print its chart and table, write demo/report.html and more
#   make test    install into .venv with all the tests need, find or install Chromium and Node, run every check
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test-page demo test format schema clean

SOURCES := pyproject.toml setup.py $(wildcard src/roofline/*/*.[ch] src/roofline/*/*/*.[ch] src/roofline/*/*/*/*.[ch])

.venv/installed: $(SOURCES)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -m compileall -q src  # which pip leaves to the first run when it installs in place
	touch $@

# Most of the test libraries' modules are never imported: not compiling them saves minutes.
.venv/tested: $(SOURCES)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".[test]"
	$(BIN)/python -m compileall -q src
	$(BIN)/python tests/browser/programs.py
	touch .venv/installed $@

demo: .venv/installed
	mkdir -p demo
	$(BIN)/roofline analyze sample:train --chart --top 12 --json demo/report.json -o demo/report.html
	$(BIN)/roofline analyze sample:train -o demo/roofline.svg > demo/report.txt

test: .venv/tested
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n auto --ignore=tests/browser/test_page_whole.py

# Every view of every kind of page in a browser: some two minutes more.
test-page: .venv/tested
	$(BIN)/python -m pytest -q -n auto tests/browser

format: .venv/tested
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: .venv/tested
	$(BIN)/python -c "from roofline.render.export import to_json; from roofline.render.schema import report_schema as r; \
	  open('src/roofline/report.schema.json', 'wb').write(to_json(r()))"

clean:
	rm -rf .venv build dist demo src/*.egg-info
