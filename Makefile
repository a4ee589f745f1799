# make demo    the seven methods of the paper on digits: a table, a page and a picture (about a minute)
# make test    all tests; those of the page need Chromium (apt-get install chromium), and say so where it is missing
# make check   lint and types
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check clean
.DEFAULT_GOAL := demo

# torch comes first and pinned: on some machines that gives the CPU build, a range the one with CUDA.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/fedmim compare

test: $(VENV)/installed
	$(BIN)/pytest -n auto --dist worksteal

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV)
