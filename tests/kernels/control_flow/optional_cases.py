"""Graphs of optional values: TensorFlow's answers are in `tests/kernels/data/optional_answers.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kernels.recorded_answers import Case, Kit

__all__ = ["CASES", "OURS"]


def some(k: Kit, *values: Any, dtypes: Sequence[str] = ()) -> Any:
    types = dtypes or ["float32"] * len(values)
    return k.ops.OptionalFromValue(components=[k.tensor(v, t) for v, t in zip(values, types, strict=True)])


def value(k: Kit, optional: Any, shapes: Sequence[Any] = (None,), dtypes: Sequence[str] = ("float32",)) -> Any:
    return k.ops.OptionalGetValue(
        optional=optional,
        output_types=[k.tf.as_dtype(t) for t in dtypes],
        output_shapes=list(map(k.tf.TensorShape, shapes)),
    )


def has(k: Kit, optional: Any) -> Any:
    return k.ops.OptionalHasValue(optional=optional)


def zeros(k: Kit, optional: Any) -> Any:
    return k.ops.ZerosLike(x=optional)


def add(k: Kit, *optionals: Any) -> Any:
    return k.ops.AddN(inputs=list(optionals))


def none(k: Kit) -> Any:
    return k.ops.OptionalNone()


def a_list(k: Kit, *elements: float) -> Any:
    values = k.empty([])
    for element in elements:
        values = k.push(values, element)
    return values


CASES: dict[str, Case] = {
    "has a value": lambda k: has(k, some(k, 1.0)),
    "has none": lambda k: has(k, none(k)),
    "has: no optional": lambda k: has(k, k.empty([])),
    "has: a tensor of optionals": lambda k: has(k, k.ops.Pack(values=[none(k), none(k)], axis=0)),
    "get": lambda k: value(k, some(k, [1.0, 2.0]), [[2]]),
    "get: two": lambda k: value(
        k, some(k, [1.0, 2.0], b"a", dtypes=["float32", "string"]), [[2], []], ["float32", "string"]
    ),
    "get: none": lambda k: value(k, none(k)),
    "get: no optional": lambda k: value(k, k.empty([])),
    "get: a tensor of optionals": lambda k: value(k, k.ops.Pack(values=[none(k), none(k)], axis=0)),
    "get: another type": lambda k: value(k, some(k, 1.0), [[]], ["int32"]),
    "get: another type of the second": lambda k: value(k, some(k, 1.0, 2.0), [[], []], ["float32", "string"]),
    "get: another shape": lambda k: value(k, some(k, [1.0, 2.0]), [[3]]),
    "get: another rank": lambda k: value(k, some(k, [1.0, 2.0]), [[]]),
    "get: part of a shape": lambda k: value(k, some(k, [1.0, 2.0]), [[None]]),
    "get: fewer shapes than types": lambda k: value(k, some(k, 1.0, 2.0), [[]], ["float32", "float32"]),
    "get: more shapes than types": lambda k: value(k, some(k, 1.0), [[], []]),
    "get: fewer than there are": lambda k: value(k, some(k, 1.0, 2.0), [[]]),
    "get: more than there are": lambda k: value(k, some(k, 1.0), [[], []], ["float32", "float32"]),
    "get: a list": lambda k: k.stack(
        value(k, k.ops.OptionalFromValue(components=[a_list(k, 1.0)]), [[]], ["variant"])[0]
    ),
    "get: an optional": lambda k: value(
        k, value(k, k.ops.OptionalFromValue(components=[some(k, 1.0)]), [[]], ["variant"])[0]
    ),
    "get: a string": lambda k: value(k, some(k, [b"a"], dtypes=["string"]), [[1]], ["string"]),
    "zeros": lambda k: value(k, zeros(k, some(k, [1.0, 2.0]))),
    "zeros: two types": lambda k: value(
        k, zeros(k, some(k, 1.0, 2, dtypes=["float32", "int32"])), [[], []], ["float32", "int32"]
    ),
    "zeros: none": lambda k: has(k, zeros(k, none(k))),
    "zeros: an optional in an optional": lambda k: value(
        k, value(k, zeros(k, k.ops.OptionalFromValue(components=[some(k, 1.0)])), [[]], ["variant"])[0]
    ),
    "zeros: a list in an optional": lambda k: k.stack(
        value(k, zeros(k, k.ops.OptionalFromValue(components=[a_list(k, 1.0)])), [[]], ["variant"])[0]
    ),
    "add": lambda k: value(k, add(k, some(k, [1.0, 2.0]), some(k, [10.0, 20.0]))),
    "add: none and none": lambda k: has(k, add(k, none(k), none(k))),
    "add: some and none": lambda k: has(k, add(k, some(k, 1.0), none(k))),
    "add: none and some": lambda k: has(k, add(k, none(k), some(k, 1.0))),
    "add: one and two": lambda k: has(k, add(k, some(k, 1.0), some(k, 1.0, 2.0))),
    "add: shapes": lambda k: has(k, add(k, some(k, 1.0), some(k, [1.0]))),
    "add: types": lambda k: has(k, add(k, some(k, 1.0), some(k, 1, dtypes=["int32"]))),
    "add: an optional and a list": lambda k: has(k, add(k, some(k, 1.0), k.empty([]))),
    "add: optionals in optionals": lambda k: value(
        k,
        value(
            k,
            add(
                k,
                k.ops.OptionalFromValue(components=[some(k, 1.0)]),
                k.ops.OptionalFromValue(components=[some(k, 2.0)]),
            ),
            [[]],
            ["variant"],
        )[0],
    ),
    "in a list": lambda k: value(
        k,
        k.ops.TensorListGetItem(
            input_handle=k.push(k.empty([], dtype="variant"), some(k, 3.0)),
            index=k.whole(0),
            element_shape=k.whole([]),
            element_dtype=k.tf.variant,
        ),
    ),
    "in a list, never set": lambda k: has(
        k,
        k.ops.TensorListGetItem(
            input_handle=k.reserve([], 1, "variant"),
            index=k.whole(0),
            element_shape=k.whole([]),
            element_dtype=k.tf.variant,
        ),
    ),
    "gradient": lambda k: gradient(k),
    "gradient: of one that is taken twice": lambda k: gradient(k, times=2),
}


def gradient(k: Kit, times: int = 1) -> Any:
    x = k.tensor([1.0, 2.0])
    x.set_shape([2])
    optional = k.ops.OptionalFromValue(components=[x, x * 3.0])
    y = 0.0
    for _ in range(times):
        first, second = k.ops.OptionalGetValue(
            optional=optional, output_types=[k.tf.float32] * 2, output_shapes=[k.tf.TensorShape([2])] * 2
        )
        y += first * second
    return k.tf.gradients(y, x)


# What aexec answers where it does not answer as TensorFlow does, and why.
OURS: dict[str, str] = {
    # The graph is wrong, and not aexec.
    "add: an optional and a list": "InvalidArgumentError",
}
