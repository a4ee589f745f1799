# make demo    the paper's methods and the best of the others on MNIST-1D: a table, a page and a picture (under a minute)
# make test    all tests; those of the page need Chromium (apt-get install chromium), and say so where it is missing
# make lowest  tests with the lowest versions of the dependencies (torch aside); without those of Flower, Ray and the page
# make check   lint and types
# make docs    the documentation site, in site/; a warning, a broken link or anchor is an error (seconds)
# make docs-serve  the same on http://127.0.0.1:8000, rebuilt when a page changes
# make package build the wheel and the source distribution, and use both from an empty environment (about a minute)
# make audit   known vulnerabilities of the installed versions; needs the network
# make tutorials  execute the notebooks of docs/tutorials and store them with their outputs (under a minute)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

LOWEST := .venv-lowest
# What the dependencies are used for. The tests of the page need a browser, those of Flower its one release. Those of jobs,
# sweeps and several searches at once are slow, and use no dependency that the others do not use.
LOWEST_TESTS := tests/data tests/experiments tests/results tests/report tests/simulation/test_processes.py \
	tests/simulation/test_checkpoints.py tests/theory/test_bounds.py tests/test_files.py \
	--ignore tests/report/test_page.py --ignore tests/report/test_watch.py --ignore tests/report/test_client_charts.py \
	--ignore tests/experiments/test_ray_works.py --ignore tests/experiments/test_jobs.py \
	--ignore tests/experiments/test_sweep.py --ignore tests/experiments/test_own_code.py

.PHONY: demo test lowest check docs docs-serve package audit tutorials clean
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

$(LOWEST)/installed: pyproject.toml .ci/lowest.py
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python .ci/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install --quiet torch==2.13.0
	$(LOWEST)/bin/pip install --quiet --constraint $(LOWEST)/constraints.txt torch==2.13.0 \
		--editable '.[pandas,privacy,tensorboard,tune]' pytest pytest-xdist sympy
	touch $@

# Old versions use what newer ones of their own dependencies deprecate, which is not for us to mend.
lowest: $(LOWEST)/installed
	$(LOWEST)/bin/pytest -n auto --dist worksteal -W ignore::DeprecationWarning -k "not at_once" $(LOWEST_TESTS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The variable silences an advertisement.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

package:
	PYTHON=$(PYTHON) .ci/package

audit: $(VENV)/installed
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --skip-editable

tutorials: $(VENV)/installed
	$(BIN)/python .ci/tutorials.py

clean:
	rm -rf $(VENV) $(LOWEST) dist site
