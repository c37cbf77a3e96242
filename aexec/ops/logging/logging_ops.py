"""Assertions, printing, the clock."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common

register_op(
    "Assert(condition: bool, data: T)",
    "T: list(type)", "summarize: int = 3", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "Print(input: T, data: U) -> output: T",
    "T: type", "U: list(type) >= 0", "message: string = ''", "first_n: int = -1", "summarize: int = 3", stateful=True,
    shape_fn=common.unchanged_shape,
)
register_op(
    "PrintV2(input: string)",
    "output_stream: string = 'stderr'", "end: string = '\\n'", stateful=True, shape_fn=common.scalars_in_and_out,
)
register_op("Timestamp() -> ts: double", stateful=True, shape_fn=common.scalar)
