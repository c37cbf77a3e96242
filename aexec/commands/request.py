"""Reads a request from the command line: a graph, its feeds, its fetches."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

import aexec
from aexec import errors
from aexec.commands.terminal import progress
from aexec.commands.usage import FILE, add_delegate_argument, add_tags_argument, add_timeout_argument, delegates, wrong
from aexec.framework.finite_float import finite_float
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import choose_signature, graph_signature
from aexec.saved_model import is_saved_model

if TYPE_CHECKING:
    from aexec.saved_model import SavedModel

__all__ = ["LoadedRequest", "add_graph_argument", "add_request_arguments", "load_graph_argument", "read_request"]

STDIN = "-"

# The directory of a version of a model, and the names of the model in it, as a server takes them.
_VERSION = re.compile("[0-9]{1,18}")
_SAVED_MODELS = ("model.savedmodel", "saved_model")
_GRAPH_FILES = ("model.graphdef", "*.pb", "*.pbtxt")


@dataclass(frozen=True, slots=True)
class LoadedRequest:
    """The request for one step.

    Attributes:
        graph: the graph to run.
        outputs: name to report a value by → tensor to fetch.
        feeds: tensor → value.
        targets: nodes to run.
        config: of the session to run it in.
    """

    graph: aexec.Graph | SavedModel
    outputs: Mapping[str, str]
    feeds: Mapping[str, Any]
    targets: tuple[str, ...]
    config: aexec.SessionConfig

    @property
    def fetches(self) -> list[str]:
        return list(self.outputs.values())


def add_graph_argument(command: argparse.ArgumentParser) -> None:
    graph = command.add_argument(
        "graph",
        help="file of a GraphDef: text if it ends in .pbtxt, JSON if in .json, else binary; the directory of a "
        "SavedModel; a directory with numbered versions of a model, of which the newest is read; or - "
        "for a binary GraphDef on standard input",
    )
    graph.complete = FILE  # type: ignore[attr-defined]  # shtab looks for it there
    add_tags_argument(command)


def add_request_arguments(command: argparse.ArgumentParser, *, timeout: str, delegate: str) -> None:
    add_graph_argument(command)
    command.add_argument(
        "--signature",
        metavar="NAME",
        help="signature of the SavedModel whose inputs are fed and whose outputs are fetched, by their names (default, "
        "without --fetch and --target: serving_default, or the only one)",
    )
    command.add_argument(
        "--feed",
        action="append",
        default=[],
        metavar="TENSOR=VALUE",
        help="value of a tensor, or of an input of the signature: FILE.npy, FILE.npz:KEY, JSON such as 3 or "
        "[[1,2],[3,4]], or else a string; repeatable",
    )
    command.add_argument("--fetch", action="append", default=[], metavar="TENSOR", help="tensor to compute; repeatable")
    command.add_argument("--target", action="append", default=[], metavar="NODE", help="operation to run; repeatable")
    command.add_argument(
        "--device-count",
        action="append",
        default=[],
        metavar="TYPE=N",
        help="number of devices of a type, 0 for none, such as CPU=2, GPU=0 or, for a simulated device, SIM=1; "
        "repeatable (default: one CPU, no simulated device, all GPUs)",
    )
    add_timeout_argument(command, timeout)
    add_delegate_argument(command, default=delegate)


def load_graph_argument(arguments: argparse.Namespace) -> aexec.Graph | SavedModel:
    """The named graph; for a directory of numbered versions, as a server has them, the newest version."""
    source = sys.stdin.buffer.read() if arguments.graph == STDIN else _newest_version(Path(arguments.graph))
    with progress(f"reading {arguments.graph}"):
        loaded = aexec.load(source, arguments.tags)
    assert not isinstance(loaded, MetaGraph)  # `load` returns a graph or a model for paths and bytes
    return loaded


def _newest_version(path: Path) -> Path:
    """The model of the newest version in a directory of versions; any other path is returned as it is."""
    if not path.is_dir() or is_saved_model(path):
        return path
    numbered = {int(p.name): p for p in path.iterdir() if _VERSION.fullmatch(p.name) and p.is_dir()}
    if not numbered:
        return path
    version = numbered[max(numbered)]
    print(f"aexec: {path} has versions {', '.join(map(str, sorted(numbered)))}: reading {version}", file=sys.stderr)
    if is_saved_model(version):
        return version
    inside = [*_SAVED_MODELS, *(p.name for pattern in _GRAPH_FILES for p in sorted(version.glob(pattern)))]
    return next((version / name for name in inside if (version / name).exists()), version)


def read_request(arguments: argparse.Namespace) -> LoadedRequest:
    """Read the graph and the feeds.

    Raises:
        UsageError: there is nothing to do, or a feed is malformed.
        OpError: something cannot be read, or a name does not exist.
    """
    given: dict[str, Any] = {}
    for text in arguments.feed:
        name, value = _feed(text)
        if name in given:
            wrong(f"--feed {name} is given twice")
        given[name] = value
    graph = load_graph_argument(arguments)
    outputs, feeds = _meant(arguments, graph, given)
    _check_texts(graph if isinstance(graph, aexec.Graph) else graph.graph, feeds)
    counts = dict(map(_device_count, arguments.device_count))
    config = aexec.SessionConfig(device_count=counts, delegates=delegates(arguments.delegate))
    return LoadedRequest(graph, outputs, feeds, tuple(arguments.target), config)


def _meant(
    arguments: argparse.Namespace, graph: aexec.Graph | SavedModel, given: dict[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    by_tensor = arguments.signature is None and (arguments.fetch or arguments.target)
    if by_tensor:
        return {name: name for name in (n if ":" in n else f"{n}:0" for n in arguments.fetch)}, given
    if isinstance(graph, aexec.Graph):
        _refuse_plain(arguments, graph)
    signature = choose_signature(graph.signatures, arguments.signature)
    outputs = signature.fetches()
    for name in arguments.fetch:
        if name not in outputs:
            raise errors.NotFoundError(f"signature has no output '{name}'; there are {', '.join(outputs)}")
    return {name: outputs[name] for name in arguments.fetch or outputs}, signature.feeds(given)


def _refuse_plain(arguments: argparse.Namespace, graph: aexec.Graph) -> NoReturn:
    if arguments.signature is not None:
        raise errors.InvalidArgumentError(f"--signature: {arguments.graph} is no SavedModel and has no signatures")
    outputs = [info.name for info in graph_signature(graph).outputs.values()]
    some = f"; outputs of {arguments.graph} are {', '.join(outputs[:8])}" if outputs else ""
    wrong(f"nothing to do: name at least one --fetch or --target{some}{' ...' if len(outputs) > 8 else ''}")


def _device_count(text: str) -> tuple[str, int]:
    device_type, _, number = text.partition("=")
    if not device_type or not number.isdecimal():
        wrong(f"--device-count {text!r}: expected TYPE=N, such as CPU=2")
    return device_type, int(number)


def _feed(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        wrong(f"--feed {text!r}: expected TENSOR=VALUE")
    path, _, key = value.partition(".npz:")
    try:
        if value.endswith(".npy"):
            return name, np.load(value, allow_pickle=False)
        if key:
            with np.load(f"{path}.npz", allow_pickle=False) as arrays:
                return name, arrays[key]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.NotFoundError(f"--feed {name}: {error.filename}; {error.strerror}") from None
    except KeyError:
        raise errors.NotFoundError(f"--feed {name}: {path}.npz holds no array '{key}'") from None
    except (OSError, ValueError, EOFError) as error:
        raise errors.InvalidArgumentError(f"--feed {name}: cannot read {value}: {error}") from None
    return name, _literal(name, value)


def _check_texts(graph: aexec.Graph, feeds: Mapping[str, Any]) -> None:
    """Raise UsageError for a feed that was read as a string, though its tensor has numbers."""
    for name, value in feeds.items():
        if not isinstance(value, str):
            continue
        try:
            dtype = graph.tensor(name if ":" in name else f"{name}:0").dtype.base
        except errors.OpError:
            continue  # running the graph reports the error
        if dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype is aexec.bool_:
            wrong(
                f"--feed {name}: {value!r} is neither JSON, such as 3, [[1, 2], [3, 4]] or NaN, nor the name of an "
                f".npy file, and '{name}' is {dtype}"
            )


def _literal(name: str, text: str) -> Any:
    """The JSON value; or a string, if the text does not begin as JSON's lists, objects and strings do."""
    try:
        return json.loads(text, parse_float=finite_float)
    except json.JSONDecodeError as error:
        if text.lstrip()[:1] in ("[", "{", '"'):
            wrong(f"--feed {name}: {text!r} is no JSON: {error}")
        return text
    except ValueError as error:
        wrong(f"--feed {name}: {error}")
    except RecursionError:
        wrong(f"--feed {name}: lists nest too deeply")
