"""`aexec inspect`: the inputs, outputs and ops of a graph, and the nodes that cannot be run."""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import aexec
from aexec.commands.request import add_graph_argument, load_graph_argument
from aexec.commands.usage import add_command, delegates
from aexec.graph.signature import TensorInfo, graph_signature

if TYPE_CHECKING:
    from aexec.saved_model import SavedModel

__all__ = ["add_inspect"]


def add_inspect(commands: Any) -> None:
    command = add_command(
        commands, "inspect", help="print the inputs, outputs and ops of a graph, and the ops that have no kernel"
    )
    add_graph_argument(command)
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.add_argument(
        "--plan", action="store_true", help="print the Python function that computes all outputs from all inputs"
    )
    command.add_argument(
        "--passes",
        action="store_true",
        help="print which nodes remain after graph passes, for all outputs from all inputs, and which were fused",
    )
    command.add_argument(
        "--delegate",
        metavar="NAME|auto",
        help="print the regions that a delegate would run, for all outputs from all inputs",
    )
    command.set_defaults(command=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    loaded = load_graph_argument(arguments)
    if arguments.plan:
        print(asyncio.run(_plan_source(loaded)))
        return 0
    if arguments.passes:
        print(asyncio.run(_rewrites(loaded)))
        return 0
    if arguments.delegate:
        print(asyncio.run(_regions(loaded, arguments.delegate)))
        return 0
    report = _describe(loaded if isinstance(loaded, aexec.Graph) else loaded.graph)
    if not isinstance(loaded, aexec.Graph):
        report["saved_model"] = _describe_model(loaded)
    if arguments.json:
        print(json.dumps(report, indent=2))
        return 0
    print(f"{arguments.graph}: {report['nodes']} nodes, {report['functions']} functions, producer {report['producer']}")
    if "saved_model" in report:
        _print_model(report["saved_model"])
    for title in ("inputs", "outputs"):
        print(f"{title}:")
        for entry in report[title]:
            print(f"  {entry['name']}  {entry['dtype']}{entry['shape']}")
    print("ops:")
    for op, count in report["ops"].items():
        print(f"  {count:6} {op}{'  (no kernel)' if op in report['ops_without_kernel'] else ''}")
    if report["ops_without_kernel"]:
        print(f"cannot run: no kernel for {', '.join(report['ops_without_kernel'])}")
    return 0


async def _plan_source(loaded: aexec.Graph | SavedModel) -> str:
    async with aexec.Session(_graph_of(loaded)) as session:
        return await session.plan_source(_whole(session))


async def _rewrites(loaded: aexec.Graph | SavedModel) -> str:
    async with aexec.Session(_graph_of(loaded)) as session:
        return str(await session.rewrites(_whole(session)))


async def _regions(loaded: aexec.Graph | SavedModel, delegate: str) -> str:
    async with aexec.Session(_graph_of(loaded), config=aexec.SessionConfig(delegates=delegates(delegate))) as session:
        regions = await session.regions(_whole(session))
    lines = []
    for region in regions:
        share = "" if region.worth_it else ", too small for auto"
        lines.append(
            f"{region.delegate}: {sum(region.ops.values())} nodes, about {region.seconds * 1e3:.2g} ms a run{share}"
        )
        lines.append(f"  {', '.join(f'{count} {op}' for op, count in region.ops.items())}")
        lines.append(f"  from {_some(region.inputs)} to {_some(region.outputs)}")
    return "\n".join(lines) or "no regions"


def _some(names: Sequence[str], most: int = 4) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _graph_of(loaded: aexec.Graph | SavedModel) -> aexec.Graph:
    return loaded if isinstance(loaded, aexec.Graph) else loaded.graph


def _whole(session: aexec.Session) -> aexec.SessionCallable:
    """A callable that computes all outputs from all inputs."""
    signature = graph_signature(session.graph)
    return session.make_callable(
        [info.name for info in signature.outputs.values()], [info.name for info in signature.inputs.values()]
    )


def _print_model(report: dict[str, Any]) -> None:
    print(f"SavedModel for {', '.join(report['tags'])}")
    for name, signature in report["signatures"].items():
        print(f"signature {name} ({signature['method']}):")
        for title in ("inputs", "outputs"):
            for key, tensor in signature[title].items():
                print(f"  {title.removesuffix('s')} {key}: {tensor}")
    for title in ("variables", "assets"):
        if report[title]:
            print(f"{title}:")
            for key, what in report[title].items():
                print(f"  {key}  {what}")
    if report["incomplete"]:
        print(f"incomplete: {report['incomplete']}")


def _describe_model(model: SavedModel) -> dict[str, Any]:
    """A SavedModel's part of the report of `aexec inspect`, as plain data."""
    from aexec.io.tensor_bundle import BundleReader, index_path

    variables, missing = {}, _what_is_missing(model)
    if missing is None and os.path.exists(index_path(model.variables_prefix)):
        with BundleReader(model.variables_prefix) as reader:
            for name in reader.keys():  # noqa: SIM118
                dtype, shape = reader.dtype_and_shape(name)
                variables[name] = f"{dtype}{list(shape)}"
    return {
        "tags": sorted(model.tags),
        "signatures": {
            name: {
                "method": signature.method_name,
                "inputs": {key: str(info) for key, info in signature.inputs.items()},
                "outputs": {key: str(info) for key, info in signature.outputs.items()},
            }
            for name, signature in model.signatures.items()
        },
        "variables": variables,
        "assets": dict(model.meta_graph.assets),
        "init_op": model.init_op,
        "incomplete": missing,
    }


def _what_is_missing(model: SavedModel) -> str | None:
    from aexec.saved_model import has_values_to_restore

    try:
        has_values_to_restore(model)
    except aexec.errors.OpError as error:
        return error.message
    return None


def _describe(graph: aexec.Graph) -> dict[str, Any]:
    """The graph's part of the report of `aexec inspect`, as plain data."""
    from aexec.framework.kernel_contract import kernel_registry
    from aexec.graph.nodes.control_flow import EXECUTOR_OPS

    ops = collections.Counter(node.op for node in graph)
    registry = kernel_registry.global_registry
    runnable = set(registry.ops()) | EXECUTOR_OPS | set(graph.library)
    signature = graph_signature(graph)

    def entries(infos: Mapping[str, TensorInfo]) -> list[dict[str, str]]:
        return [dict(zip(("name", "dtype", "shape"), info.facts(), strict=True)) for info in infos.values()]

    return {
        "nodes": len(graph),
        "functions": len(graph.library),
        "producer": graph.versions.producer,
        "inputs": entries(signature.inputs),
        "outputs": entries(signature.outputs),
        "ops": dict(sorted(ops.items(), key=lambda item: (-item[1], item[0]))),
        "ops_without_kernel": sorted(set(ops) - runnable),
    }
