"""Makes sure that the tests meet the installed package, never the clone they lie in."""

from pathlib import Path

import pytest

# Imported here, before any test: a clone in a folder called `tensortune` is a package of that name
# to pytest, which would load its `__init__.py` where no module of the name is loaded yet.
import tensortune

CLONE = Path(__file__).parents[1].absolute()


def pytest_sessionstart() -> None:
    # Not resolved: a link to the clone, called `tensortune` and on PYTHONPATH, is one's own choice.
    if Path(tensortune.__file__).parent.absolute() == CLONE:
        pytest.exit("install first (`make test`): these tests run against the installed package", 4)


@pytest.fixture(scope="session")
def clone() -> Path:
    """The folder with the sources, `constraints.txt` and `pyproject.toml`."""
    return CLONE
