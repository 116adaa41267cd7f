"""Makes sure that the tests meet the installed package, never the clone they lie in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Imported here, before any test: a clone in a folder called `tensortune` is a package of that name
# to pytest, which would load its `__init__.py` where no module of the name is loaded yet.
import tensortune

if TYPE_CHECKING:
    from tensortune.data.dataset import Dataset

CLONE = Path(__file__).parents[1].absolute()


def pytest_sessionstart() -> None:
    # Not resolved: a link to the clone, called `tensortune` and on PYTHONPATH, is one's own choice.
    if Path(tensortune.__file__).parent.absolute() == CLONE:
        pytest.exit("install first (`make test`): these tests run against the installed package", 4)


@pytest.fixture(scope="session")
def clone() -> Path:
    """The folder with the sources, `constraints.txt` and `pyproject.toml`."""
    return CLONE


@pytest.fixture(scope="session")
def measured_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Real records in a folder, where their features are kept once they are computed."""
    from .measured import dataset_in  # after `pytest_sessionstart`, and for the tests that need it

    return dataset_in(tmp_path_factory.mktemp("measured") / "set")
