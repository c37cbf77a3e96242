"""Strangers keep no files on the server by a cache of a dataset, whatever says the name of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec.data import Dataset
from tests.hostile.conftest import HostileServer


@pytest.mark.parametrize("fed", [False, True])
def test_cache_in_a_file_is_refused(hostile_server: HostileServer, tmp_path: Path, fed: bool) -> None:
    with aexec.Graph() as graph:
        name = aexec.placeholder("string", [], name="file") if fed else str(tmp_path / "cache")
        iterator = Dataset.range(3).cache(name).make_initializable_iterator()
        iterator.get_next(name="next")
        aexec.group(iterator.initializer, name="begin")
    server = hostile_server()
    handle = server.create(graph.to_graph_def().SerializeToString())
    feeds = {"file": {"b64": "L3RtcC9jYWNoZQ=="}} if fed else {}
    answer = server.run(handle, feeds=feeds, fetches=[], targets=["begin"])
    assert answer.status == 403 and "SessionConfig.cache_files" in answer.body["error"]
    assert list(tmp_path.glob("cache*")) == []


def test_cache_in_memory_is_allowed(hostile_server: HostileServer) -> None:
    with aexec.Graph() as graph:
        iterator = Dataset.from_tensor_slices(np.arange(3)).cache().make_initializable_iterator()
        iterator.get_next(name="next")
        aexec.group(iterator.initializer, name="begin")
    server = hostile_server()
    handle = server.create(graph.to_graph_def().SerializeToString())
    assert server.run(handle, feeds={}, fetches=[], targets=["begin"]).status == 200
