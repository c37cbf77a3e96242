"""Floating-point errors: ignored between `set` and `reset`, and as they were before and after."""

from __future__ import annotations

import numpy as np
import pytest

from aexec.framework.kernel_contract.float_errors import FLOAT_ERRORS, IGNORED


def test_float_errors_are_ignored_as_by_errstate() -> None:
    with np.errstate(all="raise"):
        before = np.geterr()
        token = FLOAT_ERRORS.set(IGNORED)
        try:
            assert np.geterr() == dict.fromkeys(before, "ignore")
            assert np.divide(1.0, 0.0) == np.inf
        finally:
            FLOAT_ERRORS.reset(token)
        assert np.geterr() == before
        with pytest.raises(FloatingPointError):
            np.divide(1.0, 0.0)
