"""Converts a graph that was built here to a MetaGraph, with its collections as messages; and back.

Variables, queue runners, conditionals and loops of a collection become TensorFlow's messages; tensors and operations
become their names.
Next to read: `aexec/graph/meta_graph.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.client.importing import import_graph_def
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.control_flow_context import ControlFlowContext
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import CollectionItem, MetaGraph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import require_graph
from aexec.queues.queue_runner import QueueRunner
from aexec.variables.variable import Variable

__all__ = ["export_meta_graph", "import_meta_graph"]

_log = logging.getLogger(__name__)

_VARIABLES = frozenset(
    {
        GraphKeys.GLOBAL_VARIABLES,
        GraphKeys.LOCAL_VARIABLES,
        GraphKeys.METRIC_VARIABLES,
        GraphKeys.MODEL_VARIABLES,
        GraphKeys.TRAINABLE_VARIABLES,
        GraphKeys.MOVING_AVERAGE_VARIABLES,
        GraphKeys.GLOBAL_STEP,
    }
)


def export_meta_graph(
    filename: str | Path | None = None,
    *,
    graph: Graph | None = None,
    collection_list: Iterable[str] | None = None,
    saver_def: proto.SaverDef | None = None,
    clear_devices: bool = False,
) -> MetaGraph:
    """A graph with its collections as a MetaGraph, which is also written to a file if one is named.

    Args:
        filename: a `.meta` file, or a `.pbtxt` one in text form.
        graph: by default the one being built.
        collection_list: which collections; by default all.  Private ones are left out, and so are, with a warning,
            those with items for which there is no message.
        saver_def: the nodes that save and restore its variables.
        clear_devices: leave out, in the file, the devices that nodes request.

    Raises:
        FailedPreconditionError: no graph is given and none is being built.
        OpError: the file cannot be written.
    """
    graph = require_graph() if graph is None else graph
    names = graph.collections.keys if collection_list is None else list(collection_list)
    found: dict[str, list[CollectionItem]] = {}
    for name in names:
        items = graph.collections.get(name)
        try:
            found[name] = [_exported(item) for item in items]
        except errors.InvalidArgumentError as error:
            _log.warning("Collection '%s' is not written: %s", name, error)
    made = MetaGraph(graph, {name: items for name, items in found.items() if items}, saver_def=saver_def)
    if filename is not None:
        made.save(filename, clear_devices=clear_devices)
    return made


def _exported(item: Any) -> CollectionItem:
    if isinstance(item, Variable | QueueRunner):
        return item.to_proto().SerializeToString()
    if isinstance(item, ControlFlowContext):
        message = item.to_proto()
        kind = message.WhichOneof("ctxt")
        data: bytes = getattr(message, str(kind)).SerializeToString()
        return data
    if isinstance(item, proto.CondContextDef | proto.WhileContextDef):
        return item.SerializeToString()
    if isinstance(item, Tensor | Node):
        return item.name
    if isinstance(item, str | bytes | int | float) and not isinstance(item, bool):
        return item
    raise errors.InvalidArgumentError(f"no message stands for {item!r}")


def import_meta_graph(
    source: MetaGraph | str | Path,
    *,
    import_scope: str = "",
    input_map: Mapping[str, Any] | None = None,
    clear_devices: bool = False,
) -> MetaGraph:
    """Add the nodes of a MetaGraph to the graph that is being built, and its collections to the graph's.

    Args:
        source: a MetaGraph, or its file.
        import_scope: put before all names, with a `/`.
        input_map: as of `import_graph_def`.
        clear_devices: drop the devices that nodes request.

    Returns:
        the MetaGraph; if it has a `saver_def`, `training.Saver.from_meta_graph` makes a saver of it.

    Raises:
        InvalidArgumentError: a collection holds an item that is not the right message; or an error of
            `import_graph_def`.
        NotFoundError: there is no such file, or a collection names something that is not in the graph.
    """
    meta_graph = source if isinstance(source, MetaGraph) else MetaGraph.load(source)
    graph = require_graph()
    message = meta_graph.graph.to_graph_def()
    if clear_devices:
        for node in message.node:
            node.device = ""
    import_graph_def(message, input_map, name=import_scope, uniquify_prefix=False)
    made: dict[bytes, Variable] = {}
    for name, items in meta_graph.collections.items():
        for item in items:
            try:
                read = _reader_of(name)
                if read is not None:
                    # The same variable in several collections is one object.
                    data = _bytes(item)
                    found = made.get(data) if name in _VARIABLES else None
                    found = read(data, import_scope) if found is None else found
                    if name in _VARIABLES:
                        made[data] = found
                    graph.collections.add(name, found)
                else:
                    graph.collections.add(name, _imported(item, graph, import_scope))
            except (DecodeError, ValueError) as error:
                raise errors.InvalidArgumentError(f"collection '{name}' holds {item!r}: {error}") from None
    return meta_graph


def _bytes(item: Any) -> bytes:
    if not isinstance(item, bytes):
        raise ValueError("it is no serialised message")
    return item


def _reader_of(name: str) -> Callable[[bytes, str], Any] | None:
    """A function that reads an item of a collection; None for names and plain values, which are kept."""
    if name in _VARIABLES:
        return lambda data, scope: Variable.from_proto(proto.VariableDef.FromString(data), import_scope=scope)
    if name == GraphKeys.QUEUE_RUNNERS:
        return lambda data, scope: QueueRunner.from_proto(proto.QueueRunnerDef.FromString(data), import_scope=scope)
    if name == GraphKeys.COND_CONTEXT:
        return lambda data, scope: _scoped(proto.CondContextDef.FromString(data), scope)
    if name == GraphKeys.WHILE_CONTEXT:
        return lambda data, scope: _scoped(proto.WhileContextDef.FromString(data), scope)
    return None


def _imported(item: CollectionItem, graph: Graph, scope: str) -> Any:
    """The node or tensor of a name in the graph; anything else as it is."""
    if not isinstance(item, str):
        return item
    name = f"{scope}/{item}" if scope else item
    if name.partition(":")[0] not in graph:
        return item
    return graph.as_graph_element(name)


def _scoped(message: Any, scope: str) -> Any:
    """A context with its names inside the scope that the graph was imported into."""
    if not scope:
        return message
    for field, value in message.ListFields():
        if field.name.endswith("_name"):
            setattr(message, field.name, f"{scope}/{value}")
        elif field.name.endswith("_names"):
            value[:] = [f"{scope}/{name}" for name in value]
    values = message.values_def
    external = {f"{scope}/{outside}": f"{scope}/{inside}" for outside, inside in values.external_values.items()}
    values.values[:] = [f"{scope}/{name}" for name in values.values]
    values.external_values.clear()
    values.external_values.update(external)
    for context in message.nested_contexts:
        _scoped(getattr(context, str(context.WhichOneof("ctxt"))), scope)
    return message
