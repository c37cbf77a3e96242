"""A depthwise convolution as one launch on a GPU: each element of the output sums over its window.

A product of matrices would not help, and a launch for each position in the window would take longer than the sums.
Next to read: `device_code.py`; `kernels/nn/depthwise.py`, the form for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.framework.dtypes import DType
from aexec.kernels.common.gpu.device_code import elementwise_kernel
from aexec.kernels.common.windowing import Window

__all__ = ["depthwise_kernel"]

_SIZES = "in_rows in_cols out_rows out_cols depth times".split()
_WINDOW = "size stride dilation before".split()
_SUM = """
const long long m = i % times, c = i / times % depth, pixel = i / (times * depth);
const long long col = pixel % out_cols, row = pixel / out_cols % out_rows, n = pixel / (out_cols * out_rows);
W sum = 0;
for (long long a = 0; a < row_size; ++a) {
  const long long h = row * row_stride - row_before + a * row_dilation;
  if (h < 0 || h >= in_rows) continue;
  for (long long b = 0; b < col_size; ++b) {
    const long long w = col * col_stride - col_before + b * col_dilation;
    if (w < 0 || w >= in_cols) continue;
    sum += W(x[((n * in_rows + h) * in_cols + w) * depth + c]) * W(f[((a * col_size + b) * depth + c) * times + m]);
  }
}
y = sum;
"""


def depthwise_kernel(xp: Any, dtype: DType) -> Callable[[Any, Any, Sequence[Window], Any], Any] | None:
    """A function of x [n, h, w, c], weights [h, w, c, m], windows, and the array [n, rows, cols, c × m] for the result.

    Returns None if `xp` is not CuPy, or C++ lacks the type.
    """
    names = [*_SIZES, *[f"{axis}_{name}" for axis in ("row", "col") for name in _WINDOW]]
    arrays = [f"raw {dtype.np.name} {name}" for name in ("x", "f")]
    scalars = [f"int64 {name}" for name in names]
    kernel = elementwise_kernel(xp, "depthwise", [*arrays, *scalars], [f"{dtype.np.name} y"], _SUM, dtype)
    if kernel is None:
        return None

    def convolve(x: Any, weights: Any, spec: Sequence[Window], out: Any) -> Any:
        sizes = (*x.shape[1:3], *out.shape[1:3], *weights.shape[2:])
        windows = [number for w in spec for number in (w.size, w.stride, w.dilation, w.before)]
        kernel(x, weights, *sizes, *windows, out)
        return out

    return convolve
