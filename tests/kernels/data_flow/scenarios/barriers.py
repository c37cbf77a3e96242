"""Barriers.  See `scenario.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.dtypes import float32, int32, string
from aexec.framework.shape import PartialTensorShape
from tests.kernels.data_flow.scenarios.scenario import SCALAR, Scenario, Step, count, scenario, shape, text
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
_add = scenario(SCENARIOS)


def _barrier(*shapes: PartialTensorShape, **attrs: Any) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        declared = list(shapes) or [SCALAR, SCALAR]
        g("b", "Barrier", **{"component_types": [float32, float32], "shapes": declared, "shared_name": b"bar", **attrs})
        g.placeholder("k", string)
        g.placeholder("v", float32)
        g.placeholder("n", int32)
        for component in (-1, 0, 1, 2):
            g(f"put{component}", "BarrierInsertMany", "b", "k", "v", T=float32, component_index=component)
        g("take", "BarrierTakeMany", "b", "n", component_types=[float32, float32])
        g("small", "BarrierTakeMany", "b", "n", component_types=[float32, float32], allow_small_batch=True)
        g("wait", "BarrierTakeMany", "b", "n", component_types=[float32, float32], wait_for_incomplete=True)
        g("timed", "BarrierTakeMany", "b", "n", component_types=[float32, float32], timeout_ms=5)
        g("close", "BarrierClose", "b")
        g("cancel", "BarrierClose", "b", cancel_pending_enqueues=True)
        g("ready", "BarrierReadySize", "b")
        g("incomplete", "BarrierIncompleteSize", "b")

    return build


def _insert(component: int, **values: Any) -> Step:
    keys = text(*(key.encode() for key in values))
    return f"put{component}", {"k": keys, "v": np.array([*values.values()], np.float32)}


_TAKE, _SMALL, _SIZES = "take:0 take:1 take:2 take:3", "small:0 small:1 small:2 small:3", "ready:0 incomplete:0"
_B = _barrier()
_add(
    "barrier: small batches of a closed one",
    _B,
    _insert(0, p=1, q=2, r=3),
    _insert(1, p=7),
    "close",
    (_SMALL, count(2)),
    (_SMALL, count(2)),
    _SIZES,
    _insert(1, q=8),
    (_SMALL, count(1)),
    (_SMALL, count(1)),
    (_TAKE, count(2)),
    ("&a " + _TAKE, count(1)),
    _insert(1, r=9),
    "> a",
    (_TAKE, count(1)),
)
_add(
    "barrier: small batch of an open one waits",
    _B,
    _insert(0, p=1),
    _insert(1, p=7),
    ("&a " + _SMALL, count(2)),
    _SIZES,
    _insert(0, q=1),
    _insert(1, q=7),
    "> a",
)
_add(
    "barrier: batches wait",
    _B,
    _insert(0, a=1, b=2, c=3),
    ("&a " + _TAKE, count(2)),
    _insert(1, c=3),
    _SIZES,
    _insert(1, a=1),
    "> a",
    _insert(1, b=5),
    (_TAKE, count(1)),
    _SIZES,
)
_add(
    "barrier: earlier ones first",
    _B,
    _insert(0, a=1),
    _insert(0, b=1, c=1),
    _insert(1, c=5),
    _insert(1, b=5),
    _insert(1, a=5),
    ("take:0 take:1", count(1)),
    _SIZES,
)
_add(
    "barrier: waits when closed",
    _B,
    _insert(0, a=1, b=2),
    _insert(1, a=3),
    "close",
    ("&a " + _TAKE, count(2)),
    _SIZES,
    _insert(1, b=4),
    "> a",
    _SIZES,
    (_TAKE, count(1)),
    ("small:1", count(1)),
)
_add(
    "barrier: closing with too few",
    _B,
    _insert(0, a=1),
    _insert(1, a=1),
    ("&a take:1", count(2)),
    "close",
    "> a",
    _SIZES,
    (_TAKE, count(1)),
)
_add(
    "barrier: closing, none",
    _B,
    ("&a take:1", count(2)),
    ("&b small:1", count(2)),
    "close",
    "> a",
    "> b",
    ("take:1", count(0)),
    ("small:1", count(0)),
)
_add("barrier: none of an open one", _B, (_TAKE, count(0)), (_SMALL, count(0)))
_add(
    "barrier: none of a closed one that has some",
    _B,
    _insert(0, a=1),
    _insert(1, a=1),
    "close",
    (_TAKE, count(0)),
    (_SMALL, count(0)),
    (_SMALL, count(4)),
)
_add("barrier: closing twice", _B, _insert(0, a=1), "close", "close", "cancel", "cancel", _SIZES, _insert(1, a=1))
_add(
    "barrier: cancelling",
    _B,
    _insert(0, a=1, b=1),
    _insert(1, a=2),
    "cancel",
    _SIZES,
    "close",
    (_TAKE, count(2)),
    (_SMALL, count(2)),
)
_add("barrier: cancelling ends what waits", _B, _insert(0, a=1), ("&a take:1", count(1)), "cancel", "> a")
_add(
    "barrier: new keys of a closed one",
    _B,
    _insert(0, a=1),
    "close",
    _insert(0, z=1),
    _insert(1, a=1, z=2),
    _SIZES,
    _insert(0),
    _insert(1, a=3),
    _insert(0),
    _insert(1, a=3),
)
_add(
    "barrier: twice",
    _B,
    _insert(0, a=1),
    _insert(0, a=2),
    _SIZES,
    _insert(1, a=3),
    _insert(0, a=5),
    _SIZES,
    _insert(1, a=6),
    (_TAKE, count(2)),
)
_add("barrier: nothing inserted", _B, _insert(0), _SIZES)
_add(
    "barrier: wrong arguments",
    _B,
    _insert(2, a=1),
    ("put0", {"k": text(b"a"), "v": np.ones(2, np.float32)}),
    ("put0", {"k": text(b"a"), "v": np.ones((1, 1), np.float32)}),
    ("put0", {"k": np.array(b"a", object), "v": np.float32(1)}),
    ("put0", {"k": np.array([[b"a"]], object), "v": np.ones(1, np.float32)}),
    (_TAKE, count(-1)),
    (_SMALL, count(-1)),
    (_TAKE, count([1])),
    ("timed:1", count(1)),
)
_add(
    "barrier: nothing in elements",
    _barrier(shape(0), SCALAR),
    ("put0", {"k": text(b"a"), "v": np.ones((1, 0), np.float32)}),
    _SIZES,
    ("put1", {"k": text(b"a"), "v": np.ones(1, np.float32)}),
    _SIZES,
    ("put0", {"k": text(), "v": np.ones((0, 0), np.float32)}),
)
_add(
    "barrier: vectors",
    _barrier(shape(2), SCALAR),
    ("put0", {"k": text(b"a", b"b"), "v": np.ones((2, 2), np.float32)}),
    _insert(1, b=4),
    (_TAKE, count(1)),
    (_TAKE, count(0)),
)
_add(
    "barrier: waits for incomplete ones",
    _B,
    _insert(0, a=1, b=1),
    _insert(1, a=2),
    "close",
    ("&a wait:1", count(2)),
    _insert(1, b=1),
    "> a",
)
for _name, _attrs in (
    ("room", {"capacity": 3}),
    ("no shapes", {"shapes": []}),
    ("one shape", {"shapes": [SCALAR]}),
    ("open shapes", {"shapes": [shape(None), SCALAR]}),
    ("unknown rank", {"shapes": [PartialTensorShape(None), SCALAR]}),
):
    _add(f"barrier that cannot be: {_name}", _barrier(**_attrs), "ready:0")


def _two_barriers(**attrs: Any) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        for number, extra in enumerate(({}, attrs)):
            made = {"component_types": [float32], "shapes": [SCALAR], "shared_name": b"bar", **extra}
            g(f"b{number}", "Barrier", **made)
            g(f"ready{number}", "BarrierReadySize", f"b{number}")

    return build


_add("shared barrier: types", _two_barriers(component_types=[int32]), "ready0:0", "ready1:0")
_add("shared barrier: shapes", _two_barriers(shapes=[shape(2)]), "ready0:0", "ready1:0")
_add(
    "shared barrier: width",
    _two_barriers(component_types=[float32, float32], shapes=[SCALAR, SCALAR]),
    "ready0:0",
    "ready1:0",
)
