"""Kinds of settings that name what is served, and the libraries that run it: graphs, models, delegates.

    aexec serve --graph g=graph.pb --model m=models/m --model-inputs m:image=x:0 --model-outputs m:label=y:0

is, in a file:

    graphs = { g = "graph.pb" }
    [models.m]
    path = "models/m"
    inputs = { image = "x:0" }
    outputs = { label = "y:0" }
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from aexec import errors
from aexec.hosting import parse_duration
from aexec_server.settings.model_source import Batching, GraphSource, ModelSource
from aexec_server.settings.setting_kinds import Names, SettingKind

__all__ = ["Delegates", "Graphs", "Models", "unknown_key"]

_PATHS = "NAME=PATH"
_PARTS = "NAME:KEY=TENSOR,KEY=TENSOR"
_BATCHES = "NAME=ROWS,TIME"
_NOT_DURABLE = (
    "a served model cannot be durable, because its state is that of its files: let clients make durable sessions "
    "(docs/durability.md)"
)
# Fields of a ModelSource that have the same key in a file; the others follow from how the source was given.
_MODEL_KEYS = ("path", "inputs", "outputs", "tags", "versions", "labels", "batching")


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the words for an unknown name, with the known name that is closest to it."""
    close = get_close_matches(key, known, 1)
    return f"there is no setting '{key}'" + (f"; did you mean '{close[0]}'?" if close else "")


def _named(texts: Sequence[str]) -> dict[str, object]:
    """Parse texts NAME=PATH, each name once."""
    paths: dict[str, object] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise ValueError(f"expected {_PATHS}, got {text!r}")
        if name in paths:
            raise ValueError(f"the name {name} is given twice")
        paths[name] = path
    return paths


class Graphs(SettingKind):
    """Names of graphs with their sources.  In a file a source is a path."""

    what = "names with paths"
    metavar = _PATHS

    def from_text(self, text: str) -> object:
        return _named(text.split(","))

    def from_flags(self, arguments: argparse.Namespace, name: str) -> object | None:
        texts = getattr(arguments, name)
        return None if texts is None else _named(texts)

    def add_flags(self, group: argparse._ArgumentGroup, flag: str, name: str, help: str) -> None:
        group.add_argument(flag, dest=name, action="append", metavar=self.metavar, help=help)

    def decode(self, value: object, folder: Path) -> Any:
        if not isinstance(value, dict):
            raise ValueError
        return {name: self._decode_one(name, one, folder) for name, one in value.items()}

    def _decode_one(self, name: str, value: object, folder: Path) -> object:
        if type(value) is not str or not value:
            raise ValueError(f"{name}: expected a path, got {value!r}")
        return str(folder / value)

    def check(self, value: object) -> bool:
        return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)

    def encode(self, value: Any) -> object:
        return {name: _encoded_source(source) for name, source in value.items()}

    def show(self, value: Any) -> str:
        return ", ".join(value) or "none"


def _encoded_source(source: GraphSource) -> str:
    return str(source) if isinstance(source, str | Path) else "(a graph of this program)"


class Models(Graphs):
    """Names of models with their sources.  In a file a source is a path, or a table with the fields of
    `ModelSource`.
    """

    what = "names with paths, or tables"

    @property
    def in_python(self) -> str:
        return "names with ModelSources"

    # On a command line each part of a model has an option of its own.

    def add_flags(self, group: argparse._ArgumentGroup, flag: str, name: str, help: str) -> None:
        super().add_flags(group, flag, name, help)
        for suffix, metavar, of in (
            (
                "inputs",
                "NAME:INPUT=TENSOR,…",
                "tensors of the inputs of model NAME, if it has no signatures; such as mymodel:image=x:0",
            ),
            ("outputs", "NAME:OUTPUT=TENSOR,…", "tensors of the outputs of model NAME, if it has no signatures"),
        ):
            group.add_argument(f"{flag}-{suffix}", action="append", default=[], metavar=metavar, help=of)
        group.add_argument(
            f"{flag}-versions",
            metavar="N|all",
            help=f"serve the newest N versions of each {flag}, or all (at least 1; default: 1)",
        )
        group.add_argument(
            "--batch",
            action="append",
            default=[],
            metavar=_BATCHES,
            help="join requests to model NAME into batches of up to ROWS rows, which wait up to TIME to be filled; "
            "such as m=32,2ms (default: no batches)",
        )

    def from_flags(self, arguments: argparse.Namespace, name: str) -> object | None:
        texts = getattr(arguments, name) or []
        models: dict[str, dict[str, object]] = {name: {"path": path} for name, path in _named(texts).items()}
        parts: list[tuple[str, str, dict[str, Any]]] = [
            ("inputs", "--model-inputs", _tensors("--model-inputs", arguments.model_inputs)),
            ("outputs", "--model-outputs", _tensors("--model-outputs", arguments.model_outputs)),
            ("batching", "--batch", _batches(arguments.batch)),
        ]
        for part, option, given in parts:
            for model, value in given.items():
                if model not in models:
                    raise ValueError(f"{option} names model {model}, which no --model gives")
                models[model][part] = value
        if arguments.model_versions is not None:
            versions = arguments.model_versions
            if not models:
                raise ValueError(f"there is no --model for --model-versions {versions}")
            for one in models.values():
                one["versions"] = int(versions) if versions.isdecimal() else versions
        return models or None

    def _decode_one(self, name: str, value: object, folder: Path) -> object:
        if not isinstance(value, dict):
            value = {"path": value}
        for key in value:
            if key == "durable":
                raise ValueError(f"{name}: {_NOT_DURABLE}")
            if key not in _MODEL_KEYS:
                raise ValueError(f"{name}: {unknown_key(key, _MODEL_KEYS)}")
        read = _Reader(name, value)
        path = read("path", lambda given: folder / _text(given), "a path", None)
        if path is None:
            raise ValueError(f"{name}: it has no path")
        return ModelSource(
            str(path),
            read("inputs", _texts_by_name, "names with tensors", {}),
            read("outputs", _texts_by_name, "names with tensors", {}),
            read("tags", _texts, "a list of texts", ("serve",)),
            read("versions", _versions, "a number of versions of at least 1, a list of them, or all", 1),
            read("batching", _batching, "a table with max_rows, max_delay, sizes, max_running", None),
            read("labels", _numbers_by_name, "names with versions", {}),
        )

    def check(self, value: object) -> bool:
        return super().check(value) and all(isinstance(one, ModelSource) for one in value.values())  # type: ignore[attr-defined]

    def encode(self, value: Any) -> object:
        return {name: _encoded_model(model) for name, model in value.items()}


def _encoded_model(model: ModelSource) -> dict[str, object]:
    encoded: dict[str, object] = {"path": _encoded_source(model.source)}
    versions: object = model.versions
    if versions is None:
        versions = "all"
    encoded["versions"] = versions if isinstance(versions, int | str) else sorted(versions)  # type: ignore[call-overload]
    encoded["tags"] = list(model.tags)
    for key in ("inputs", "outputs", "labels"):
        if getattr(model, key):
            encoded[key] = dict(getattr(model, key))
    if model.batching is not None:
        encoded["batching"] = dataclasses.asdict(model.batching) | {"sizes": list(model.batching.sizes)}
    return encoded


class _Reader:
    """Reads the parts of one model's table."""

    def __init__(self, model: str, table: Mapping[str, object]) -> None:
        self._model = model
        self._table = table

    def __call__(self, key: str, read: Callable[[object], Any], what: str, default: Any) -> Any:
        if key not in self._table:
            return default
        try:
            return read(self._table[key])
        except errors.OpError:
            raise
        except (TypeError, ValueError) as error:
            said = str(error) if type(error) is ValueError and str(error) else f"got {self._table[key]!r}"
            raise ValueError(f"{self._model}.{key}: expected {what}, {said}") from None


def _text(value: object) -> str:
    if type(value) is not str or not value:
        raise TypeError
    return value


def _whole(value: object) -> int:
    if type(value) is not int or value < 1:
        raise TypeError
    return value


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _texts_by_name(value: object) -> dict[str, str]:
    return {name: _tensor(_text(text)) for name, text in _table(value).items()}


def _numbers_by_name(value: object) -> dict[str, int]:
    return {name: _whole(number) for name, number in _table(value).items()}


def _versions(value: object) -> int | tuple[int, ...] | None:
    if value == "all":
        return None
    return tuple(map(_whole, value)) if isinstance(value, list) else _whole(value)


def _batching(value: object) -> Batching:
    table = _table(value)
    known = {field.name for field in dataclasses.fields(Batching)}
    for key in table:
        if key not in known:
            raise ValueError(unknown_key(key, known))
    given: dict[str, Any] = {key: _whole(table[key]) for key in ("max_rows", "max_running") if key in table}
    if "max_delay" in table:
        delay = table["max_delay"]
        if type(delay) not in (str, int, float):
            raise TypeError
        given["max_delay"] = parse_duration(delay) if isinstance(delay, str) else delay
    if "sizes" in table:
        given["sizes"] = tuple(map(_whole, _list(table["sizes"])))
    return Batching(**given)


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _tensors(flag: str, texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parse texts NAME:KEY=TENSOR,KEY=TENSOR to model → key → tensor."""
    parts: dict[str, dict[str, str]] = {}
    for text in texts:
        model, _, pairs = text.partition(":")
        for pair in pairs.split(","):
            key, _, tensor = pair.partition("=")
            if not (model and key and tensor):
                raise ValueError(f"{flag} {text!r}: expected {_PARTS}")
            if key in parts.setdefault(model, {}):
                raise ValueError(f"{flag} {text!r}: the name {key} is given twice")
            parts[model][key] = tensor
    return parts


def _batches(texts: Sequence[str]) -> dict[str, dict[str, object]]:
    """Parse texts NAME=ROWS,TIME to model → its batching."""
    batches: dict[str, dict[str, object]] = {}
    for text in texts:
        name, _, settings = text.partition("=")
        rows, _, delay = settings.partition(",")
        if not name or not rows.isdecimal() or int(rows) == 0 or not delay:
            raise ValueError(f"--batch {text!r}: expected {_BATCHES}, of at least 1 row")
        if name in batches:
            raise ValueError(f"--batch {text!r}: the name {name} is given twice")
        batches[name] = {"max_rows": int(rows), "max_delay": delay}
    return batches


class Delegates(Names):
    """Names of delegates, `auto`, or `none`."""

    def __init__(self) -> None:
        super().__init__("names of delegates, auto, or none", "NAME,…|auto|none")

    def from_text(self, text: str) -> object:
        return text if text in ("auto", "none") else super().from_text(text)

    def decode(self, value: object, folder: Path) -> Any:
        if value == "none":
            return ()
        return value if value == "auto" else super().decode(value, folder)

    def check(self, value: object) -> bool:
        return value == "auto" or super().check(value)

    def encode(self, value: Any) -> object:
        return value if value == "auto" else list(value) or "none"
