# The two commands of the README: `make demo` and `make test`. Each does all of its set-up in .venv.

PYTHON ?= python3
BIN = .venv/bin
INSTALLED = .venv/.installed
INSTALLED_DEV = .venv/.installed-dev

.PHONY: demo test test-all check bench browser clean

demo: $(INSTALLED)
	$(BIN)/dragoman demo $(DEMO)

test: $(INSTALLED_DEV) browser
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not gpu"

test-all: $(INSTALLED_DEV) browser
	$(BIN)/pytest -n 2 --dist worksteal -m "not gpu"

check: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

bench: $(INSTALLED_DEV)
	for file in bench/*.py; do $(BIN)/python $$file || exit 1; done

# The page is tested in a real browser; where none may be installed, those tests are skipped and say why.
browser:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } > /dev/null 2>&1 || true

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
