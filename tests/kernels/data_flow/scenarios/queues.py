"""Queues of all kinds.  See `scenario.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.dtypes import float64, int32, int64, string
from aexec.framework.shape import PartialTensorShape
from tests.kernels.data_flow.scenarios.scenario import SCALAR, Scenario, Step, count, scenario, shape, text
from tests.support.programs.graphs import GraphBuilder

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
_add = scenario(SCENARIOS)


def _queue(op: str, types: Any = (int64,), shapes: Any = (SCALAR,), **attrs: Any) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        kinds = list(types)
        g("q", op, component_types=kinds, shapes=list(shapes), **attrs)
        taken = [int64, *kinds] if op.startswith("Priority") else kinds
        names = [f"x{i}" for i in range(len(taken))]
        for name, dtype in zip(names, taken, strict=True):
            g.placeholder(name, dtype)
        g.placeholder("n", int32)
        g("put", "QueueEnqueueV2", "q", *names, Tcomponents=taken)
        g("put_many", "QueueEnqueueManyV2", "q", *names, Tcomponents=taken)
        g("get", "QueueDequeueV2", "q", component_types=taken)
        g("get_many", "QueueDequeueManyV2", "q", "n", component_types=taken)
        g("get_up_to", "QueueDequeueUpToV2", "q", "n", component_types=taken)
        g("get_timed", "QueueDequeueV2", "q", component_types=taken, timeout_ms=3)
        g("size", "QueueSizeV2", "q")
        g("is_closed", "QueueIsClosedV2", "q")
        g("close", "QueueCloseV2", "q")
        g("cancel", "QueueCloseV2", "q", cancel_pending_enqueues=True)
        g("get_wrong", "QueueDequeueV2", "q", component_types=[float64])
        g("put_wrong", "QueueEnqueueV2", "q", names[-1], names[-1], names[-1], Tcomponents=[taken[-1]] * 3)

    return build


def _many(*values: int) -> Step:
    return "put_many", {"x0": np.array(values, np.int64)}


def _ranked(*keys: int) -> Step:
    return "put_many", {"x0": np.array(keys, np.int64), "x1": text(*(b"v%d" % key for key in keys))}


_FIFO = _queue("FIFOQueueV2", capacity=5)
_SHUFFLE = _queue("RandomShuffleQueueV2", capacity=20, min_after_dequeue=3, seed=7, seed2=1)
_PADDING = _queue("PaddingFIFOQueueV2", [int32, string], [shape(None, 2), shape(None)], capacity=9)
_PRIORITY = _queue("PriorityQueueV2", [string], capacity=6)
_ONE = "put", {"x0": np.int64(1)}

for _kind, _build in (("fifo", _FIFO), ("shuffle", _SHUFFLE)):
    _add(
        f"{_kind}: batch waits and size",
        _build,
        _many(1, 2),
        ("&a get_many:0", count(5)),
        "size:0",
        _many(3, 4),
        "size:0",
        _many(5, 6, 7, 8),
        "> a",
        "size:0",
    )
    _add(
        f"{_kind}: closed while a batch waits",
        _build,
        _many(1, 2),
        ("&a get_many:0", count(6)),
        "close",
        "> a",
        "size:0",
        ("get_up_to:0", count(6)),
        "get:0",
        ("get_up_to:0", count(1)),
        "is_closed:0",
    )
    _add(f"{_kind}: small batch", _build, _many(1, 2), ("&a get_up_to:0", count(6)), "close", "> a", "size:0")
    _add(
        f"{_kind}: closing twice, putting then",
        _build,
        "close",
        "close",
        _ONE,
        "cancel",
        _many(1),
        _many(),
        ("get_many:0", count(0)),
    )
    _add(f"{_kind}: closing ends what waits", _build, "&a get:0", ("&b get_many:0", count(2)), "close", "> a", "> b")
    _add(
        f"{_kind}: wrong arguments",
        _build,
        ("get_many:0", count(-1)),
        ("get_up_to:0", count(-2)),
        "get_timed:0",
        "get_wrong:0",
        ("get_many:0", count([1, 2])),
        ("put", {"x0": np.array([1])}),
        ("put_many", {"x0": np.array([[1]])}),
        ("put_many", {"x0": np.int64(1)}),
        ("put_wrong", {"x0": np.int64(1)}),
    )
_add(
    "fifo: full",
    _FIFO,
    _many(1, 2, 3, 4),
    ("&a put_many", {"x0": np.array([5, 6, 7])}),
    "size:0",
    "&c close",
    ("&b put", {"x0": np.int64(9)}),
    ("get_many:0", count(4)),
    "> a",
    "> c",
    "> b",
    "size:0",
)
_add(
    "fifo: full and cancelled",
    _FIFO,
    _many(1, 2, 3, 4),
    ("&a put_many", {"x0": np.array([5, 6, 7])}),
    "cancel",
    "> a",
    "size:0",
    ("get_many:0", count(5)),
)
_add(
    "shuffle: single ones wait for more than stay",
    _SHUFFLE,
    _many(1, 2, 3),
    "&a get:0",
    _many(4),
    "> a",
    "&b get:0",
    "close",
    "> b",
    ("get_up_to:0", count(9)),
)
_add(
    "padding: pads what is open",
    _PADDING,
    ("put", {"x0": np.array([[1, 2]], np.int32), "x1": text(b"a", b"b")}),
    ("put", {"x0": np.array([[3, 4], [5, 6]], np.int32), "x1": text()}),
    ("get_many:0 get_many:1", count(2)),
    ("get_many:0 get_many:1", count(0)),
    ("put", {"x0": np.array([[1, 2, 3]], np.int32), "x1": text()}),
    ("put", {"x0": np.array([1, 2], np.int32), "x1": text()}),
    ("put_many", {"x0": np.zeros((2, 1, 2), np.int32), "x1": np.array([[b"p"], [b"q"]], object)}),
    ("put_many", {"x0": np.zeros((2, 1, 2), np.int32), "x1": np.array([[b"p"]], object)}),
    ("&a get_many:0 get_many:1", count(4)),
    ("put", {"x0": np.ones((3, 2), np.int32), "x1": text(b"r")}),
    "size:0",
    ("put", {"x0": np.ones((0, 2), np.int32), "x1": text()}),
    "> a",
)
_add(
    "padding: small batch",
    _PADDING,
    ("put", {"x0": np.array([[1, 2]], np.int32), "x1": text(b"a")}),
    ("&a get_up_to:0 get_up_to:1", count(3)),
    ("put", {"x0": np.ones((2, 2), np.int32), "x1": text(b"b", b"c")}),
    "close",
    "> a",
)
for _op, _shapes in (("FIFOQueueV2", ()), ("RandomShuffleQueueV2", ()), ("PriorityQueueV2", ())):
    _add(
        f"{_op} without shapes",
        _queue(_op, [int64], _shapes, capacity=5),
        ("put", {"x0": np.array(1), "x1": np.array([1, 2])} if _op[0] == "P" else {"x0": np.array([1, 2])}),
        "get:0",
        ("get_many:0", count(1)),
        ("get_up_to:0", count(0)),
        ("get_many:0", count(-1)),
    )
for _name, _op, _attrs in (
    ("stays more than there is room for", "RandomShuffleQueueV2", {"capacity": 3, "min_after_dequeue": 3}),
    ("stays fewer than none", "RandomShuffleQueueV2", {"capacity": 3, "min_after_dequeue": -1}),
    ("padding without shapes", "PaddingFIFOQueueV2", {"shapes": ()}),
    ("padding of unknown rank", "PaddingFIFOQueueV2", {"shapes": (PartialTensorShape(None),)}),
    ("fifo of open shapes", "FIFOQueueV2", {"shapes": (shape(None),)}),
    ("fifo of more shapes than types", "FIFOQueueV2", {"shapes": (SCALAR, SCALAR)}),
    ("fifo without room", "FIFOQueueV2", {"capacity": 0}),
):
    _add(f"queue that cannot be: {_name}", _queue(_op, **_attrs), "size:0", ("&a put", {"x0": np.int64(1)}), "> a")

_add(
    "priority: waiting for many",
    _PRIORITY,
    ("&a get_many:0 get_many:1", count(4)),
    _ranked(5, 3),
    "size:0",
    _ranked(4, 1, 2),
    "> a",
    "size:0",
    "get:0 get:1",
)
_add("priority: by one", _PRIORITY, ("&a get_many:0", count(3)), _ranked(9), "size:0", _ranked(8), _ranked(7), "> a")
_add(
    "priority: beyond its room",
    _PRIORITY,
    ("&a get_many:0", count(7)),
    _ranked(*range(9, 3, -1)),
    "size:0",
    ("&b put", {"x0": np.int64(1), "x1": b"z"}),
    "size:0",
    "> a",
)
_add(
    "priority: two wait",
    _PRIORITY,
    ("&a get_many:0", count(3)),
    ("&b get_many:0", count(1)),
    _ranked(3, 1),
    "size:0",
    _ranked(2),
    "> a",
    _ranked(7),
    "> b",
)
_add(
    "priority: closed while a batch waits",
    _PRIORITY,
    _ranked(2, 1),
    ("&a get_many:0", count(4)),
    "size:0",
    "close",
    "> a",
    "size:0",
    ("get_up_to:0", count(2)),
    "size:0",
    ("get_up_to:0", count(2)),
    "get:0",
)
_add(
    "priority: full",
    _PRIORITY,
    _ranked(1, 2, 3, 4, 5),
    ("&a put_many", {"x0": np.array([0, 9]), "x1": text(b"a", b"b")}),
    "size:0",
    "get:0",
    "> a",
    ("get_many:0", count(6)),
)
_add(
    "priority: wrong arguments",
    _PRIORITY,
    ("put", {"x0": np.array([1, 2]), "x1": b"a"}),
    ("put_many", {"x0": np.array([[1], [2]]), "x1": text(b"a", b"b")}),
    ("put_many", {"x0": np.array([1, 2]), "x1": text(b"a")}),
    ("put", {"x0": np.int64(1), "x1": text(b"a")}),
    ("put_many", {"x0": np.int64(1), "x1": text(b"a")}),
    ("get_many:0", count(-1)),
    ("get_many:0 get_many:1", count(0)),
)
_add(
    "priority: without shapes, wrong priorities",
    _queue("PriorityQueueV2", [string], (), capacity=3),
    ("put", {"x0": np.array([1, 2]), "x1": b"a"}),
    ("put_many", {"x0": np.array([[1], [2]]), "x1": text(b"a", b"b")}),
)
_add(
    "priority: negative and equal ones",
    _PRIORITY,
    _ranked(-1, -(2**63), 2**63 - 1, 0),
    ("get_many:0 get_many:1", count(4)),
)


def _two_queues(
    first: dict[str, Any], second: dict[str, Any], op: str = "RandomShuffleQueueV2", other: str = ""
) -> Any:
    common = {"component_types": [int32], "shapes": [SCALAR], "shared_name": b"s", "capacity": 10}

    def build(g: GraphBuilder) -> None:
        for number, (kind, attrs) in enumerate(((op, first), (other or op, second))):
            g(f"q{number}", kind, **{**common, **attrs})
            g(f"size{number}", "QueueSizeV2", f"q{number}")

    return build


_SEEDS = [(5, 6), (0, 0), (7, 6), (5, 0), (0, 6)]
for _a in _SEEDS:
    for _b in _SEEDS:
        _add(
            f"shared: seeds {_a} and {_b}",
            _two_queues({"seed": _a[0], "seed2": _a[1]}, {"seed": _b[0], "seed2": _b[1]}),
            "size0:0",
            "size1:0",
        )
for _name, _first, _second in (
    ("capacity", {}, {"capacity": 11}),
    ("no capacity", {"capacity": -1}, {"capacity": -7}),
    ("types", {}, {"component_types": [int64]}),
    ("shapes", {}, {"shapes": [shape(2)]}),
    ("no shapes", {}, {"shapes": []}),
    ("min_after_dequeue", {}, {"min_after_dequeue": 2}),
):
    _add(f"shared: {_name}", _two_queues(_first, _second), "size0:0", "size1:0")
_add("shared: kinds", _two_queues({}, {}, "FIFOQueueV2", "RandomShuffleQueueV2"), "size0:0", "size1:0")
_add(
    "shared: padding, open and known",
    _two_queues({"shapes": [shape(None)]}, {"shapes": [shape(3)]}, "PaddingFIFOQueueV2"),
    "size0:0",
    "size1:0",
)
_add("shared: padding and fifo", _two_queues({}, {}, "FIFOQueueV2", "PaddingFIFOQueueV2"), "size0:0", "size1:0")
_add("shared: priority, types", _two_queues({}, {"component_types": [int64]}, "PriorityQueueV2"), "size0:0", "size1:0")
_add("shared: priority", _two_queues({}, {}, "PriorityQueueV2"), "size0:0", "size1:0")
