# Each target makes .venv when it is missing and installs again only after a change:
# all packages when pyproject.toml or constraints.txt changed, else this one alone.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml py.typed $(wildcard README.md) \
	$(shell find *.py data costmodel search cli -type f -not -name '*.pyc')

.PHONY: demo test lint clean

demo: .venv/package
	$(BIN)/tensortune tune matmul m=512 n=512 k=512 --trials 64 \
		--out demo/matmul-$$(date +%Y%m%d-%H%M%S)-$$$$

# Against the installed package, never the clone: see tests/conftest.py.
test: .venv/dev .venv/package
	$(BIN)/pytest $(ARGS)

lint: .venv/dev .venv/package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p tensortune
	$(BIN)/pytest --quiet tests/test_layers.py

clean:
	rm -rf .venv build demo *.egg-info

.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

# Old files in build/ would get into the wheel, so every build starts from none and leaves none.
SWEEP := rm -rf build *.egg-info

.venv/needs: .venv/python pyproject.toml constraints.txt
	@$(SWEEP)
	$(PIP) --constraint constraints.txt setuptools .
	@$(SWEEP)
	@touch $@

.venv/dev: .venv/needs
	$(PIP) --constraint constraints.txt '.[dev,report,neural,rl]'
	@$(SWEEP)
	@touch $@

.venv/package: .venv/needs $(SOURCES)
	$(PIP) --no-deps --no-build-isolation --force-reinstall .
	@$(SWEEP)
	@touch $@
