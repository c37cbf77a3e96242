"""`tensorflow.python.framework.function.Defun`: a function of the graph, with a gradient of its own if it needs one.

Next to read: `aexec/control_flow/function.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from aexec.autodiff.custom_gradient import custom_gradient
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.values.framework_ops import name_scope
from aexec.control_flow.function import TracedFunction
from aexec.control_flow.structure import leaves_of
from aexec.framework import errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["Defun"]

# What may be given and changes nothing here: calls are never inlined, and names of outputs are not read.
_HINTS = {"noinline", "out_names", "separate_compiled_gradients"}


class Defun:
    """Decorator: makes a Python function a function of the graph in which it is called.

    ::

        @function.Defun(tf.float32, python_grad_func=lambda op, grad: grad * 2.0)
        def square(x):
            return x * x

    Args:
        input_types: the types of its arguments; by default those of each call.
        kwargs: `func_name`; `grad_func`, a `Defun` of the inputs and the gradients of the outputs; `python_grad_func`,
            a function of the call's operation and these gradients; `shape_func`, which returns the outputs' shapes of
            the operation.

    Raises:
        UnsupportedError: another keyword.
    """

    def __init__(self, *input_types: Any, **kwargs: Any) -> None:
        self._types = [as_dtype(kind) for kind in input_types]
        self._name: str | None = kwargs.pop("func_name", None)
        self._grad: Any = kwargs.pop("grad_func", None)
        self._python_grad: Any = kwargs.pop("python_grad_func", None)
        self._shapes: Any = kwargs.pop("shape_func", None)
        refuse("Defun", **{name: value for name, value in kwargs.items() if name not in _HINTS})
        if self._grad is not None and self._python_grad is not None:
            raise errors.InvalidValueError("Gradient defined twice: by grad_func and by python_grad_func")

    def __call__(self, func: Callable[..., Any]) -> _Defined:
        if not callable(func):
            raise errors.InvalidValueError(f"Function {func} must be a callable.")
        return _Defined(func, self._types, self._name, self._shapes, self._grad or self._python_grad, bool(self._grad))


class _Defined:
    """A decorated function.

    Attributes:
        name: of the function in the graph, before a number.
        declared_input_types: those that the decorator was given.
    """

    def __init__(
        self, func: Callable[..., Any], types: list[DType], name: str | None, shapes: Any, grad: Any, of_inputs: bool
    ) -> None:
        functools.update_wrapper(self, func)
        self.name = name or func.__name__
        self.declared_input_types = types
        self._traced = TracedFunction(func, self.name, None, None)
        self._shapes, self._grad, self._of_inputs = shapes, grad, of_inputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: a tensor, a tuple of tensors, or an operation.

        Raises:
            ValueError: another number of arguments than of types, or one of another type.
            UnsupportedError: a keyword other than `name`.
        """
        name = kwargs.pop("name", None)
        refuse(self.name, **kwargs)
        inputs = self._inputs(args)
        with name_scope(name or self.name):
            return self._call(*inputs)[0] if self._grad is None else custom_gradient(self._call)(*inputs)

    def _inputs(self, args: tuple[Any, ...]) -> list[Any]:
        types = self.declared_input_types
        if not types:
            return [convert_to_tensor(arg) for arg in args]
        if len(types) != len(args):
            raise errors.InvalidValueError(f"Expected {len(types)} arguments, got {len(args)}.")
        return [convert_to_tensor(arg, kind) for arg, kind in zip(args, types, strict=True)]

    def _call(self, *inputs: Any) -> tuple[Any, Callable[..., Any]]:
        """The result, and its gradient."""
        result = self._traced(*inputs)
        outputs = leaves_of(result)
        if self._shapes is not None and outputs:
            for output, shape in zip(outputs, self._shapes(outputs[0].op), strict=True):
                output.set_shape(shape)

        def gradient(*grads: Any) -> Any:
            if self._of_inputs:
                return self._grad(*inputs, *grads)
            return self._grad(outputs[0].op, *grads)

        return tuple(result) if isinstance(result, list) else result, gradient
