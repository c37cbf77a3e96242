"""Programs with datasets give what they give with TensorFlow: `programs.py`, and the pipelines of the kernels' tests.

They use "data.grouping", "data.copied", "data.dataset_base", "data.element_spec", "data.file_names", "data.iterator",
"data.mixing", "data.seeds", "data.in_memory", "data.traced" and "data.transformations".
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import aexec.compat.v1 as tf
from tests.data.programs import PROGRAMS, RECORDED, answer
from tests.kernels.datasets import pipelines

ANSWERS: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
KERNELS: dict[str, Any] = json.loads(gzip.decompress(pipelines.RECORDED.read_bytes()))
SOURCES = {**pipelines.PIPELINES, **pipelines.FAILURES, **pipelines.OF_FILES}


def test_every_program_is_recorded() -> None:
    assert list(ANSWERS) == list(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_what_it_gives_with_tensorflow(name: str) -> None:
    assert json.loads(json.dumps(answer(tf, PROGRAMS[name]))) == ANSWERS[name]


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the pipelines are in the current folder."""
    for name, content in KERNELS["files"].items():
        (tmp_path / name).write_bytes(base64.b64decode(content))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("name", KERNELS["pipelines"])
def test_pipeline_has_the_elements_that_it_has_with_tensorflow(name: str) -> None:
    pipeline, _, kind = name.partition(", ")
    found = pipelines.passes_of(tf, tf, tf.nest, SOURCES[pipeline], one_shot=bool(kind))["passes"]
    assert json.loads(json.dumps(found)) == KERNELS["pipelines"][name]["passes"]
