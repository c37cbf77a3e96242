"""`Saved`: saves datasets to folders in TensorFlow's format, loads them, and makes snapshots of pipelines.

Next to read: `aexec/kernels/datasets/saved_dataset_ops.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from aexec import proto
from aexec.control_flow.function_call import add_call
from aexec.data.dataset_base import building
from aexec.data.element_spec import DatasetSpec, normal_spec
from aexec.data.file_names import FileNames
from aexec.data.traced import Traced, single, traced
from aexec.framework import dtypes, errors
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.nodes.traversal import producers_first

__all__ = ["Saved"]


class Saved(FileNames):
    """The methods that write datasets to folders, and read them."""

    def save(
        self,
        path: Any,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: Any = None,
    ) -> Node:
        """The operation that saves all elements to a folder, for `load` and TensorFlow's `Dataset.load`.

        An earlier content is replaced atomically at the end.

        Args:
            path: path of the folder, a scalar string.
            compression: `"GZIP"`, or None.
            shard_func: element → shard, an int64 scalar in [0, 255]; by default there is one shard.

        Raises:
            UnimplementedError: `checkpoint_args` are given.
        """
        if checkpoint_args is not None:
            raise errors.UnsupportedError("Dataset.save: checkpoint_args is not supported: elements are saved at once")
        with building(self.graph):
            function = self._sharding(shard_func, "save")
            inputs = {"input_dataset": self.variant, "path": path, "shard_func_other_args": function.captured}
            attrs = {
                "compression": compression or "",
                "shard_func": function.reference,
                "use_shard_func": shard_func is not None,
            }
            return add_call("SaveDataset", [function.graph], inputs, attrs, "SaveDataset")

    @classmethod
    def load(
        cls,
        path: Any,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Any], Any] | None = None,
        wait: bool = False,
        name: str | None = None,
    ) -> Self:
        """A dataset of the elements in a folder that `save` or TensorFlow's `Dataset.save` has written.

        Args:
            path: path of the folder, a scalar string.
            element_spec: the spec of an element.
            compression: the compression that `save` was given.
            reader_func: dataset of shards, each a dataset → dataset of elements; by default shards are interleaved.

        Raises:
            InvalidArgumentError: `element_spec` is None.
            UnimplementedError: `wait` is given.
        """
        if element_spec is None:
            raise errors.InvalidTypeError("Dataset.load: element_spec must be provided: a graph is built without files")
        if wait:
            raise errors.UnsupportedError("Dataset.load: wait=True is not supported: load what has been saved")
        with building():
            spec = normal_spec(element_spec)
            function = cls._reading(reader_func, spec, "load")
            inputs = {"path": path, "reader_func_other_args": function.captured}
            attrs = {"compression": compression or "", "reader_func": function.reference}
            return cls.made("LoadDataset", inputs, spec, attrs, [function], name)

    def snapshot(
        self,
        path: Any,
        compression: str | None = "AUTO",
        reader_func: Callable[[Any], Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """The same elements; the first complete pass saves them, and later passes and programs load them.

        The folder's name is a hash of the nodes that make the dataset, so another pipeline uses another folder.  The
        hash covers neither the code of Python sources nor the content of files: after changing them, use another path.

        Args:
            path: parent of the folder, a scalar string.
            compression: `"GZIP"`, None, or `"AUTO"`, which means None.
            reader_func, shard_func: as in `load` and `save`.
        """
        with building(self.graph):
            sharding = self._sharding(shard_func, "snapshot")
            reading = self._reading(reader_func, self.spec_here, "snapshot")
            inputs = {
                "path": path,
                "reader_func_other_args": reading.captured,
                "shard_func_other_args": sharding.captured,
            }
            attrs = {
                "compression": "" if compression == "AUTO" else compression or "",
                "reader_func": reading.reference,
                "shard_func": sharding.reference,
                "hash": _hash(self.variant),
                "hash_valid": True,
            }
            return self.derived("SnapshotDatasetV2", inputs, attrs=attrs, functions=[sharding, reading], name=name)

    def _sharding(self, shard_func: Callable[..., Any] | None, where: str) -> Traced:
        return self.traced(
            shard_func or (lambda *_: np.int64(0)), where, tensors_of_result=single(dtypes.int64, "shard_func")
        )

    @classmethod
    def _reading(cls, reader_func: Callable[[Any], Any] | None, spec: Any, where: str) -> Traced:
        def interleaved(shards: Any) -> Any:
            return shards.interleave(lambda shard: shard)

        made = traced(reader_func or interleaved, DatasetSpec(DatasetSpec(spec)), where, cls.dialect)
        if not isinstance(made.spec, DatasetSpec):
            raise errors.InvalidTypeError(f"Dataset.{where}: reader_func must return a dataset, got {made.spec}")
        return made


def _hash(variant: Tensor) -> int:
    """An int64 hash of the nodes and functions that make a tensor, independent of their names."""
    nodes: dict[int, Node] = {}
    waiting = [variant.node.id]
    while waiting:
        node_id = waiting.pop()
        if node_id not in nodes:
            nodes[node_id] = node = variant.graph.nodes[node_id]
            waiting += [source for source, _ in node.in_edges]
            waiting += node.control_edges
    known: dict[int, bytes] = {}
    for node in producers_first(list(nodes.values()), variant.graph.nodes.__getitem__):
        digest = hashlib.sha256(_plain(node.node_def, variant.graph.library).SerializeToString(deterministic=True))
        for source, slot in node.in_edges:
            digest.update(known[source] + slot.to_bytes(8, "little"))
        for waited_for in sorted(known[node_id] for node_id in node.control_edges):
            digest.update(waited_for)
        known[node.id] = digest.digest()
    return int.from_bytes(known[variant.node.id][:8], "little", signed=True)


def _plain(given: proto.NodeDef, library: FunctionLibrary) -> proto.NodeDef:
    """A copy of a node without name and inputs, and with digests in place of function names."""
    node = proto.NodeDef(op=given.op)
    for name, value in given.attr.items():
        if not name.startswith("_"):
            node.attr[name].CopyFrom(value)
    _name_by_content(node, library, ())
    return node


def _name_by_content(node: proto.NodeDef, library: FunctionLibrary, within: tuple[str, ...]) -> None:
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        for function in [value.func] if kind == "func" else value.list.func if kind == "list" else ():
            function.name = _digest_of(function.name, library, within)


def _digest_of(name: str, library: FunctionLibrary, within: tuple[str, ...]) -> str:
    """Args: `within`: the functions that lead to this one, which may call themselves."""
    if name in within:
        return f"caller {within.index(name)}"
    function = proto.FunctionDef()
    function.CopyFrom(library.get(name))
    function.signature.name = ""
    for node in function.node_def:
        _name_by_content(node, library, (*within, name))
    return hashlib.sha256(function.SerializeToString(deterministic=True)).hexdigest()
