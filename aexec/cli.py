"""The command line: `aexec run | profile | trace-summary | serve | inspect | ops | kernels | devices`.

User errors end with one line on stderr and an exit status that tells the error's code
(10 + its canonical number); a traceback means a bug.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import aexec
from aexec import errors, proto
from aexec.framework.garbage_collector import freeze_heap
from aexec.graph.signature import TensorInfo, graph_signature
from aexec.runtime.profile import GROUPINGS, ORDERS, profile_steps
from aexec.saved_model import SavedModel

__all__ = ["main"]

_EXIT_BASE = 10
# Runs before the first that is measured: a plan is compiled at its third.
_WARM_UP = 5
_EPILOG = """exit status: 0 success; 2 wrong usage; 130 interrupted; otherwise 10 + the error's canonical code,
e.g. 11 CANCELLED, 13 INVALID_ARGUMENT, 14 DEADLINE_EXCEEDED, 15 NOT_FOUND, 22 UNIMPLEMENTED, 23 INTERNAL."""
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.

    Without `argv` it is that of this process, and what the process has made by then is not looked through for
    garbage: neither what was imported, while it runs, nor anything when it ends.
    """
    if argv is not None:
        return _main(argv)
    freeze_heap()
    try:
        return _main(sys.argv[1:])
    finally:
        freeze_heap()


def _main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments) or 0)
    except errors.OpError as error:
        print(f"aexec: {error.code.name}: {error}", file=sys.stderr)
        return _EXIT_BASE + error.code
    except KeyboardInterrupt:
        print("aexec: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aexec",
        description="Run TensorFlow GraphDefs inside an asyncio event loop, without TensorFlow.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"aexec {aexec.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    _add_profile(commands)
    _add_trace_summary(commands)
    _add_serve(commands)
    _add_inspect(commands)
    _add_listings(commands)
    return parser


# run


def _add_run(commands: Any) -> None:
    command = commands.add_parser(
        "run",
        help="run a graph once and print or save what it computes",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_request_arguments(command)
    command.add_argument("--out", metavar="FILE.npz", help="save the fetched values (.npy for a single one)")
    command.add_argument("--timeout", type=_duration, metavar="TIME", help="deadline, e.g. 2s, 500ms, 1m")
    _add_delegate_argument(command, default="auto")
    command.add_argument("--trace", metavar="FILE.json", help="write a Chrome trace of the step")
    command.add_argument("--repeat", type=int, default=1, metavar="N", help="run N times and print the median time")
    command.set_defaults(command=_run)


def _add_request_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "graph", help="GraphDef file: .pbtxt (text), .json or else binary; or a directory with a SavedModel"
    )
    _add_model_arguments(command)
    command.add_argument(
        "--feed",
        action="append",
        default=[],
        metavar="TENSOR=VALUE",
        help="value of a tensor, or of an input of the signature: a .npy file, FILE.npz:KEY, or JSON such as 3 or "
        "[[1,2],[3,4]]; repeatable",
    )
    command.add_argument("--fetch", action="append", default=[], metavar="TENSOR", help="tensor to compute; repeatable")
    command.add_argument("--target", action="append", default=[], metavar="NODE", help="operation to run; repeatable")


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: expected a number with ms, s, m or h, e.g. 2s")
    return float(match[1]) * _SECONDS[match[2]]


def _add_delegate_argument(command: argparse.ArgumentParser, *, default: str | None) -> None:
    command.add_argument(
        "--delegate",
        default=default,
        metavar="NAME|auto|none",
        help="library that runs regions of the graph, such as openvino: from the first run; auto: what is installed, "
        "where that is worth it; none: all runs here"
        + (" (%(default)s)" if default else " (auto for --graph, none for graphs that clients send)"),
    )


def _delegates(text: str) -> str | tuple[str, ...]:
    """What `SessionConfig` takes for an option `--delegate`."""
    if text == "auto":
        return text
    return () if text == "none" else tuple(text.split(","))


def _config(arguments: argparse.Namespace) -> aexec.SessionConfig:
    return aexec.SessionConfig(delegates=_delegates(arguments.delegate))


def _add_model_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tags", default="serve", metavar="TAG,TAG", help="of the graph in a SavedModel (%(default)s)"
    )
    command.add_argument(
        "--signature", metavar="NAME", help="of the SavedModel: feed its inputs and fetch its outputs, by their names"
    )


def _load(arguments: argparse.Namespace) -> aexec.Graph | SavedModel:
    with _progress(f"reading {arguments.graph}"):
        loaded = aexec.load(arguments.graph, [tag for tag in arguments.tags.split(",") if tag])
    assert isinstance(loaded, aexec.Graph | SavedModel)  # as paths are
    return loaded


def _loaded_request(
    arguments: argparse.Namespace,
) -> tuple[aexec.Graph | SavedModel, dict[str, str], dict[str, Any]]:
    """What to run, what to fetch of it, by the names under which to report it, and what to feed."""
    if not (arguments.fetch or arguments.target or arguments.signature):
        raise errors.InvalidArgumentError("nothing to do: name at least one --fetch, --target or --signature")
    given = dict(_read_feed(text) for text in arguments.feed)
    graph = _load(arguments)
    return graph, *_request(arguments, graph, given)


def _request(
    arguments: argparse.Namespace, graph: aexec.Graph | SavedModel, feeds: dict[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    if arguments.signature is None:
        return {name: name for name in (n if ":" in n else f"{n}:0" for n in arguments.fetch)}, feeds
    if isinstance(graph, aexec.Graph):
        raise errors.InvalidArgumentError(f"--signature: {arguments.graph} is no SavedModel and has no signatures")
    signature = graph.meta_graph.signature(arguments.signature)
    outputs = signature.fetches()
    for name in arguments.fetch:
        if name not in outputs:
            raise errors.NotFoundError(f"signature has no output '{name}'; there are {', '.join(outputs)}")
    return {name: outputs[name] for name in arguments.fetch or outputs}, signature.feeds(feeds)


def _run(arguments: argparse.Namespace) -> int:
    graph, outputs, feeds = _loaded_request(arguments)
    fetches = list(outputs.values())
    metadata = aexec.RunMetadata()
    options = aexec.RunOptions(timeout=arguments.timeout, trace=arguments.trace is not None)

    async def run() -> tuple[list[Any], list[float]]:
        times = []
        async with aexec.Session(graph, config=_config(arguments)) as session:
            for _ in range(max(1, arguments.repeat)):
                began = time.perf_counter()
                values = await session.run(fetches, feeds, arguments.target, options=options, metadata=metadata)
                times.append(time.perf_counter() - began)
        return values, times

    with _progress("running"):
        values, times = asyncio.run(run())
    if arguments.trace is not None:
        _write(arguments.trace, json.dumps(metadata.chrome_trace(show_memory=True)).encode())
    _report(dict(zip(outputs, values, strict=True)), arguments.out)
    if arguments.repeat > 1:
        print(f"median of {len(times)} runs: {float(np.median(times)) * 1e3:.3f} ms", file=sys.stderr)
    return 0


def _read_feed(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise errors.InvalidArgumentError(f"--feed {text!r}: expected TENSOR=VALUE")
    path, _, key = value.partition(".npz:")
    try:
        if value.endswith(".npy"):
            return name, np.load(value, allow_pickle=False)
        if key:
            with np.load(f"{path}.npz", allow_pickle=False) as arrays:
                return name, arrays[key]
        return name, json.loads(value)
    except FileNotFoundError as error:
        raise errors.NotFoundError(f"--feed {name}: {error.filename}; No such file or directory") from None
    except KeyError:
        raise errors.NotFoundError(f"--feed {name}: {path}.npz holds no array '{key}'") from None
    except json.JSONDecodeError:
        return name, value
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(f"--feed {name}: cannot read {value}: {error}") from None


def _report(values: dict[str, Any], out: str | None) -> None:
    if out is None:
        for name, value in values.items():
            array = np.asarray(value)
            kind = "string" if array.dtype.kind == "O" else str(array.dtype)
            print(f"{name}  {kind}{list(array.shape)}")
            print(np.array2string(array, threshold=100))
        return
    for name, value in values.items():
        if np.asarray(value).dtype.kind == "O":
            raise errors.InvalidArgumentError(f"--out cannot save {name}: strings have no NumPy file form")
    try:
        if out.endswith(".npy") and len(values) == 1:
            np.save(out, next(iter(values.values())))
        else:
            np.savez(out, **values)
    except OSError as error:
        raise errors.InvalidArgumentError(f"cannot write {out}: {error}") from None


def _write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise errors.InvalidArgumentError(f"cannot write {path}: {error}") from None


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    """A spinner on a terminal's stderr while `what` goes on."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


# profile


def _add_profile(commands: Any) -> None:
    command = commands.add_parser(
        "profile",
        help="run a graph several times and print where the time goes",
        description="""Run a graph several times, and print for each op, or node, what a run of it takes:
calls, total and self time, share of the self time, memory requested, and whether it ran inline on the event loop,
in a thread, awaited, or in a delegate.""",
        epilog="""total     from a call's begin until its outputs were there
self      of that, what the kernel computed: without waiting, and without the bodies of functions that it called
requested memory that it had allocated; none for outputs that are part of an input, or overwrote it

Traced runs are interpreted and watched node by node, which takes longer than an ordinary run: compare shares, and the
ordinary run's time in the first line.

"""
        + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_request_arguments(command)
    command.add_argument("--runs", type=_positive, default=10, metavar="N", help="runs of each kind (%(default)s)")
    _add_table_arguments(command, order="self", top=None)
    command.add_argument("--timeout", type=_duration, metavar="TIME", help="deadline of each run, e.g. 2s, 500ms, 1m")
    _add_delegate_argument(command, default="none")
    command.set_defaults(command=_profile)


def _add_table_arguments(command: argparse.ArgumentParser, *, order: str | None, top: int | None) -> None:
    command.add_argument("--by", choices=GROUPINGS, default="op", help="what a line is for (%(default)s)")
    orders = "%(default)s" if order else "two tables, by self time and by bytes"
    command.add_argument("--sort", choices=tuple(ORDERS), default=order, help=f"order of lines ({orders})")
    lines = "all" if top is None else "%(default)s"
    command.add_argument(
        "--top", type=_positive, default=top, metavar="N", help=f"print N lines, and the others as one ({lines})"
    )
    command.add_argument("--json", action="store_true", help="print JSON: sums over all runs, times in seconds")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _profile(arguments: argparse.Namespace) -> int:
    graph, outputs, feeds = _loaded_request(arguments)
    fetches = list(outputs.values())

    async def run() -> tuple[list[float], list[float], list[proto.StepStats]]:
        plain, traced, stats = [], [], []
        async with aexec.Session(graph, config=_config(arguments)) as session:

            async def seconds(trace: bool, metadata: aexec.RunMetadata | None = None) -> float:
                options = aexec.RunOptions(timeout=arguments.timeout, trace=trace)
                began = time.perf_counter()
                await session.run(fetches, feeds, arguments.target, options=options, metadata=metadata)
                return time.perf_counter() - began

            for _ in range(_WARM_UP):
                await seconds(trace=False)
            for _ in range(arguments.runs):
                metadata = aexec.RunMetadata()
                plain.append(await seconds(trace=False))
                traced.append(await seconds(trace=True, metadata=metadata))
                assert metadata.step_stats is not None
                stats.append(metadata.step_stats)
        return plain, traced, stats

    with _progress("profiling"):
        plain, traced, stats = asyncio.run(run())
    found = profile_steps(stats, by=arguments.by, order_by=arguments.sort)
    usual, watched = float(np.median(plain)), float(np.median(traced))
    if arguments.json:
        print(json.dumps({"run_seconds": usual, "traced_run_seconds": watched} | found.to_dict(), indent=2))
        return 0
    kernels = found.self_seconds / found.steps
    print(
        f"{arguments.graph}: {usual * 1e3:.3f} ms a run (median of {arguments.runs}); "
        f"traced {watched * 1e3:.3f} ms, of which kernels {kernels * 1e3:.3f} ms"
    )
    print(found.table(arguments.top))
    return 0


# trace-summary


def _add_trace_summary(commands: Any) -> None:
    command = commands.add_parser(
        "trace-summary",
        help="print which ops took most time and memory in a trace that `aexec run --trace` wrote",
        description="Add up the node runs of a Chrome trace, which `aexec run --trace` or TensorFlow's timeline wrote.",
    )
    command.add_argument("trace", metavar="FILE.json", help="the trace")
    _add_table_arguments(command, order=None, top=10)
    command.set_defaults(command=_trace_summary)


def _trace_summary(arguments: argparse.Namespace) -> int:
    from aexec.runtime.trace_summary import profile_trace, trace_facts

    trace = _read_json(arguments.trace)
    orders = [arguments.sort] if arguments.sort else ["self", "bytes"]
    if arguments.json:
        print(json.dumps(profile_trace(trace, by=arguments.by, order_by=orders[0]).to_dict(), indent=2))
        return 0
    print(f"{arguments.trace}: {trace_facts(trace)}")
    for order in orders:
        if len(orders) > 1:
            print(f"\nby {order}:")
        print(profile_trace(trace, by=arguments.by, order_by=order).table(arguments.top))
    return 0


def _read_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise errors.NotFoundError(f"{path}; No such file or directory") from None
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(f"cannot read {path} as JSON: {error}") from None


# serve


def _add_serve(commands: Any) -> None:
    command = commands.add_parser("serve", help="serve sessions over HTTP")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    command.add_argument("--port", type=int, default=8500, help="port, 0 for any free one (default %(default)s)")
    command.add_argument(
        "--graph",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="serve a graph file or SavedModel directory as session NAME",
    )
    command.add_argument("--example", action="store_true", help="load an example model and print requests to try")
    command.add_argument("--max-body-mb", type=float, default=64, help="largest request body (default %(default)s)")
    command.add_argument(
        "--max-run-mb", type=float, metavar="MB", help="most that the tensors of one run of a client's graph may take"
    )
    command.add_argument(
        "--max-session-mb", type=float, metavar="MB", help="most that all of a client's session may take of memory"
    )
    command.add_argument("--max-timeout", type=_duration, metavar="TIME", help="longest deadline a run may have")
    _add_delegate_argument(command, default=None)
    command.add_argument("--access-log", action="store_true", help="log every request")
    command.add_argument("--drain", type=_duration, default=10.0, metavar="TIME", help="wait for runs at shutdown")
    command.set_defaults(command=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from aexec_server import ServerConfig, serve
    from aexec_server.example import example_graph, example_requests

    graphs: dict[str, Any] = {"example": example_graph} if arguments.example else {}
    for text in arguments.graph:
        name, separator, path = text.partition("=")
        if not separator or not name:
            raise errors.InvalidArgumentError(f"--graph {text!r}: expected NAME=PATH")
        graphs[name] = path
    config = ServerConfig(
        host=arguments.host,
        port=arguments.port,
        graphs=graphs,
        max_body_bytes=int(arguments.max_body_mb * 2**20),
        max_run_bytes=_megabytes(arguments.max_run_mb),
        max_session_bytes=_megabytes(arguments.max_session_mb),
        max_timeout=arguments.max_timeout,
        drain_seconds=arguments.drain,
        delegates=None if arguments.delegate is None else _delegates(arguments.delegate),
        access_log=arguments.access_log,
    )

    def on_ready(address: str) -> None:
        print(f"aexec serves on {address}; sessions: {', '.join(graphs) or 'none yet'}; Ctrl-C stops it", flush=True)
        if arguments.example:
            print("\nTry these:\n" + "".join(f"\n  {line}\n" for line in example_requests(address)), flush=True)

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        serve(config, on_ready=on_ready)
    except OSError as error:
        raise errors.UnavailableError(f"cannot listen on {config.host}:{config.port}: {error.strerror}") from None
    return 0


def _megabytes(count: float | None) -> int | None:
    return None if count is None else int(count * 2**20)


# inspect


def _add_inspect(commands: Any) -> None:
    command = commands.add_parser("inspect", help="inputs, outputs and ops of a graph, and what cannot be run")
    command.add_argument("graph", help="GraphDef file, or a directory with a SavedModel")
    command.add_argument(
        "--tags", default="serve", metavar="TAG,TAG", help="of the graph in a SavedModel (%(default)s)"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--plan", action="store_true", help="print the Python function that runs all outputs given all inputs"
    )
    command.add_argument(
        "--passes",
        action="store_true",
        help="print what is left of all nodes from all inputs to all outputs, and joined",
    )
    command.add_argument(
        "--delegate", metavar="NAME|auto", help="print the regions that a delegate runs of all outputs given all inputs"
    )
    command.set_defaults(command=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    if arguments.plan:
        print(asyncio.run(_plan_source(loaded)))
        return 0
    if arguments.passes:
        print(asyncio.run(_rewrites(loaded)))
        return 0
    if arguments.delegate:
        print(asyncio.run(_regions(loaded, arguments.delegate)))
        return 0
    report = describe(loaded if isinstance(loaded, aexec.Graph) else loaded.graph)
    if not isinstance(loaded, aexec.Graph):
        report["saved_model"] = describe_model(loaded)
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
    async with aexec.Session(_graph_of(loaded), config=aexec.SessionConfig(delegates=_delegates(delegate))) as session:
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


def _whole(session: aexec.Session) -> aexec.Callable:
    """What computes all outputs of all inputs."""
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


def describe_model(model: SavedModel) -> dict[str, Any]:
    """What `aexec inspect` prints of a SavedModel besides its graph, as plain data."""
    from aexec.io.tensor_bundle import BundleReader

    variables = {}
    if model.has_variables():
        with BundleReader(model.variables_prefix) as reader:
            for name in reader.keys():  # noqa: SIM118
                dtype, shape = reader.dtype_and_shape(name)
                variables[name] = f"{dtype.name}{list(shape)}"
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
    }


def describe(graph: aexec.Graph) -> dict[str, Any]:
    """What `aexec inspect` prints, as plain data."""
    from aexec.framework import kernel_registry
    from aexec.graph.control_flow import EXECUTOR_OPS

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


# ops, kernels, devices


def _add_listings(commands: Any) -> None:
    ops = commands.add_parser("ops", help="list registered ops, or describe one")
    ops.add_argument("op", nargs="?", help="op to describe")
    ops.set_defaults(command=_ops)
    kernels = commands.add_parser("kernels", help="list kernels: op, device, types, and whether CuPy could run them")
    kernels.add_argument("op", nargs="?", help="only those of this op")
    kernels.set_defaults(command=_kernels)
    devices = commands.add_parser("devices", help="list devices and worker threads")
    devices.set_defaults(command=_devices)


def _ops(arguments: argparse.Namespace) -> int:
    from aexec.framework.op_registry import global_registry
    from aexec.graph import op_functions

    if arguments.op is None:
        print("\n".join(global_registry.ops()))
        return 0
    op_def = global_registry.lookup(arguments.op).op_def
    print(op_def)
    print(f"in Python: aexec.ops.{op_functions.snake_case(op_def.name)}{op_functions.signature_of(op_def)}")
    return _kernels(arguments)


def _kernels(arguments: argparse.Namespace) -> int:
    from aexec.framework.kernel_registry import global_registry
    from aexec.kernels.common import portable

    if arguments.op is not None and not global_registry.kernels_of(arguments.op):
        raise errors.NotFoundError(f"no kernel is registered for op '{arguments.op}'")
    counts: collections.Counter[str] = collections.Counter()
    for op in [arguments.op] if arguments.op is not None else global_registry.ops():
        marks = set()
        for kernel in global_registry.kernels_of(op):
            mark = portable.mark(kernel)
            marks.add(mark)
            print(f"{op}: {kernel}" + (f"; {mark}" if mark else ""))
        counts.update(["ops", max(marks)])
        counts["kernels"] += len(global_registry.kernels_of(op))
    if arguments.op is None:
        marked = counts["xp"] + counts["xp, reads back"]
        print(
            f"{counts['ops']} ops, {counts['kernels']} kernels; xp: {marked} ops whose kernels any array module "
            f"runs, {counts['xp, reads back']} of them read values back to the host"
        )
    return 0


def _devices(arguments: argparse.Namespace) -> int:
    from aexec.blas import blas_libraries
    from aexec.devices.device_registry import make_devices
    from aexec.runtime.worker_pool import WorkerPool

    for device in make_devices({}):
        facts = [f"{device.xp.__name__} {device.xp.__version__}"]
        if device.description:
            facts.append(device.description)
        if device.memory_limit:
            facts.append(f"{device.memory_limit / (1 << 30):.1f} GiB")
        print(f"{device.name}  {', '.join(facts)}")
    pool = WorkerPool().statistics()
    print(f"{pool.workers} worker threads for heavy kernels, {pool.intra_op_threads} threads with those that help them")
    for library in blas_libraries():
        kernels = f"kernels for {library.architecture}" if library.architecture else "kernels unknown"
        print(f"BLAS: {library.name} {library.version}, {kernels}, {library.threads} threads")
    return 0


if __name__ == "__main__":
    sys.exit(main())
