"""`TestHold`: an op whose kernel never returns but claims to cost nothing, so it holds the event loop of its
process.
"""

from __future__ import annotations

import time
from typing import Any

from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op

register_op("TestHold() -> y: int32", stateful=True)


@kernel("TestHold", cost=0)
def _hold(c: Any) -> Any:
    def compute() -> Any:
        while True:
            time.sleep(1000)

    return compute
