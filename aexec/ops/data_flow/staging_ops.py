"""Staging areas and maps: buffers of tuples between steps."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common

register_op(
    "MapClear()",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "MapIncompleteSize() -> size: int32",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "MapPeek(key: int64, indices: int32) -> values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "MapSize() -> size: int32",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "MapStage(key: int64, indices: int32, values: fake_dtypes)",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "fake_dtypes: list(type)",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "MapUnstage(key: int64, indices: int32) -> values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "MapUnstageNoKey(indices: int32) -> key: int64, values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "OrderedMapClear()",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "OrderedMapIncompleteSize() -> size: int32",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "OrderedMapPeek(key: int64, indices: int32) -> values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "OrderedMapSize() -> size: int32",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "OrderedMapStage(key: int64, indices: int32, values: fake_dtypes)",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "fake_dtypes: list(type)",
    "container: string = ''", "shared_name: string = ''", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "OrderedMapUnstage(key: int64, indices: int32) -> values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "OrderedMapUnstageNoKey(indices: int32) -> key: int64, values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "Stage(values: dtypes)",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "StageClear()",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.no_outputs,
)
register_op(
    "StagePeek(index: int32) -> values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
register_op(
    "StageSize() -> size: int32",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.scalar,
)
register_op(
    "Unstage() -> values: dtypes",
    "capacity: int >= 0 = 0", "memory_limit: int >= 0 = 0", "dtypes: list(type)", "container: string = ''",
    "shared_name: string = ''", stateful=True, shape_fn=common.unknown_shape,
)
