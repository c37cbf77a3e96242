from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import scipy.special  # noqa: F401  kernels import it at their first use, which reads files: not inside a test's loop

ARCHIVE = Path(__file__).parent.parent / "conformance" / "data" / "saved_model.zip"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with SavedModels that TensorFlow wrote, each in a folder of its case's name."""
    folder = tmp_path_factory.mktemp("models")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    for case in folder.iterdir():
        (case / "saved_model").rename(folder / case.name.partition(".")[2])
    return folder
