"""`freeze_graph`: writes a graph whose variables are replaced by constants with a checkpoint's values.

Next to read: `strip_unused_lib.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from aexec import proto
from aexec.client.importing import import_graph_def
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running import saved_model
from aexec.compat.v1.running.checkpoints import load_checkpoint
from aexec.compat.v1.running.graph_util import convert_variables_to_constants
from aexec.compat.v1.running.session import Session
from aexec.compat.v1.running.training import Saver, checkpoint_exists, import_meta_graph
from aexec.compat.v1.values.tensors import Graph
from aexec.framework import errors
from aexec.framework.wire.message_files import read_message_file

__all__ = ["freeze_graph", "freeze_graph_with_def_protos"]

M = TypeVar("M", bound=Message)


def freeze_graph(
    input_graph: str,
    input_saver: str,
    input_binary: bool,
    input_checkpoint: str,
    output_node_names: str,
    restore_op_name: str | None,
    filename_tensor_name: str | None,
    output_graph: str,
    clear_devices: bool,
    initializer_nodes: str,
    variable_names_whitelist: str = "",
    variable_names_blacklist: str = "",
    input_meta_graph: str | None = None,
    input_saved_model_dir: str | None = None,
    saved_model_tags: str = "serve",
    checkpoint_version: int = 2,
) -> proto.GraphDef:
    """Restore a graph's variables, replace them by constants, and write the part that the outputs need.

    Args:
        input_graph: path of a GraphDef; ignored if a MetaGraph or a SavedModel is given.
        input_saver: path of a SaverDef; by default all variables in the checkpoint are restored.
        input_binary: True if these files and `input_meta_graph` are binary, False if they are protobuf text.
        input_checkpoint: prefix of the checkpoint.
        output_node_names: names of operations, separated by commas.
        restore_op_name, filename_tensor_name: ignored, as in TensorFlow.
        output_graph: path of the binary GraphDef to write; empty to write none.
        clear_devices: drop the devices that nodes request.
        initializer_nodes: names of operations to run after the checkpoint is restored, separated by commas.
        input_meta_graph: path of a MetaGraphDef, in place of `input_graph`.
        input_saved_model_dir: folder of a SavedModel, in place of `input_graph` and `input_checkpoint`.
        saved_model_tags: tags of the MetaGraph in the SavedModel, separated by commas.

    Returns:
        The frozen GraphDef.

    Raises:
        NotFoundError: an input file does not exist, or an output is not in the graph.
        InvalidArgumentError: an input file is damaged.
        ValueError: the checkpoint does not exist, or `output_node_names` is empty.
        UnimplementedError: a list of variables to include or leave out is given.
    """
    graph, saver, meta_graph = proto.GraphDef(), None, None
    if input_meta_graph:
        meta_graph = _read(input_meta_graph, proto.MetaGraphDef, input_binary)
    elif not input_saved_model_dir:
        graph = _read(input_graph, proto.GraphDef, input_binary)
    if input_saver:
        saver = _read(input_saver, proto.SaverDef, input_binary)
    return freeze_graph_with_def_protos(
        graph,
        saver,
        input_checkpoint,
        output_node_names,
        restore_op_name,
        filename_tensor_name,
        output_graph,
        clear_devices,
        initializer_nodes,
        variable_names_whitelist,
        variable_names_blacklist,
        meta_graph,
        input_saved_model_dir,
        [tag for tag in saved_model_tags.split(",") if tag],
        checkpoint_version,
    )


def freeze_graph_with_def_protos(
    input_graph_def: proto.GraphDef | None,
    input_saver_def: proto.SaverDef | None,
    input_checkpoint: str | None,
    output_node_names: str,
    restore_op_name: str | None,
    filename_tensor_name: str | None,
    output_graph: str | None,
    clear_devices: bool,
    initializer_nodes: str | None,
    variable_names_whitelist: str = "",
    variable_names_blacklist: str = "",
    input_meta_graph_def: proto.MetaGraphDef | None = None,
    input_saved_model_dir: str | None = None,
    saved_model_tags: Sequence[str] | None = None,
    checkpoint_version: int = 2,
) -> proto.GraphDef:
    """`freeze_graph` with messages in place of files."""
    refuse("freeze_graph", variable_names_whitelist=variable_names_whitelist or None)
    refuse("freeze_graph", variable_names_blacklist=variable_names_blacklist or None)
    if not input_saved_model_dir and not checkpoint_exists(input_checkpoint or ""):
        raise errors.InvalidValueError(f"Input checkpoint '{input_checkpoint}' doesn't exist!")
    names = [name.strip() for name in output_node_names.split(",") if name.strip()]
    if not names:
        raise errors.InvalidValueError("You need to supply the name of a node to --output_node_names.")
    with Graph().as_default() as graph, Session(graph=graph) as session:
        if input_saved_model_dir:
            saved_model.load(session, list(saved_model_tags or ()), input_saved_model_dir)
        elif input_meta_graph_def is not None:
            saver = import_meta_graph(input_meta_graph_def, clear_devices=clear_devices)
            (saver or Saver()).restore(session, input_checkpoint or "")
        else:
            _import(input_graph_def or proto.GraphDef(), clear_devices=clear_devices)
            _saver(graph, input_saver_def, input_checkpoint or "").restore(session, input_checkpoint or "")
        if initializer_nodes:
            session.run(initializer_nodes.replace(" ", "").split(","))
        frozen = convert_variables_to_constants(session, graph.to_graph_def(), names)
    if clear_devices:
        _clear_devices(frozen)
    if output_graph:
        with open(output_graph, "wb") as file:
            file.write(frozen.SerializeToString(deterministic=True))
    return frozen


def _import(message: proto.GraphDef, *, clear_devices: bool) -> None:
    copy = proto.GraphDef()
    copy.CopyFrom(message)
    if clear_devices:
        _clear_devices(copy)
    import_graph_def(copy, name="")


def _clear_devices(message: proto.GraphDef) -> None:
    for node in message.node:
        node.device = ""


def _saver(graph: Any, definition: proto.SaverDef | None, checkpoint: str) -> Saver:
    """The saver that a message defines; without a message, a saver of the checkpoint's variables."""
    if definition is not None:
        return Saver(saver_def=definition)
    return Saver({name: name for name in load_checkpoint(checkpoint).get_variable_to_shape_map() if name in graph})


def _read(path: str, kind: type[M], is_binary: bool) -> M:
    if not os.path.exists(path):
        raise errors.NotFoundError(f"Input file '{path}' does not exist!")
    return read_message_file(path, kind, is_text=not is_binary)
