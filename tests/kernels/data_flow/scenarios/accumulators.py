"""Accumulators of gradients.  See `scenario.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.dtypes import float32, float64, int32, int64
from aexec.framework.shape import PartialTensorShape
from tests.kernels.data_flow.scenarios.scenario import Scenario, Step, count, scenario, shape
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
_add = scenario(SCENARIOS)


def _accumulator(
    op: str, reduction: bytes = b"MEAN", shape: Any = (2,), other: Any = None
) -> Callable[[GraphBuilder], None]:
    prefix = "Resource" if op.startswith("Resource") else "Sparse" if op.startswith("Sparse") else ""

    def build(g: GraphBuilder) -> None:
        g("acc", op, dtype=float32, shape=PartialTensorShape(shape), reduction_type=reduction, shared_name=b"acc")
        for name, dtype in (("g", float32), ("s", int64), ("n", int32), ("r", int64), ("d", int64), ("w", float64)):
            g.placeholder(name, dtype)
        if prefix == "Sparse":
            g("apply", "SparseAccumulatorApplyGradient", "acc", "s", "r", "g", "d", dtype=float32, has_known_shape=True)
            g(
                "apply_any",
                "SparseAccumulatorApplyGradient",
                "acc",
                "s",
                "r",
                "g",
                "d",
                dtype=float32,
                has_known_shape=False,
            )
            g(
                "apply_wide",
                "SparseAccumulatorApplyGradient",
                "acc",
                "s",
                "r",
                "w",
                "d",
                dtype=float64,
                has_known_shape=True,
            )
            g("take", "SparseAccumulatorTakeGradient", "acc", "n", dtype=float32)
            g("take_wide", "SparseAccumulatorTakeGradient", "acc", "n", dtype=float64)
        else:
            g("apply", f"{prefix}AccumulatorApplyGradient", "acc", "s", "g", dtype=float32)
            g("apply_wide", f"{prefix}AccumulatorApplyGradient", "acc", "s", "w", dtype=float64)
            g("take", f"{prefix}AccumulatorTakeGradient", "acc", "n", dtype=float32)
            g("take_wide", f"{prefix}AccumulatorTakeGradient", "acc", "n", dtype=float64)
        plain = prefix if prefix == "Resource" else ""
        g("count", f"{plain}AccumulatorNumAccumulated", "acc")
        g("step", f"{plain}AccumulatorSetGlobalStep", "acc", "s")
        if other is not None:
            attrs = {
                "dtype": float32,
                "shape": PartialTensorShape(shape),
                "reduction_type": reduction,
                "shared_name": b"acc",
            }
            kind = other.get("op", op)
            g("acc2", kind, **{**attrs, **{k: v for k, v in other.items() if k != "op"}})
            g("count2", f"{plain}AccumulatorNumAccumulated", "acc2")

    return build


def _grad(values: Any, step: Any = 0) -> Step:
    return "apply", {"g": np.array(values, np.float32), "s": np.array(step, np.int64)}


for _op in ("ConditionalAccumulator", "ResourceConditionalAccumulator"):
    for _reduction in (b"MEAN", b"SUM"):
        _acc = _accumulator(_op, _reduction)
        _add(
            f"{_op} {_reduction.decode()}: counts, steps",
            _acc,
            _grad([1, 2]),
            _grad([3, 5]),
            "count:0",
            ("take:0", count(1)),
            "count:0",
            _grad([9, 9], 0),
            "count:0",
            _grad([9, 8], 1),
            "count:0",
            ("&a take:0", count(2)),
            _grad([1, 2], 7),
            "> a",
            "count:0",
        )
    _acc = _accumulator(_op)
    _add(
        f"{_op}: global step",
        _acc,
        ("step", {"s": np.int64(5)}),
        _grad([1, 1], 4),
        "count:0",
        _grad([1, 1], 5),
        "count:0",
        ("step", {"s": np.int64(2)}),
        _grad([3, 3], 2),
        ("take:0", count(2)),
        _grad([3, 3], 2),
        "count:0",
        _grad([3, 3], 3),
        "count:0",
    )
    _add(
        f"{_op}: wrong arguments",
        _acc,
        _grad([1, 2, 3]),
        _grad(1),
        _grad([[1, 2]]),
        ("take:0", count(0)),
        ("take:0", count(-1)),
        _grad([1, 2, 3], -1),
        "count:0",
        _grad([1, 1]),
        "count:0",
    )
    _add(f"{_op}: another type", _acc, ("apply_wide", {"w": np.ones(2), "s": np.int64(0)}))
    _add(
        f"{_op}: unknown shape",
        _accumulator(_op, shape=None),
        _grad([1, 2, 3]),
        _grad([1, 2]),
        _grad([[1, 2, 3]]),
        "count:0",
        ("take:0", count(1)),
        _grad([1, 2], 1),
        ("take:0", count(1)),
    )
    _add(
        f"{_op}: partly known shape",
        _accumulator(_op, shape=(None, 2)),
        _grad([[1, 2]]),
        _grad([[1, 2], [3, 4]]),
        _grad([[1]]),
        _grad([1, 2]),
        "count:0",
    )
    _add(
        f"{_op}: two wait",
        _acc,
        ("&a take:0", count(2)),
        ("&b take:0", count(1)),
        _grad([1, 1], 9),
        _grad([3, 3], 9),
        "> a",
        _grad([5, 5], 9),
        "> b",
    )
    for _name, _attrs in (
        ("type", {"dtype": float64}),
        ("shape", {"shape": shape(3)}),
        ("reduction", {"reduction_type": b"SUM"}),
    ):
        _add(f"shared {_op}: {_name}", _accumulator(_op, other=_attrs), "count:0", "count2:0")
_add(
    "shared accumulator: kind",
    _accumulator("ConditionalAccumulator", other={"op": "SparseConditionalAccumulator"}),
    "count:0",
    "count2:0",
)


def _rows(rows: Any, values: Any, step: int = 0, shape: Any = (), name: str = "apply") -> Step:
    arrays = {"r": np.array(rows, np.int64), "g": np.array(values, np.float32), "d": np.array(shape, np.int64)}
    return name, {**arrays, "s": np.int64(step)}


_TAKEN = "take:0 take:1 take:2"
for _reduction in (b"MEAN", b"SUM"):
    _acc = _accumulator("SparseConditionalAccumulator", _reduction, (4, 2))
    _add(
        f"sparse {_reduction.decode()}: rows",
        _acc,
        _rows([0, 2], [[1, 2], [3, 4]], 0, (4, 2)),
        _rows([2, 3], [[5, 5], [7, 7]], 0, (4, 2)),
        "count:0",
        (_TAKEN, count(2)),
        "count:0",
        _rows([1], [[1, 1]], 0, (4, 2)),
        "count:0",
        _rows([1], [[1, 1]], 1, (4, 2)),
        (_TAKEN, count(1)),
    )
    _add(
        f"sparse {_reduction.decode()}: row given twice, alone",
        _acc,
        _rows([1, 1], [[1, 2], [3, 4]], 0, (4, 2)),
        (_TAKEN, count(1)),
    )
    _add(
        f"sparse {_reduction.decode()}: rows not in order, alone",
        _acc,
        _rows([3, 1], [[1, 2], [3, 4]], 0, (4, 2)),
        (_TAKEN, count(1)),
    )
    _add(
        f"sparse {_reduction.decode()}: no rows",
        _acc,
        _rows([], np.zeros((0, 2)), 0, (4, 2)),
        _rows([1], [[1, 2]], 0, (4, 2)),
        _rows([], np.zeros((0, 2)), 0, (4, 2)),
        "count:0",
        (_TAKEN, count(3)),
        _rows([], np.zeros((0, 2)), 1, (4, 2)),
        (_TAKEN, count(1)),
    )
_acc = _accumulator("SparseConditionalAccumulator", b"MEAN", (4, 2))
_add(
    "sparse: wrong arguments",
    _acc,
    _rows([0, 1], [[1, 2]], 0, (4, 2)),
    _rows([[0]], [[1, 2]], 0, (4, 2)),
    _rows([0], 1, 0, (4, 2)),
    _rows([4], [[1, 2]], 0, (4, 2)),
    _rows([-1], [[1, 2]], 0, (4, 2)),
    _rows([0], [[1, 2, 3]], 0, (4, 2)),
    _rows([0], [[1, 2]], 0, (4, 3)),
    _rows([0], [[1, 2]], 0, (4,)),
    _rows([0], [1], 0, (4, 2)),
    _rows([0], [[1, 2]], 0, (5, 2)),
    "count:0",
    (_TAKEN, count(0)),
    (_TAKEN, count(-1)),
    _rows([0], [[1, 2, 3]], -1, (4, 2)),
    _rows([0], [[[1], [2]]], 0, (4, 2, 1)),
    "count:0",
)
_add(
    "sparse: a second that does not fit",
    _accumulator("SparseConditionalAccumulator", b"MEAN", None),
    _rows([0], [[1, 2]], 0, (4, 2)),
    _rows([0], [[1, 2, 3]], 0, (4, 3)),
    _rows([0], [1], 0, (4,)),
    "count:0",
    (_TAKEN, count(1)),
)
_add(
    "sparse: unknown shape",
    _accumulator("SparseConditionalAccumulator", b"MEAN", None),
    _rows([0], [[1, 2]], 0, (), "apply_any"),
    (_TAKEN, count(1)),
    _rows([5], [1], 1, (9,)),
    (_TAKEN, count(1)),
)
_add(
    "sparse: partly known shape",
    _accumulator("SparseConditionalAccumulator", b"MEAN", (None, 2)),
    _rows([0], [[1, 2]], 0, (), "apply_any"),
    (_TAKEN, count(1)),
    _rows([5], [[1, 3]], 1, (9, 2)),
    (_TAKEN, count(1)),
)
_add(
    "sparse: shape not given",
    _acc,
    _rows([0], [[1, 2]], 0, (), "apply_any"),
    (_TAKEN, count(1)),
    _rows([7], [[1, 2]], 1, (), "apply_any"),
    _rows([0], [[1, 2, 3]], 1, (), "apply_any"),
    "count:0",
)
