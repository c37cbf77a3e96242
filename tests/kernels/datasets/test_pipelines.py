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

import numpy as np
import pytest

import aexec
from aexec import errors
from tests.kernels.datasets.pipelines import FAILURES, MOST, MOST_ERRORS, OF_FILES, PIPELINES, RECORDED

_RECORDED: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
CASES: dict[str, Any] = _RECORDED["pipelines"]


def _decoded(value: list[Any]) -> np.ndarray[Any, Any]:
    dtype, shape, values = value
    if dtype != "string":
        return np.array(values, dtype).reshape(shape)
    texts = np.empty(len(values), object)
    texts[:] = [base64.b64decode(text) for text in values]
    return texts.reshape(shape)


async def _pass(session: aexec.Session, case: dict[str, Any]) -> tuple[list[Any], list[str]]:
    elements: list[Any] = []
    failed: list[str] = []
    try:
        if case["initializer"]:
            await session.run([], targets=[case["initializer"]])
        while len(elements) < MOST and len(failed) < MOST_ERRORS:
            try:
                values = await session.run(case["fetches"])
                elements.append([np.array(value, object if type(value) is bytes else None) for value in values])
            except errors.OutOfRangeError:
                break
            except errors.OpError as error:
                elements.append(None)
                failed.append(type(error).__name__)
    except errors.OpError as error:
        failed.append(type(error).__name__)
    return elements, failed


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
    case = CASES[name]
    async with aexec.Session(base64.b64decode(case["graph"])) as session:
        for expected in case["passes"]:
            elements, failed = await _pass(session, case)
            assert failed == expected["errors"]
            assert len(elements) == len(expected["elements"])
            for element, recorded in zip(elements, expected["elements"], strict=True):
                assert (element is None) == (recorded is None)
                for component, value in zip(element or (), recorded or (), strict=True):
                    wanted = _decoded(value)
                    assert (component.dtype, component.shape) == (wanted.dtype, wanted.shape)
                    assert np.array_equal(component, wanted)
