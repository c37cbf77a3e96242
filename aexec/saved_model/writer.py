"""Writes a SavedModel: the variables of a session, files that the graph reads, and signatures.

`saved_model.pb` is written last and atomically: a directory without it is no model yet.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from aexec import proto
from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.signature import Signature
from aexec.io.files import make_directories, reporting, write_atomically
from aexec.runtime.session.session import Session
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread
from aexec.saved_model.loader import ASSETS, VARIABLES
from aexec.saved_model.model_files import FILE_NAMES, is_saved_model
from aexec.training.saver import VARIABLE_OPS, Saver

__all__ = ["save_saved_model"]

MAIN_OP = "saved_model_main_op"


async def save_saved_model(
    session: Session,
    directory: str | Path,
    signatures: Mapping[str, Signature],
    *,
    tags: Iterable[str] = ("serve",),
    main_op: Node | str | None = None,
    assets: Mapping[Tensor | str, str | Path] | None = None,
    saver: Saver | None = None,
    meta_graph: MetaGraph | None = None,
    more: Iterable[MetaGraph] = (),
    clear_devices: bool = False,
    strip_default_attrs: bool = False,
) -> Path:
    """Write a SavedModel that TensorFlow and `load_saved_model` can read.

    Args:
        session: its graph and the values of its variables are written.
        directory: a new directory, or one without a model in it.
        signatures: name → `Signature`; servers look for `serving_default`.
        tags: of the graph.
        main_op: operation to run once the variables are restored, such as to fill tables.
        assets: tensor that takes the path of a file → the file, which is copied.
        saver: saves the variables; by default one of all variables is added to the graph.
        meta_graph: collections and whatever else to keep.
        more: further graphs over the same variables.
        clear_devices: leave out the devices that nodes request.
        strip_default_attrs: leave out the attributes of nodes that have their op's default value.

    Returns:
        The directory.

    Raises:
        AlreadyExistsError: there is a model already.
        NotFoundError: a signature names a tensor that is not in the graph, or an asset is missing.
        FailedPreconditionError: a variable is not initialised.
        OpError: another error of the system.
    """
    target, graph = Path(directory), session.graph
    for signature in signatures.values():
        _check_signature(graph, signature)
    if await run_in_thread(is_saved_model, target, on_cancel=OnCancel.ABANDON):
        raise errors.AlreadyExistsError(f"{target} has a SavedModel in it already")
    base = meta_graph or MetaGraph(graph)
    collections = dict(base.collections)
    if main_op is not None:
        collections[MAIN_OP] = [graph.node(main_op).name if isinstance(main_op, str) else main_op.name]
    if saver is None and any(node.op in VARIABLE_OPS for node in graph):
        saver = Saver(graph=graph, sharded=True)
    if saver is not None:
        await saver.save(session, str(target / VARIABLES), write_meta_graph=False, write_state=False)
    files = {t if isinstance(t, str) else t.name: Path(path) for t, path in (assets or {}).items()}
    copied = await run_in_thread(_copy_assets, target, files, on_cancel=OnCancel.WAIT)
    written = replace(
        base,
        graph=graph,
        collections=collections,
        signatures=dict(signatures),
        saver_def=None if saver is None else saver.saver_def,
        assets=copied,
        tags=frozenset(tags),
    )
    settings = {"clear_devices": clear_devices, "strip_default_attrs": strip_default_attrs}
    await run_in_thread(_write, target, [written, *more], settings, on_cancel=OnCancel.WAIT)
    return target


def _check_signature(graph: Graph, signature: Signature) -> None:
    for info in (*signature.inputs.values(), *signature.outputs.values()):
        for name in (info.name,) if info.name else info.components:
            graph.tensor(name)


def _copy_assets(target: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Copy files into the assets directory; return tensor → name there, made unique."""
    names: dict[str, str] = {}
    sources: dict[str, Path] = {}
    if files:
        make_directories(str(target / ASSETS))
    for tensor, path in files.items():
        name, number = path.name, 0
        while sources.get(name, path) != path:
            number += 1
            name = f"{path.stem}_{number}{path.suffix}"
        if name not in sources:
            with reporting(str(path)):
                shutil.copyfile(path, target / ASSETS / name)
        sources[name] = path
        names[tensor] = name
    return names


def _write(target: Path, meta_graphs: Iterable[MetaGraph], settings: Mapping[str, bool]) -> None:
    message = proto.SavedModel(saved_model_schema_version=1)
    for meta_graph in meta_graphs:
        message.meta_graphs.append(meta_graph.to_proto(**settings))
    make_directories(str(target))
    with write_atomically(os.path.join(target, FILE_NAMES[0])) as file:
        file.write(message.SerializeToString(deterministic=True))
