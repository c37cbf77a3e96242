"""`accumulate_in_turns` gives what NumPy's `accumulate` does, and lets others run meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.kernels.common import array_module
from aexec.kernels.common.array_module import accumulate_in_turns
from aexec.runtime.threads.worker_pool import WorkerPool
from tests.support.lateness import lateness


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.logaddexp])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 4, 50), (50, 1, 3), (2, 40, 5), (0, 9, 3), (7, 7, 7)])
def test_accumulated_in_turns(ufunc: Any, axis: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_module, "_AT_ONCE", 8)
    x = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    for given in (x, x[::-1, ::-1], np.broadcast_to(x[:1], shape)):
        for dtype in (np.float32, np.float64):
            want = ufunc.accumulate(given, axis, dtype)
            np.testing.assert_array_equal(accumulate_in_turns(ufunc, given, axis, dtype), want, strict=True)
            out = np.full((*shape, 2), 3, dtype)[..., 0]
            assert accumulate_in_turns(ufunc, given, axis, dtype, out) is out
            np.testing.assert_array_equal(out, want, strict=True)


async def test_others_run_while_rows_are_accumulated() -> None:
    x = np.zeros((1_000_000, 2))
    pool = WorkerPool()
    try:
        late, _ = await lateness(pool, lambda: accumulate_in_turns(np.logaddexp, x, 0))
    finally:
        await pool.close()
    assert late < 0.05
