"""Reading conformance cases: graphs with feeds and the answers TensorFlow gave.

The format is described in `data/README.md`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from aexec.framework import dtypes

DATA = Path(__file__).parent / "data"


@cache
def archive(family: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(DATA / f"{family}.zip")


def families() -> list[str]:
    return sorted(path.stem for path in DATA.glob("*.zip"))


def names(family: str) -> list[str]:
    """Names of all cases of a family."""
    suffix = "/case.json"
    return sorted(n.removesuffix(suffix) for n in archive(family).namelist() if n.endswith(suffix))


@dataclass
class Case:
    """One case: its description, its arrays, and its files."""

    family: str
    folder: str
    description: dict[str, Any] = field(default_factory=dict)
    feeds: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, family: str, folder: str) -> Case:
        case = cls(family, folder)
        case.description = json.loads(case.read("case.json"))
        case.feeds = case._arrays("feeds.npz")
        case.expected = case._arrays("expected.npz")
        return case

    def read(self, name: str) -> bytes:
        return archive(self.family).read(f"{self.folder}/{name}")

    def _arrays(self, name: str) -> dict[str, Any]:
        if f"{self.folder}/{name}" not in archive(self.family).NameToInfo:
            return {}
        with np.load(io.BytesIO(self.read(name)), allow_pickle=False) as stored:
            return dict(stored)

    def extract_files(self, folder: Path) -> None:
        """Write the files that feeds of this case name."""
        prefixes = (f"{self.folder}/files/", f"{self.folder}/saved_model/")
        for name in archive(self.family).namelist():
            if name.startswith(prefixes) and not name.endswith("/"):
                target = folder / name.removeprefix(f"{self.folder}/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive(self.family).read(name))

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.description.get("steps", [])


def decode(arrays: dict[str, Any], key: str, dtype_name: str) -> Any:
    """The array stored under a key, in the type it stands for."""
    dtype = dtypes.as_dtype(dtype_name)
    if dtype is dtypes.string:
        data, lengths = arrays[f"{key}.data"].tobytes(), arrays[f"{key}.len"]
        return _strings(data, lengths)
    stored = arrays[key]
    return stored if stored.dtype == dtype.np else stored.view(dtype.np)


def _strings(data: bytes, lengths: Any) -> Any:
    strings = np.empty(lengths.size, object)
    end = 0
    for index, length in enumerate(lengths.ravel()):
        strings[index] = data[end : end + int(length)]
        end += int(length)
    return strings.reshape(lengths.shape)


def mismatches(case: Case, entries: list[dict[str, Any]], values: list[Any]) -> Iterator[str]:
    """In which ways fetched values differ from what a step expects."""
    groups: dict[str, list[Any]] = {}
    for entry, value in zip(entries, values, strict=True):
        if entry["compare"] == "opaque":
            continue
        dtype = dtypes.as_dtype(entry["dtype"])
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype.np)
        problem = _mismatch(case, entry, array, dtype, groups)
        if problem:
            yield f"{entry['name']}: {problem}"


def _mismatch(case: Case, entry: dict[str, Any], got: Any, dtype: Any, groups: Any) -> str | None:
    if got.dtype != dtype.np:
        return f"dtype {got.dtype}, expected {dtype.np}"
    compare = entry["compare"]
    if compare == "multiset":
        # Compared over all steps of the case; see `runner.py`.
        return None
    if list(got.shape) != list(entry["shape"]):
        return f"shape {list(got.shape)}, expected {entry['shape']}"
    if compare == "shape":
        return None
    if compare == "range":
        good = bool(np.all((got >= entry["low"]) & (got <= entry["high"])))
        return None if good else f"values outside [{entry['low']}, {entry['high']}]"
    want = decode(case.expected, entry["key"], entry["dtype"])
    if compare == "close":
        wide = np.complex128 if dtype.is_complex else np.float64
        good = np.allclose(got.astype(wide), want.astype(wide), entry["rtol"], entry["atol"], equal_nan=True)
    elif got.dtype == object:
        good = bool(np.all(got == want))
    else:
        good = bool(np.all((got == want) | ((got != got) & (want != want))))
    return None if good else f"{compare}: got {_head(got)}, expected {_head(want)}"


def _head(array: Any) -> str:
    return np.array2string(array.ravel()[:8], threshold=8)
