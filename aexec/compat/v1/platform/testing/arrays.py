"""Assertions on arrays, tensors and messages.

Next to read: `containers.py`.
"""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.values.default_session import default_session
from aexec.compat.v1.values.device_spec import DeviceSpec
from aexec.framework.versions import GRAPH_DEF_VERSION
from aexec.graph.nodes.node import Tensor
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["ArrayAssertions"]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | TensorProxy)


def _canonical(device: Any) -> str:
    """A device's name in the form of `DeviceSpec.to_string`, so that equal devices have equal names."""
    spec = device if isinstance(device, DeviceSpec) else DeviceSpec.from_string(device or "")
    return spec.to_string()


def _places(found: Any, array: Any) -> str:
    """List the subscripts and values of the elements of `array` at which `found` is True, ten at most, one a line."""
    rows = np.argwhere(found)
    lines = [f"{list(map(int, row))}: {array[tuple(row)]}" for row in rows[:10]]
    return "\n".join(lines + ["..."] * (len(rows) > 10))


class ArrayAssertions(unittest.TestCase):
    """Assertions on numbers.  Tensors are evaluated in the default session."""

    def evaluate(self, tensors: Any) -> Any:
        """Run tensors in the default session; return their values.  Raises NoSessionError if there is none."""
        return default_session().run(tensors)

    def evaluate_if_both_tensors(self, a: Any, b: Any) -> Any:
        """Evaluate two tensors in one run; return other values unchanged."""
        return self.evaluate((a, b)) if _is_tensor(a) and _is_tensor(b) else (a, b)

    def _array(self, value: Any) -> Any:
        return np.asarray(self.evaluate(value) if _is_tensor(value) else value)

    def _arrays(self, a: Any, b: Any) -> tuple[Any, Any]:
        one, other = self.evaluate_if_both_tensors(a, b)
        return self._array(one), self._array(other)

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail unless two structures of numbers are close."""
        if isinstance(a, dict):
            self.assertEqual(set(a), set(b), msg)
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, msg)
            return
        one, other = self._arrays(a, b)
        self.assertEqual(one.shape, other.shape, msg)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=msg or "")

    def assertAllCloseAccordingToType(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:
        """Like `assertAllClose`, with larger tolerances for narrow types."""
        one, other = self._arrays(a, b)
        kinds = {one.dtype.name, other.dtype.name}
        for names, more_rtol, more_atol in (
            ({"float32", "complex64"}, float_rtol, float_atol),
            ({"float16"}, half_rtol, half_atol),
            ({"bfloat16"}, bfloat16_rtol, bfloat16_atol),
        ):
            if names & kinds:
                rtol, atol = max(rtol, more_rtol), max(atol, more_atol)
        self.assertAllClose(one, other, rtol, atol, msg)

    def assertNotAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail if two arrays are close."""
        try:
            self.assertAllClose(a, b, rtol, atol)
        except AssertionError:
            return
        self.fail(f"The two values are close at all elements. {msg or ''}")

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail unless two arrays are equal."""
        one, other = self._arrays(a, b)
        self.assertEqual(one.shape, other.shape, msg)
        np.testing.assert_array_equal(one, other, err_msg=msg or "")

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail if two arrays are equal."""
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        self.fail(f"The two values are equal at all elements. {msg or ''}")

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        """Fail unless every element is greater than a number."""
        one, other = self._arrays(a, comparison_target)
        self.assertGreater(one.min(), other)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        """Fail unless every element is less than a number."""
        one, other = self._arrays(a, comparison_target)
        self.assertLess(one.max(), other)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        """Fail unless every element is at least a number."""
        one, other = self._arrays(a, comparison_target)
        self.assertGreaterEqual(one.min(), other)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        """Fail unless every element is at most a number."""
        one, other = self._arrays(a, comparison_target)
        self.assertLessEqual(one.max(), other)

    def assertAllInRange(
        self,
        target: Any,
        lower_bound: Any,
        upper_bound: Any,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Fail if an element is NaN, or outside the bounds.  An open bound excludes the bound itself."""
        array = self._array(target)
        if array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16":
            self.fail(f"The value of {array} does not have an ordered numeric type, instead it has type: {array.dtype}")
        if (missing := np.isnan(array)).any():
            self.fail(
                f"{missing.sum()} of the {array.size} element(s) are NaN. Subscripts(s) and value(s) of the NaN "
                f"element(s):\n{_places(missing, array)}"
            )
        outside = array <= lower_bound if open_lower_bound else array < lower_bound
        outside |= array >= upper_bound if open_upper_bound else array > upper_bound
        if outside.any():
            bounds = f"{'(['[not open_lower_bound]}{lower_bound}, {upper_bound}{')]'[not open_upper_bound]}"
            self.fail(
                f"{outside.sum()} of the {array.size} element(s) are outside the range {bounds}. Subscript(s) and "
                f"value(s) of the offending elements:\n{_places(outside, array)}"
            )

    def assertAllInSet(self, target: Any, expected_set: Any) -> None:
        """Fail unless every element is in a set."""
        others = np.setdiff1d(self._array(target).ravel(), list(expected_set))
        if others.size:
            self.fail(f"{others.size} unique element(s) are not in the set {expected_set}: {others}")

    def assertArrayNear(self, farray1: Any, farray2: Any, err: float, msg: str | None = None) -> None:
        """Fail if any numbers differ by more than `err`."""
        np.testing.assert_allclose(farray1, farray2, rtol=0, atol=err, err_msg=msg or "")

    def assertNDArrayNear(self, ndarray1: Any, ndarray2: Any, err: float, msg: str | None = None) -> None:
        """Fail if the norm of the difference of two arrays is `err` or more."""
        self.assertLess(float(np.linalg.norm(np.asarray(ndarray1) - np.asarray(ndarray2))), err, msg)

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:
        """Fail if two numbers differ by more than `err`."""
        self.assertAlmostEqual(f1, f2, delta=err, msg=msg)

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:
        """Fail unless an array or tensor has a dtype."""
        self.assertEqual(self._array(target).dtype, expected_dtype)

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: str | None = None) -> None:
        """Fail unless the shapes of arrays, or the static shapes of tensors, are equal."""
        one, other = (value.shape.as_list() if _is_tensor(value) else list(value.shape) for value in (input_a, input_b))
        self.assertEqual(one, other, msg)

    def assertDeviceEqual(self, device1: Any, device2: Any, msg: str | None = None) -> None:
        """Fail unless two device names or `DeviceSpec`s denote the same device."""
        one, other = _canonical(device1), _canonical(device2)
        self.assertEqual(one, other, f"Devices {one} and {other} are not equal. {msg}")

    def assertProtoEquals(
        self,
        expected_message_maybe_ascii: Any,
        validate_message: Any,
        msg: str | None = None,
        relative_tolerance: float | None = None,
    ) -> None:
        """Fail unless two messages are equal.

        Args:
            expected_message_maybe_ascii: a message, or protobuf text of the type of `validate_message`.

        Raises:
            UnimplementedError: `relative_tolerance` is given.
        """
        from google.protobuf import text_format

        refuse("assertProtoEquals", relative_tolerance=relative_tolerance)
        expected = expected_message_maybe_ascii
        if isinstance(expected, str | bytes):
            expected = text_format.Parse(expected, type(validate_message)())
        self.assertEqual(text_format.MessageToString(expected), text_format.MessageToString(validate_message), msg)

    def assertProtoEqualsVersion(
        self,
        expected: str,
        actual: Any,
        producer: int = GRAPH_DEF_VERSION,
        min_consumer: int = 0,
        msg: str | None = None,
    ) -> None:
        """Fail unless a GraphDef equals the protobuf text `expected` with these versions added.

        Args:
            producer: by default the version of graphs that aexec makes.
        """
        versions = f"versions {{ producer: {producer} min_consumer: {min_consumer} }};"
        self.assertProtoEquals(f"{versions}\n{expected}", actual, msg)
