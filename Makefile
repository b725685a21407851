# Two commands set everything up on a machine with only Python, make and gcc:
#   make demo    install into .venv, analyse the sample, print the table, write a figure
#   make test    install into .venv with all the tests need, run every check
PYTHON ?= python3
BIN := .venv/bin
SAMPLE := $(shell pwd)/src/roofline/samples/gpt_training_h200.csv

.PHONY: demo test format schema clean

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/tested: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test]"
	touch $@

demo: .venv/installed
	mkdir -p demo
	$(BIN)/roofline analyze $(SAMPLE) --chip h200 --top 12 --json demo/report.json -o demo/roofline.svg

test: .venv/tested
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n auto

format: .venv/tested
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: .venv/tested
	$(BIN)/python -c "from roofline.render.export import to_json; from roofline.render.schema import report_schema as r; \
	  open('src/roofline/report.schema.json', 'wb').write(to_json(r()))"

clean:
	rm -rf .venv build dist demo src/*.egg-info
