# The two commands of the README: `make demo` and `make test`. Each does all of its set-up in .venv.

PYTHON ?= python3
BIN = .venv/bin
INSTALLED = .venv/.installed
INSTALLED_DEV = .venv/.installed-dev

.PHONY: demo test test-all check bench clean

demo: $(INSTALLED)
	$(BIN)/dragoman demo $(DEMO)

test: $(INSTALLED_DEV)
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not gpu"

test-all: $(INSTALLED_DEV)
	$(BIN)/pytest -n 2 --dist worksteal -m "not gpu"

check: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

bench: $(INSTALLED_DEV)
	for file in bench/*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf .venv build dist

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(INSTALLED_DEV): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
