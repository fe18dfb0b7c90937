# The two commands: `make run` and `make test`. Each makes .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: run test federation test-federation paper bench validity docs wheel lint format clean

run: $(VENV)/.run
	$(BIN)/fedcover run cora --clients 10 --methods loc,fed,gen,fed+prox+prior+mix,central --seeds 5

test: lint
	$(BIN)/python -m pytest -n 2

# A SuperLink and three SuperNodes on this machine, with TLS: Gen on Cora over real sockets.
federation: $(VENV)/.dev
	$(BIN)/fedcover federation try cora --clients 3 --methods gen

# The long tests over real processes: kills at random moments, cut networks, ten sites.
test-federation: $(VENV)/.dev
	$(BIN)/python -m pytest -m federation -n 0 -s tests/carriers/network/flower

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The paper's tables and figures, both presets, into results/ (an hour and a half; goes on where it stopped;
# needs FEDCOVER_DATA).
paper: $(VENV)/.dev
	$(BIN)/fedcover paper all --preset default
	$(BIN)/fedcover paper all --preset paper

# The docs site into site/; any warning is an error.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel, built and used from a folder of its own, with and without extras.
wheel: $(VENV)/.dev
	$(BIN)/python scripts/try_wheel.py

# Speed, as ratios measured in one run (minutes).
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/personal.py

# Coverage against its exact band on all four graphs (minutes; needs FEDCOVER_DATA).
validity: $(VENV)/.dev
	$(BIN)/python benchmarks/validity.py

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.run
