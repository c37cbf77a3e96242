"""Lookup tables.  See `scenario.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.dtypes import float32, int64, string
from tests.kernels.data_flow.scenarios.scenario import SCALAR, Scenario, Step, scenario, shape, text
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
_add = scenario(SCENARIOS)


def _table(op: str, key: Any = int64, value: Any = float32, **attrs: Any) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        for name, dtype in (("k", key), ("v", value), ("d", value), ("e", key), ("f", key)):
            g.placeholder(name, dtype)
        if "Dense" in op:
            g.const("empty", -1, key)
            g.const("deleted", -2, key)
        reserved = ["empty", "deleted"] if "Dense" in op else []
        g("t", op, *reserved, key_dtype=key, value_dtype=value, shared_name=b"table", **attrs)
        g("init", "InitializeTableV2", "t", "k", "v", Tkey=key, Tval=value)
        g("find", "LookupTableFindV2", "t", "k", "d", Tin=key, Tout=value)
        g("insert", "LookupTableInsertV2", "t", "k", "v", Tin=key, Tout=value)
        g("remove", "LookupTableRemoveV2", "t", "k", Tin=key)
        g("load", "LookupTableImportV2", "t", "k", "v", Tin=key, Tout=value)
        g("size", "LookupTableSizeV2", "t")
        g("export", "LookupTableExportV2", "t", Tkeys=key, Tvalues=value)
        if op == "HashTableV2":  # of the others, shape inference finds it out
            g("find_wrong", "LookupTableFindV2", "t", "k", "k", Tin=key, Tout=key)
            g("insert_wrong", "LookupTableInsertV2", "t", "k", "k", Tin=key, Tout=key)

    return build


def _entries(name: str, keys: Any, values: Any) -> Step:
    return name, {"k": np.array(keys, np.int64), "v": np.array(values, np.float32)}


def _find(keys: Any, default: Any = 0) -> Step:
    return "find:0", {"k": np.array(keys, np.int64), "d": np.array(default, np.float32)}


_KINDS: dict[str, dict[str, Any]] = {
    "HashTableV2": {},
    "MutableHashTableV2": {},
    "MutableHashTableOfTensorsV2": {"value_shape": shape(2)},
    "MutableDenseHashTableV2": {"value_shape": SCALAR, "initial_num_buckets": 8},
}
for _op, _attrs in _KINDS.items():
    _t = _table(_op, **_attrs)
    _wide = "Tensors" in _op
    _one, _two = ([[1, 2]], [[1, 2], [3, 4]]) if _wide else ([1], [1, 2])
    _default: Any = [0, 9] if _wide else 9
    _first = "init" if _op == "HashTableV2" else "insert"
    _add(
        f"{_op}: find, insert, remove",
        _t,
        _find([1], _default),
        "size:0",
        _entries(_first, [1, 2], _two),
        "size:0",
        _find([2, 1, 7], _default),
        _find([[2], [7]], _default),
        _find(2, _default),
        _find([], _default),
        ("remove", {"k": np.array([1, 8])}),
        "size:0",
        _find([1, 2], _default),
        _entries("insert", [2], _one),
        _find([2], _default),
    )
    _add(
        f"{_op}: defaults",
        _t,
        _entries(_first, [1, 2], _two),
        _find([1, 7], [[5, 6], [7, 8]] if _wide else [5, 6]),
        _find([1, 7], [5, 6, 7]),
        _find([1, 7], [[1, 2]] if _wide else [1]),
        _find([1, 7], 3),
        _find([], [] if not _wide else np.zeros((0, 2))),
        _find(7, [[5, 6]] if _wide else [5]),
    )
    _add(
        f"{_op}: initialising",
        _t,
        _entries("init", [], np.zeros((0, 2)) if _wide else []),
        _entries("init", [1], _one),
        _entries("init", [1], _one),
        _entries("init", [1, 2], _two),
        "size:0",
        _entries("init", [], np.zeros((0, 2)) if _wide else []),
    )
    _add(
        f"{_op}: initialising with what does not fit",
        _t,
        _entries("init", [[1]], [_one]),
        _entries("init", [1, 2], _one),
        _entries("init", 1, 1),
        _entries("init", [1, 1], _two),
        "size:0",
        _entries("init", [2, 2], [_one[0]] * 2),
        "size:0",
    )
    _add(
        f"{_op}: inserting what does not fit",
        _t,
        _entries("insert", [1, 2], _one),
        _entries("insert", [1], 1),
        _entries("insert", [], np.zeros((0, 2)) if _wide else []),
        _entries("insert", [[1, 2]], [_two]),
        _entries("insert", 5, _one[0]),
        "size:0",
        _entries("insert", [4, 4], _two),
        _find([4], _default),
    )
    _add(
        f"{_op}: importing, exporting",
        _t,
        "export:0 export:1",
        _entries("load", [1], _one),
        "export:0 export:1",
        _entries("load", [2], _one),
        "size:0",
        _find([1, 2], _default),
        _entries("load", [], np.zeros((0, 2)) if _wide else []),
        "size:0",
        "export:0 export:1",
        _entries("load", [1, 2], _one),
    )
    _add(
        f"{_op}: removing",
        _t,
        _entries(_first, [1, 2], _two),
        ("remove", {"k": np.array([[1], [1]])}),
        "size:0",
        ("remove", {"k": np.array(2)}),
        "size:0",
        ("remove", {"k": np.array([], np.int64)}),
        "size:0",
    )
_DENSE = _table("MutableDenseHashTableV2", **_KINDS["MutableDenseHashTableV2"])
_add(
    "dense: reserved keys",
    _DENSE,
    _entries("insert", [-1], [1]),
    _entries("insert", [-2], [1]),
    _find([-1]),
    _find([-2]),
    ("remove", {"k": np.array([-1])}),
    ("remove", {"k": np.array([-2])}),
    _entries("load", [-1, 5, -2], [1, 2, 3]),
    "size:0",
    _find([5]),
)
_add(
    "dense: more than its buckets",
    _DENSE,
    _entries("insert", list(range(40)), list(range(40))),
    "size:0",
    _find([39, 3, 41], -1),
)
for _name, _attrs in (
    ("buckets", {"initial_num_buckets": 6}),
    ("few buckets", {"initial_num_buckets": 2}),
    ("load", {"max_load_factor": 1.5}),
    ("no load", {"max_load_factor": 0.0}),
    ("matrices", {"value_shape": shape(2, 2)}),
):
    _add(f"dense that cannot be: {_name}", _table("MutableDenseHashTableV2", **_attrs), "size:0")
for _shape_name, _value_shape in (("scalars", SCALAR), ("matrices", shape(2, 2)), ("open", shape(None))):
    _add(
        f"table of tensors that cannot be: {_shape_name}",
        _table("MutableHashTableOfTensorsV2", value_shape=_value_shape),
        "size:0",
    )
_add(
    "HashTableV2: strings",
    _table("HashTableV2", string, string),
    ("init", {"k": text(b"a", b""), "v": text(b"x", b"y")}),
    ("find:0", {"k": text(b"", b"q"), "d": b"none"}),
    "size:0",
    ("init", {"k": text(b"a", b"a"), "v": text(b"x", b"y")}),
)
_add(
    "HashTableV2: strings that contradict",
    _table("HashTableV2", string, string),
    ("init", {"k": text(b"a", b"a"), "v": text(b"x", b"y")}),
)
_add(
    "HashTableV2: other types",
    _table("HashTableV2"),
    ("insert_wrong", {"k": np.array([1])}),
    ("find_wrong:0", {"k": np.array([1])}),
)


def _two_tables(first: str, second: str, **attrs: Any) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        for number, op in enumerate((first, second)):
            extra = attrs if number else {}
            g(f"t{number}", op, **{"key_dtype": int64, "value_dtype": float32, "shared_name": b"table", **extra})
            g(f"size{number}", "LookupTableSizeV2", f"t{number}")

    return build


_add("shared table: value type", _two_tables("HashTableV2", "HashTableV2", value_dtype=int64), "size0:0", "size1:0")
_add(
    "shared table: key type",
    _two_tables("MutableHashTableV2", "MutableHashTableV2", key_dtype=string),
    "size0:0",
    "size1:0",
)
_add("shared table: kind", _two_tables("HashTableV2", "MutableHashTableV2"), "size0:0", "size1:0")
_add("shared table: tensors", _two_tables("MutableHashTableV2", "MutableHashTableOfTensorsV2"), "size0:0", "size1:0")
