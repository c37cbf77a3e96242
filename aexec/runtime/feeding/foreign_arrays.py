"""Converts arrays of other libraries to NumPy arrays: PyTorch, pandas, pyarrow, Pillow.

There is no copy if the memory layout allows it; the arrays are only read.  No library is imported here, because a
program that has a value of one has imported it.  Objects with `__dlpack__`, such as arrays of CuPy and JAX, go through
`aexec/framework/device_contract/dlpack.py` instead.
Next to read: `type_patterns.py`, which finds the converter of a value, and `feeds.py`, which calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from aexec.framework.dtypes import as_dtype
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, OBJECT_NS

__all__ = ["FOREIGN_ARRAYS"]

# Nanoseconds per byte to decode an image, which Pillow does when its pixels are first read.
_DECODE_NS = 10.0


def _of_torch(tensor: Any) -> Any:
    """A tensor of PyTorch in the same memory, without gradients; one on a GPU is left there."""
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise ValueError(f"its layout is {tensor.layout}, feed tensor.to_dense()")
    if tensor.is_quantized:
        raise ValueError(f"it is quantized ({tensor.dtype}), feed tensor.int_repr() or tensor.dequantize()")
    if tensor.device.type == "cuda":
        return tensor.detach()
    if tensor.device.type != "cpu":
        raise ValueError(f"it is on device {tensor.device}, feed tensor.cpu()")
    if tensor.is_conj() or tensor.is_neg():
        check_inline(tensor.nbytes * COPY_NS)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    try:
        return tensor.numpy()
    except TypeError:  # NumPy has this type from ml_dtypes alone, under the same name
        dtype = as_dtype(str(tensor.dtype).removeprefix("torch.")).np
        return tensor.view(torch.uint8 if dtype.itemsize == 1 else torch.int16).numpy().view(dtype)


def _of_pandas(data: Any) -> Any:
    """A Series, Index or array [n], or a DataFrame [n, columns], in a type that holds all its values."""
    kinds = list(data.dtypes) if hasattr(data, "columns") else [data.dtype]
    if any(not isinstance(kind, np.dtype) for kind in kinds):
        return _of_extension(data, kinds)
    if len({*kinds}) > 1:
        check_inline(data.size * COPY_NS * 8)
    return data.to_numpy()


def _of_extension(data: Any, kinds: Iterable[Any]) -> Any:
    """Data of pandas' own types: nullable ones, strings, categories, pyarrow's."""
    check_inline(data.size * OBJECT_NS)
    missing = int(np.asarray(data.isna()).sum())
    if missing:
        raise ValueError(f"{missing} of its values are missing: fill or drop them first")
    plain = [_plain_type(kind) for kind in kinds]
    return data.to_numpy(dtype=object if any(one.kind == "O" for one in plain) else np.result_type(*plain))


def _plain_type(kind: Any) -> np.dtype[Any]:
    """NumPy's type for a pandas type without missing values; objects for strings and all others."""
    if isinstance(kind, np.dtype):
        return kind
    if hasattr(kind, "categories"):
        return _plain_type(kind.categories.dtype)
    plain = kind.subtype if hasattr(kind, "fill_value") else getattr(kind, "numpy_dtype", None)
    return plain if isinstance(plain, np.dtype) else np.dtype(object)


def _of_arrow(data: Any) -> Any:
    """An Array, ChunkedArray or Scalar of pyarrow; lists of a fixed size become dimensions."""
    pyarrow = sys.modules["pyarrow"]
    if isinstance(data, pyarrow.Scalar):
        if not data.is_valid:
            raise ValueError("it is null")
        return _of_arrow(data.values) if hasattr(data, "values") else data.as_py()
    if data.null_count:
        raise ValueError(f"{data.null_count} of its values are null: fill or drop them first")
    if isinstance(data, pyarrow.ChunkedArray):
        if data.num_chunks != 1:
            check_inline(data.nbytes * COPY_NS)
        data = data.chunk(0) if data.num_chunks == 1 else data.combine_chunks()
        return _of_arrow(data)
    if isinstance(data, pyarrow.DictionaryArray):
        return _of_arrow(data.dictionary_decode())
    if isinstance(data, pyarrow.ExtensionArray):
        return data.to_numpy_ndarray() if hasattr(data, "to_numpy_ndarray") else _of_arrow(data.storage)
    if isinstance(data, pyarrow.FixedSizeListArray):
        inner = _of_arrow(data.flatten())
        return inner.reshape(len(data), data.type.list_size, *inner.shape[1:])
    types = pyarrow.types
    if not types.is_primitive(data.type) or types.is_boolean(data.type):
        check_inline(len(data) * OBJECT_NS)  # NumPy makes objects, or bytes of bits
    return data.to_pylist() if types.is_nested(data.type) else data.to_numpy(zero_copy_only=False)


def _of_arrow_columns(table: Any) -> Any:
    """A Table or RecordBatch [n, columns]."""
    types = {*map(str, table.schema.types)}
    if len(types) != 1:
        raise ValueError(
            f"its columns are of several types ({', '.join(sorted(types))})" if types else "it has no columns"
        )
    check_inline(table.nbytes * COPY_NS)
    return np.stack([_of_arrow(column) for column in table.columns], axis=1)


def _of_arrow_tensor(tensor: Any) -> Any:
    return tensor.to_numpy()


def _of_image(image: Any) -> Any:
    """An image of Pillow, [height, width] or [height, width, channels]; indices into a palette stay indices."""
    check_inline(image.width * image.height * len(image.getbands()) * _DECODE_NS)
    return np.asarray(image)


# Full name of a class → function that converts its instances to an array or nested lists.  It raises TypeError or
# ValueError for what is no tensor, and NeedsThreadError on the event loop if it would hold that up.
FOREIGN_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "PIL.Image.Image": _of_image,
    "pandas.DataFrame": _of_pandas,
    "pandas.Index": _of_pandas,
    "pandas.Series": _of_pandas,
    "pandas.api.extensions.ExtensionArray": _of_pandas,
    "pyarrow.Array": _of_arrow,
    "pyarrow.ChunkedArray": _of_arrow,
    "pyarrow.RecordBatch": _of_arrow_columns,
    "pyarrow.Scalar": _of_arrow,
    "pyarrow.Table": _of_arrow_columns,
    "pyarrow.Tensor": _of_arrow_tensor,
    "torch.Tensor": _of_torch,
}
