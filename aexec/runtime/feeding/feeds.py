"""Feeds: checks the values that a user passes in, and makes them arrays of the tensor's type.

An array must have the tensor's kind of type: float64 may be fed for float32, but never a float for an int.  Python
numbers and lists are converted if every value fits.  Arrays that fit are used without a copy and never written to.
Values of other types are converted by a converter registered for them, here or in `foreign_arrays.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import numpy as np
from numpy import ndarray

from aexec.framework import dtypes, errors
from aexec.framework.device_contract.dlpack import DLPACK_HOST, array_from_dlpack
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.float_errors import FLOAT_ERRORS, OVERFLOW_RAISED
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.waiting.inline_call import InlineCallError, check_inline
from aexec.framework.waiting.loop_budget import CAST_NS, DEFAULT, HOP_NS, OBJECT_NS, let_others_run
from aexec.graph.nodes.node import Node, Tensor
from aexec.runtime.feeding.foreign_arrays import FOREIGN_ARRAYS
from aexec.runtime.feeding.nested_lists import first_leaf, list_to_array, num_leaves, objects_to_numbers
from aexec.runtime.feeding.type_patterns import Pattern, TypePatterns

__all__ = ["FeedSpec", "converted", "in_host_memory", "register_feed_type"]

# Converting as many objects never holds up the loop: a budget allows a hop's time at least.
_FEW_LEAVES = int(HOP_NS / OBJECT_NS)
_PYTHON_NUMBER_BYTES = 8
# The number of strings that are checked before other threads get their turn.
_AT_ONCE = DEFAULT.pieces(OBJECT_NS)

# (tensor is floating, tensor is complex) → the classes of Python's numbers that may be fed, and the type that an array
# of them gets first.
_PYTHON_NUMBERS: Mapping[tuple[bool, bool], tuple[Any, type[np.generic] | None]] = {
    (False, False): (int, None),
    (True, False): (int | float, np.float64),
    (False, True): (int | float | complex, np.complex128),
}

_converters: TypePatterns[Callable[[Any], Any]] = TypePatterns()
for name, converter in FOREIGN_ARRAYS.items():
    _converters.register(name, converter)
del name, converter


def register_feed_type(pattern: Pattern, convert: Callable[[Any], Any], *, exact: bool = False) -> None:
    """Let values of some types be fed, put into queues, and kept as session tensors.

    If several patterns match a value, the last registered one counts; aexec's own (for PyTorch, pandas, pyarrow and
    Pillow) come last.  NumPy's arrays are never converted.

    Args:
        pattern: a class, which includes its subclasses; a class's full name, such as `"torch.Tensor"`, which imports
            nothing; or a predicate of values.
        convert: returns what is fed in a value's place: an array, which is only read, nested lists, or an object with
            `__dlpack__`.  Called on the event loop, or in a worker thread.
        exact: True to exclude instances of subclasses.

    Raises:
        InvalidArgumentError: `pattern` is no pattern.
    """
    _converters.register(pattern, convert, exact=exact)


def converted(value: Any, name: str) -> Any:
    """The converted value if a converter is registered for its type, else the value itself.

    Args:
        name: the tensor that it is fed for, for messages.

    Raises:
        InvalidArgumentError: it cannot be fed; the message says what it is.
        NeedsThreadError: on the event loop, which this would hold up.
    """
    if type(value) is ndarray:
        return value
    convert = _converters.find(value)
    if convert is None:
        return value
    try:
        return convert(value)
    except (errors.OpError, InlineCallError):
        raise
    except Exception as error:
        raise errors.InvalidArgumentError(
            f"The value fed for {name}, of type {_type_name(value)}, is no tensor: {error or type(error).__name__}"
        ) from error


def in_host_memory(value: Any, name: str) -> Any:
    """Like `converted`, with arrays of other libraries made NumPy arrays."""
    value = converted(value, name)
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
        return _from_dlpack(value, name)
    return value


class FeedSpec:
    """The checks and conversions of the feed of one tensor.

    Attributes:
        name: the tensor's name, for messages.
        dtype: its type.
        shape: what the graph declares of its shape.
        position: index among the feeds, for messages.
    """

    __slots__ = ("_dims", "_known_dims", "_np", "_plain", "_rank", "dtype", "name", "position", "shape")

    def __init__(self, name: str, dtype: DType, shape: PartialTensorShape = UNKNOWN_RANK, position: int = 0) -> None:
        self.name = name
        self.dtype = dtype.base
        self.shape = shape
        self.position = position
        self._np = self.dtype.np
        self._plain = None if self._np.kind == "O" else self._np
        dims = shape.dims
        # None if a size or the rank is unknown.
        self._dims = None if dims is None or None in dims else dims
        self._rank = -1 if dims is None else len(dims)
        self._known_dims = () if dims is None else tuple([(i, d) for i, d in enumerate(dims) if d is not None])

    def fits(self, value: Any) -> bool:
        """True if a value is quickly seen to need no conversion; pass others to `convert`."""
        if type(value) is not ndarray or value.dtype is not self._plain:
            return False
        return value.shape == self._dims or (self._dims is None and self._is_shape(value.shape))

    def bytes_to_convert(self, value: Any) -> int:
        """The most bytes that `convert` has in use for a value at a time, estimated without looking at all of it.

        0 for an array that is used as it is, and for values of other libraries, which may share their memory.
        """
        if isinstance(value, list | tuple):
            if self._np.kind == "O":
                return num_leaves(value) * (self._np.itemsize + (STRING_BYTES if type(first_leaf(value)) is str else 0))
            # Pieces of the array are made first, of Python's numbers with 8 bytes each, and cast last.
            return num_leaves(value) * 2 * max(_PYTHON_NUMBER_BYTES, self._np.itemsize)
        if isinstance(value, np.ndarray) and value.dtype != self._np:
            return value.size * (self._np.itemsize + (STRING_BYTES if value.dtype.kind in "SU" else 0))
        return 0

    def convert(self, value: Any) -> Any:
        """The value as an array.

        Raises:
            InvalidArgumentError: wrong type, a number that does not fit, or a shape that
                contradicts the graph.
            NeedsThreadError: on the event loop, which this would hold up.
        """
        if type(value) is not np.ndarray or value.dtype != self._np:
            value = self._to_array(value)
        elif self._np.kind == "O" and self.dtype is dtypes.string:
            check_inline(value.size * OBJECT_NS)
            value = _as_bytes(value, self.name)
        self.check_shape(value.shape)
        return value

    def check_shape(self, shape: tuple[int, ...] | None) -> None:
        """Raise InvalidArgumentError if a shape, None where it is not known yet, contradicts the graph."""
        if shape is not None and not self._is_shape(shape):
            raise errors.InvalidArgumentError(
                f"Cannot feed value of shape {shape} for Tensor {self.name}, which has shape {self.shape}"
            )

    def _is_shape(self, shape: tuple[int, ...]) -> bool:
        """True if a shape agrees with the one that the graph declares."""
        if self._rank < 0:
            return True
        if len(shape) != self._rank:
            return False
        for axis, size in self._known_dims:  # noqa: SIM110 - `all` takes three times as long
            if shape[axis] != size:
                return False
        return True

    def _to_array(self, value: Any) -> Any:
        value = self._of_object(value)
        if self.dtype is dtypes.string:
            return _as_bytes(_object_array(value), self.name)
        if self._np.kind == "O":
            return value if isinstance(value, np.ndarray) and value.dtype.kind == "O" else _boxed(value)
        try:
            array = list_to_array(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise errors.InvalidArgumentError(f"Cannot feed {self.name}: {error}") from None
        if array.dtype.kind == "O":
            array = self._of_python_numbers(array)
        if array.dtype == self._np:
            return array
        self._check_kind(array, value)
        return self._cast(array)

    def _of_python_numbers(self, array: Any) -> Any:
        """An object array of Python's numbers as float64 or complex128; NumPy makes one for integers beyond 64 bits.

        Raises:
            InvalidArgumentError: an element is no number of the tensor's kind, or does not fit.
        """
        kinds, dtype = _PYTHON_NUMBERS[self.dtype.is_floating, self.dtype.is_complex]
        other = [item for item in array.flat if not isinstance(item, kinds)][:1]
        if other or not array.size:
            found = _described(other[0] if other else array)
            raise errors.InvalidArgumentError(
                f"Expects arg[{self.position}] to be {self.dtype} but {found} is provided (feed {self.name})"
            )
        if dtype is None:
            raise self._does_not_fit()
        try:
            return objects_to_numbers(array, dtype)
        except OverflowError:
            raise self._does_not_fit() from None

    def _of_object(self, value: Any) -> Any:
        """Convert a value that is no suitable array; raises as `convert`."""
        value = in_host_memory(value, self.name)
        if isinstance(value, list | tuple):
            if (leaves := num_leaves(value)) > _FEW_LEAVES:
                check_inline(leaves * OBJECT_NS)
        elif isinstance(value, np.ndarray):
            if "O" in (value.dtype.kind, self._np.kind):
                check_inline(value.size * OBJECT_NS)
            elif value.dtype != self._np:
                check_inline(value.size * CAST_NS)
        elif value is None or isinstance(value, Tensor | Node | Set | Mapping | Iterator):
            raise errors.InvalidArgumentError(
                f"The value fed for {self.name} cannot be {_described(value)}: "
                "feed an array, a number, a string, or nested lists of these"
            )
        return value

    def _check_kind(self, array: Any, value: Any) -> None:
        """Raise InvalidArgumentError unless values of the array's type may be fed for the tensor's type."""
        if array.size == 0 and not isinstance(value, np.ndarray):
            return  # an empty list has no type of its own
        wanted = self.dtype
        given = array.dtype.kind
        typed = isinstance(value, np.ndarray | np.generic)
        if wanted.is_floating:
            good = given == "f" or _is_ml_float(array.dtype) or (given in "iu" and not typed)
        elif wanted.is_complex:
            good = given == "c" or (given in "fiu" and not typed)
        elif wanted.is_integer or wanted.is_quantized:
            good = given in "iu"
        else:
            good = False
        if not good:
            raise errors.InvalidArgumentError(
                f"Expects arg[{self.position}] to be {wanted} but {_name_of(array.dtype)} is provided "
                f"(feed {self.name})"
            )

    def _cast(self, array: Any) -> Any:
        if self._np.kind in "iu" and array.size:
            low, high = self.dtype.min, self.dtype.max
            if array.min() < low or array.max() > high:
                raise self._does_not_fit()
        token = FLOAT_ERRORS.set(OVERFLOW_RAISED)
        try:
            cast = array.astype(self._np)
        except FloatingPointError:
            raise self._does_not_fit() from None
        finally:
            FLOAT_ERRORS.reset(token)
        # ml_dtypes' casts do not report overflow.
        if self._np.kind == "V" and self.dtype.is_floating and not _same_are_finite(array, cast):
            raise self._does_not_fit()
        return cast

    def _does_not_fit(self) -> errors.InvalidArgumentError:
        limits = "" if self.dtype.is_complex else f" ({self.dtype.min} to {self.dtype.max})"
        return errors.InvalidArgumentError(f"Cannot feed {self.name}: a value does not fit {self.dtype}{limits}")


def _same_are_finite(array: Any, cast: Any) -> bool:
    """True if every finite element of an array is finite after a cast."""
    finite = np.isfinite(cast)
    return bool(finite.all()) or bool(np.array_equal(finite, np.isfinite(array)))


def _from_dlpack(value: Any, name: str) -> Any:
    """An array of another library as a NumPy array in the same memory.

    If DLPack, or NumPy's support of it, does not know the type, `np.asarray` converts it.

    Raises:
        InvalidArgumentError: it is not in host memory, or cannot be exported.
    """
    kind, number = value.__dlpack_device__()
    if int(kind) not in DLPACK_HOST:
        raise errors.InvalidArgumentError(
            f"The value fed for {name}, of type {type(value).__name__}, is in the memory of a device (DLPack's type "
            f"{int(kind)}, number {number}) from which it cannot be fed here: expected an array in host memory"
        )
    try:
        return array_from_dlpack(np.from_dlpack, value, name)
    except errors.InvalidArgumentError:
        if not hasattr(value, "__array__"):
            raise
        return np.asarray(value)


def _described(value: Any) -> str:
    if value is None or isinstance(value, Tensor | Node):
        return repr(value)
    return f"a value of type {_type_name(value)}"


def _type_name(value: Any) -> str:
    """A type as users write it: `dict`, `torch.Tensor`."""
    cls = type(value)
    package = cls.__module__.partition(".")[0]
    return cls.__name__ if package == "builtins" else f"{package}.{cls.__name__}"


def _name_of(dtype: np.dtype[Any]) -> str:
    try:
        return str(dtypes.from_numpy(dtype))
    except errors.InvalidArgumentError:
        return str(dtype)


def _is_ml_float(dtype: np.dtype[Any]) -> bool:
    try:
        return dtypes.from_numpy(dtype).is_floating
    except errors.InvalidArgumentError:
        return False


def _boxed(value: Any) -> Any:
    array = np.empty((), object)
    array[()] = value
    return array


def _object_array(value: Any) -> Any:
    if isinstance(value, bytes | str):
        return _boxed(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "SU":
        return value.astype(object)
    try:
        return list_to_array(value, object)
    except ValueError as error:
        raise errors.InvalidArgumentError(f"Cannot feed a ragged list of strings: {error}") from None


def _as_bytes(array: Any, name: str) -> Any:
    """Object array of bytes: str is encoded as UTF-8, anything else refused."""
    # Do not copy a view: a view of few elements may have very many.
    flat = array.ravel() if array.flags.c_contiguous else array.flat
    if all(_are_bytes(flat[start : start + _AT_ONCE]) for start in range(0, array.size, _AT_ONCE)):
        return array
    encoded = np.empty(array.size, object)
    for index, item in enumerate(flat):
        if index and not index % _AT_ONCE:
            let_others_run()
        if isinstance(item, str):
            encoded[index] = item.encode("utf-8")
        elif isinstance(item, bytes):
            encoded[index] = bytes(item)
        else:
            raise errors.InvalidArgumentError(
                f"Expects {name} to be string but a value of type {type(item).__name__} is provided"
            )
    return encoded.reshape(array.shape)


def _are_bytes(piece: Any) -> bool:
    if len(piece) == _AT_ONCE:
        let_others_run()
    return all(type(item) is bytes for item in piece)
