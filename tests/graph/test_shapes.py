"""Inferred shapes and refusals are TensorFlow's.

`data/graph_shapes.json.gz` has whole graphs, `data/op_shapes.jsonl.gz` nodes of nearly all ops with
random input shapes, constants and attrs; both hold what TensorFlow 2.21 inferred or refused at import.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import aexec
from aexec import errors
from tests.conformance import cases

DATA = Path(__file__).parent / "data"
GRAPHS = json.loads(gzip.decompress((DATA / "graph_shapes.json.gz").read_bytes()))


def _nodes_by_op() -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for line in gzip.decompress((DATA / "op_shapes.jsonl.gz").read_bytes()).splitlines():
        entry = json.loads(line)
        found[entry["op"]].append(entry)
    return found


NODES = _nodes_by_op()


def _dims(node: aexec.Node) -> list[Any]:
    return [None if s.dims is None else [-1 if d is None else d for d in s.dims] for s in node.shapes]


def _family_of() -> dict[str, str]:
    return {folder: family for family in cases.families() for folder in cases.names(family)}


FAMILIES = _family_of()


@pytest.mark.parametrize("entry", GRAPHS, ids=[entry.get("case") or entry["name"] for entry in GRAPHS])
def test_shapes_of_whole_graphs(entry: dict[str, Any]) -> None:
    if "case" in entry:
        case = cases.Case(FAMILIES[entry["case"]], entry["case"])
        data = case.read(json.loads(case.read("case.json"))["graph"])
    else:
        data = base64.b64decode(entry["graph"])
    graph = aexec.Graph.from_bytes(data)
    found = {node.name: _dims(node) for node in graph if node.name in entry["shapes"]}
    assert found == entry["shapes"]


def _as_kernels_give(op: str, outputs: list[Any]) -> list[Any]:
    """TensorFlow's static shapes of an op, corrected where they are not those of what its kernel gives."""
    if op in ("FractionalAvgPool", "FractionalMaxPool"):  # whose sequences have their ends, too
        pooled, *sequences = outputs
        return [pooled, *([dim + 1 if dim >= 0 else dim for dim in dims] for dims in sequences)]
    return outputs


@pytest.mark.parametrize("op", sorted(NODES))
def test_shapes_of_single_nodes(op: str) -> None:
    for entry in NODES[op]:
        data = base64.b64decode(entry["graph"])
        if "outputs" in entry:
            assert _dims(aexec.Graph.from_bytes(data).node("m")) == _as_kernels_give(op, entry["outputs"])
            continue
        with pytest.raises(errors.InvalidArgumentError) as caught:
            aexec.Graph.from_bytes(data)
        assert caught.value.message == entry["error"]


@pytest.mark.parametrize("family", sorted(set(cases.families()) - {"errors"}))
def test_no_graph_is_refused_that_tensorflow_takes(family: str) -> None:
    archive = cases.archive(family)
    for name in archive.namelist():
        if name.endswith("/graph.pb"):
            graph = aexec.Graph.from_bytes(archive.read(name))
            assert all(node.shapes is not None for node in graph)
