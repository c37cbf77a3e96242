"""Graphs with datasets that TensorFlow made, and the elements that it took from them: `pipelines.py`.

They use the kernels of "datasets.batch_dataset_ops", "datasets.cache_dataset_ops", "datasets.counted_dataset_ops",
"datasets.csv_dataset_ops", "datasets.file_dataset_ops", "datasets.function_dataset_ops",
"datasets.grouping_dataset_ops", "datasets.iterator_ops", "datasets.parallel_dataset_ops",
"datasets.parse_dataset_ops", "datasets.rebatch_dataset_ops", "datasets.shuffle_dataset_ops",
"datasets.sparse_dataset_ops" and "datasets.source_dataset_ops".
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.datasets.pipelines import FAILURES, OF_FILES, PIPELINES, RECORDED
from tests.kernels.datasets.random_pipelines import COUNT, RECORDED_RANDOM, drawn, read
from tests.kernels.datasets.recorded_pipelines import difference

_RECORDED: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
CASES: dict[str, Any] = _RECORDED["pipelines"]
RANDOM = read(RECORDED_RANDOM)


def test_every_pipeline_is_recorded() -> None:
    assert {name.removesuffix(", one shot") for name in CASES} == {*PIPELINES, *FAILURES, *OF_FILES}


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the pipelines are in the current folder."""
    for name, content in _RECORDED["files"].items():
        (tmp_path / name).write_bytes(base64.b64decode(content))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("name", CASES)
async def test_elements_are_those_of_tensorflow(name: str) -> None:
    assert await difference(CASES[name]) == ""


@pytest.mark.parametrize("seed", [*map(str, range(COUNT))])
async def test_elements_of_random_pipelines_are_those_of_tensorflow(seed: str) -> None:
    assert RANDOM[seed]["source"] == drawn(int(seed))
    assert await difference(RANDOM[seed]) == ""
