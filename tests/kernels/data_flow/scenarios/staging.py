"""Staging areas, and maps of them.  See `scenario.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.dtypes import float32, int32, int64, string
from tests.kernels.data_flow.scenarios.scenario import Scenario, Step, scenario
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
_add = scenario(SCENARIOS)


def _staging(**limits: int) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        attrs = {"dtypes": [float32, int32], "shared_name": b"area", **limits}
        for name, dtype in (("a", float32), ("b", int32), ("i", int32)):
            g.placeholder(name, dtype)
        g("put", "Stage", "a", "b", **attrs)
        g("get", "Unstage", **attrs)
        g("peek", "StagePeek", "i", **attrs)
        g("size", "StageSize", **attrs)
        g("clear", "StageClear", **attrs)
        g("get_one", "Unstage", **{**attrs, "dtypes": [float32]})
        g("get_three", "Unstage", **{**attrs, "dtypes": [float32, int32, int32]})
        g("get_other", "Unstage", **{**attrs, "dtypes": [float32, float32]})
        g("put_one", "Stage", "a", **{**attrs, "dtypes": [float32]})
        g("peek_one", "StagePeek", "i", **{**attrs, "dtypes": [float32]})

    return build


def _pair(value: float) -> dict[str, Any]:
    return {"a": np.float32(value), "b": np.int32(value)}


_add(
    "stage: first in, first out",
    _staging(),
    ("put", _pair(1)),
    ("put", _pair(2)),
    "size:0",
    ("peek:0 peek:1", {"i": np.int32(1)}),
    "get:0 get:1",
    "get:0 get:1",
    "size:0",
    "&a get:0",
    ("put", _pair(3)),
    "> a",
    ("&b peek:0", {"i": np.int32(1)}),
    ("put", _pair(4)),
    ("put", _pair(5)),
    "> b",
    "clear",
    "size:0",
)
_add(
    "stage: room for two",
    _staging(capacity=2),
    ("put", _pair(1)),
    ("put", _pair(2)),
    ("&a put", _pair(3)),
    "size:0",
    "get:0",
    "> a",
    "size:0",
    ("&b put", _pair(4)),
    "clear",
    "> b",
    "size:0",
)
_add(
    "stage: room in bytes",
    _staging(memory_limit=16),
    ("put", _pair(1)),
    ("put", _pair(2)),
    ("&a put", _pair(3)),
    "size:0",
    "get:0",
    "> a",
    ("put", {"a": np.ones(4, np.float32), "b": np.int32(1)}),
)
_add(
    "stage: other widths",
    _staging(),
    ("put_one", {"a": np.float32(1)}),
    "get:0",
    "size:0",
    ("put", _pair(1)),
    "get_one:0",
    "size:0",
    ("put", _pair(1)),
    "get_three:0",
    ("put", _pair(1)),
    ("peek_one:0", {"i": np.int32(0)}),
    "size:0",
)
_add("stage: other types", _staging(), ("put", _pair(1)), "get_other:0", "size:0")
_add("stage: index of two", _staging(), ("put", _pair(1)), ("peek:0", {"i": np.array([0], np.int32)}))
_add("stage: index below none", _staging(), ("put", _pair(1)), ("&a peek:0", {"i": np.int32(-1)}), "> a")


def _map(prefix: str, **limits: int) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        attrs = {"dtypes": [float32, int32, string], "shared_name": b"map", **limits}
        for name, dtype in (("k", int64), ("i", int32), ("a", float32), ("b", int32), ("c", string)):
            g.placeholder(name, dtype)
        g("put", f"{prefix}Stage", "k", "i", "a", "b", "c", **attrs, fake_dtypes=[float32, int32, string])
        for name in "abc":
            kind = {"a": float32, "b": int32, "c": string}[name]
            g(f"put_{name}", f"{prefix}Stage", "k", "i", name, **attrs, fake_dtypes=[kind])
        g("put_ac", f"{prefix}Stage", "k", "i", "a", "c", **attrs, fake_dtypes=[float32, string])
        for name, kinds in (
            ("", [float32, int32, string]),
            ("_a", [float32]),
            ("_b", [int32]),
            ("_c", [string]),
            ("_ac", [float32, string]),
            ("_ba", [int32, float32]),
            ("_aa", [float32, float32]),
        ):
            for verb, op in (("get", "Unstage"), ("peek", "Peek"), ("any", "UnstageNoKey")):
                inputs = ["i"] if verb == "any" else ["k", "i"]
                g(f"{verb}{name}", f"{prefix}{op}", *inputs, **{**attrs, "dtypes": kinds})
        g("size", f"{prefix}Size", **attrs)
        g("incomplete", f"{prefix}IncompleteSize", **attrs)
        g("clear", f"{prefix}Clear", **attrs)

    return build


def _keyed(names: str, key: int, *indices: int, **values: Any) -> Step:
    feeds: dict[str, Any] = {"k": np.int64(key), "i": np.array(indices, np.int32)}
    for name, value in values.items():
        feeds[name] = {"a": np.float32, "b": np.int32, "c": bytes}[name](value)
    return names, feeds


def _whole(key: int, value: int | None = None) -> Step:
    value = key if value is None else value
    return _keyed("put", key, 0, 1, 2, a=value, b=value, c=b"%d" % value)


def _any(names: str, *indices: int) -> Step:
    return names, {"i": np.array(indices, np.int32)}


_ALL, _COUNTS = "get:0 get:1 get:2", "size:0 incomplete:0"
for _p in ("Map", "OrderedMap"):
    _m = _map(_p)
    _add(
        f"{_p}: parts read by index",
        _m,
        _whole(4),
        _keyed("peek_b:0", 4, 1),
        _keyed("peek_ba:0 peek_ba:1", 4, 1, 0),
        _keyed("get_c:0", 4, 2),
        _COUNTS,
        _keyed("peek_c:0", 4, 2),
        _keyed("get_c:0", 4, 2),
        _keyed("peek_b:0", 4, 1),
        _keyed("get_b:0", 4, 1),
        _COUNTS,
        _keyed("get_a:0", 4, 0),
        _COUNTS,
        _keyed("&a get_a:0", 4, 0),
        _whole(4, 8),
        "> a",
    )
    _add(
        f"{_p}: parts put one by one",
        _m,
        _keyed("put_b", 2, 1, b=5),
        _COUNTS,
        _keyed("&a peek_b:0", 2, 1),
        _keyed("put_ac", 2, 0, 2, a=1, c=b"x"),
        _COUNTS,
        "> a",
        _keyed(_ALL, 2, 0, 1, 2),
        _COUNTS,
    )
    _add(
        f"{_p}: parts put twice",
        _m,
        _keyed("put_b", 2, 1, b=5),
        _keyed("put_b", 2, 1, b=6),
        _whole(2),
        _COUNTS,
        _keyed("put_ac", 2, 0, 2, a=1, c=b"x"),
        _keyed("get_b:0", 2, 1),
        _COUNTS,
    )
    _add(
        f"{_p}: keys twice",
        _m,
        _whole(2),
        _whole(2, 3),
        _keyed("put_b", 2, 1, b=5),
        _COUNTS,
        _keyed("get_b:0", 2, 1),
        _keyed("put_b", 2, 1, b=9),
        _COUNTS,
    )
    _add(
        f"{_p}: any",
        _m,
        _whole(7),
        _any("any:0 any:1 any:2 any:3", 0, 1, 2),
        _COUNTS,
        _whole(5),
        _any("any_ba:0 any_ba:1 any_ba:2", 1, 0),
        _COUNTS,
        _any("any_b:0", 1),
        _any("any_c:0 any_c:1", 2),
        _COUNTS,
    )
    _add(
        f"{_p}: wrong indices",
        _m,
        _whole(1),
        _keyed("peek_b:0", 1, 3),
        _keyed("peek_b:0", 1),
        _keyed("peek_aa:0 peek_aa:1", 1, 0, 0),
        _keyed("get_b:0", 1, 3),
        _keyed("get_b:0", 1),
        _keyed("get_aa:0", 1, 0, 0),
        _COUNTS,
        _keyed("get_b:0", 1, 0),
        _COUNTS,
    )
    _add(f"{_p}: more indices than outputs", _m, _whole(1), _keyed("peek_b:0", 1, 0, 1))
    _add(f"{_p}: a matrix of indices", _m, _whole(1), ("peek_b:0", {"k": np.int64(1), "i": np.array([[1]], np.int32)}))
    _add(f"{_p}: a vector of keys", _m, _whole(1), ("peek_b:0", {"k": np.array([1]), "i": np.array([1], np.int32)}))
    _add(
        f"{_p}: any with wrong indices",
        _m,
        _whole(1),
        _any("any_b:0"),
        _COUNTS,
        _any("any_aa:0", 0, 0),
        _COUNTS,
        _any("any_b:0", 0),
        _COUNTS,
    )
    _add(f"{_p}: any beyond its indices", _m, _whole(1), _any("any_b:0", 3))
    _add(
        f"{_p}: putting with wrong indices",
        _m,
        _keyed("put_b", 1, 3, b=1),
        _keyed("put_b", 1, b=1),
        _keyed("put_ac", 1, 0, 0, a=1, c=b"x"),
        _keyed("put_ac", 1, 2, 0, a=1, c=b"x"),
        _COUNTS,
    )
    _add(f"{_p}: putting fewer than indices", _m, _keyed("put_b", 1, 0, 1, b=1))
    _add(
        f"{_p}: putting with a vector of keys",
        _m,
        ("put_b", {"k": np.array([1]), "i": np.array([1], np.int32), "b": np.int32(1)}),
        _COUNTS,
    )
    _add(
        f"{_p}: putting with a scalar of indices",
        _m,
        ("put_b", {"k": np.int64(1), "i": np.int32(1), "b": np.int32(1)}),
        _COUNTS,
    )
    _add(f"{_p}: putting other types", _m, _keyed("put_b", 1, 0, b=1), _COUNTS)
    _add(f"{_p}: clear", _m, _whole(1), _keyed("put_b", 2, 1, b=5), _COUNTS, "clear", _COUNTS, _whole(1), _COUNTS)
    _add(
        f"{_p}: room",
        _map(_p, capacity=2),
        _whole(1),
        _whole(2),
        _keyed("&a put", 3, 0, 1, 2, a=3, b=3, c=b"3"),
        _COUNTS,
        _keyed("get_a:0", 1, 0),
        _COUNTS,
        _keyed("get_b:0", 2, 1),
        _keyed("get_ac:0", 2, 0, 2),
        "> a",
        _COUNTS,
    )
    _add(
        f"{_p}: room and parts",
        _map(_p, capacity=1),
        _keyed("put_b", 1, 1, b=1),
        _keyed("put_b", 2, 1, b=1),
        _COUNTS,
        _keyed("put_ac", 1, 0, 2, a=1, c=b"x"),
        _COUNTS,
        _keyed("&a put_ac", 2, 0, 2, a=1, c=b"x"),
        _COUNTS,
        _keyed(_ALL, 1, 0, 1, 2),
        "> a",
        _COUNTS,
    )
    _add(
        f"{_p}: room in bytes",
        _map(_p, memory_limit=8),
        _keyed("put_b", 1, 1, b=1),
        _keyed("put_b", 2, 1, b=1),
        _keyed("&a put_b", 3, 1, b=1),
        _COUNTS,
        "clear",
        "> a",
        _COUNTS,
    )
    _add(
        f"{_p}: larger than its room in bytes",
        _map(_p, memory_limit=8),
        ("put_a", {"k": np.int64(1), "i": np.array([0], np.int32), "a": np.ones(4, np.float32)}),
    )
_add(
    "OrderedMap: smallest first",
    _map("OrderedMap"),
    _whole(3),
    _whole(-4),
    _whole(9),
    _any("any:0 any:1", 0, 1, 2),
    _any("any:0 any:1", 0, 1, 2),
    _any("any:0 any:1", 0, 1, 2),
    _COUNTS,
)
_add(
    "OrderedMap: a part keeps its turn",
    _map("OrderedMap"),
    _whole(3),
    _whole(5),
    _any("any_b:0 any_b:1", 1),
    _any("any_c:0 any_c:1", 2),
    _COUNTS,
)
