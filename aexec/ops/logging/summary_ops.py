"""Summaries and summary writers."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common

register_op(
    "AudioSummary(tag: string, tensor: float) -> summary: string",
    "sample_rate: float", "max_outputs: int >= 1 = 3", deprecated=(15, "Use AudioSummaryV2."), shape_fn=common.scalar,
)
register_op(
    "AudioSummaryV2(tag: string, tensor: float, sample_rate: float) -> summary: string",
    "max_outputs: int >= 1 = 3", shape_fn=common.scalar,
)
register_op("CloseSummaryWriter(writer: resource)", shape_fn=common.no_outputs)
register_op(
    "CreateSummaryDbWriter(writer: resource, db_uri: string, experiment_name: string, run_name: string, user_name: "
    "string)",
    shape_fn=common.no_outputs,
)
register_op(
    "CreateSummaryFileWriter(writer: resource, logdir: string, max_queue: int32, flush_millis: int32, "
    "filename_suffix: string)",
    shape_fn=common.no_outputs,
)
register_op("FlushSummaryWriter(writer: resource)", shape_fn=common.no_outputs)
register_op(
    "HistogramSummary(tag: string, values: T) -> summary: string",
    "T: realnumbertype = float", shape_fn=common.scalar,
)
register_op(
    "ImageSummary(tag: string, tensor: T) -> summary: string",
    "max_images: int >= 1 = 3", "T: {uint8, float, half, double} = float",
    "bad_color: tensor = {dtype: DT_UINT8 tensor_shape {dim {size: 4}} int_val: [255, 0, 0, 255]}",
    shape_fn=common.scalar,
)
register_op("ImportEvent(writer: resource, event: string)", shape_fn=common.no_outputs)
register_op("MergeSummary(inputs: N * string) -> summary: string", "N: int", shape_fn=common.scalar)
register_op("ScalarSummary(tags: string, values: T) -> summary: string", "T: realnumbertype", shape_fn=common.scalar)
register_op(
    "SummaryWriter() -> writer: resource",
    "shared_name: string = ''", "container: string = ''", shape_fn=common.scalar,
)
register_op(
    "TensorSummary(tensor: T) -> summary: string",
    "T: type", "description: string = ''", "labels: list(string) = []", "display_name: string = ''",
    shape_fn=common.scalar,
)
register_op(
    "TensorSummaryV2(tag: string, tensor: T, serialized_summary_metadata: string) -> summary: string",
    "T: type", shape_fn=common.scalar,
)
register_op(
    "WriteAudioSummary(writer: resource, step: int64, tag: string, tensor: float, sample_rate: float)",
    "max_outputs: int >= 1 = 3", shape_fn=common.no_outputs,
)
register_op("WriteGraphSummary(writer: resource, step: int64, tensor: string)", shape_fn=common.no_outputs)
register_op(
    "WriteHistogramSummary(writer: resource, step: int64, tag: string, values: T)",
    "T: {realnumbertype, bool} = float", shape_fn=common.no_outputs,
)
register_op(
    "WriteImageSummary(writer: resource, step: int64, tag: string, tensor: T, bad_color: uint8)",
    "max_images: int >= 1 = 3", "T: {uint8, double, float, half} = float", shape_fn=common.no_outputs,
)
register_op("WriteRawProtoSummary(writer: resource, step: int64, tensor: string)", shape_fn=common.no_outputs)
register_op(
    "WriteScalarSummary(writer: resource, step: int64, tag: string, value: T)",
    "T: realnumbertype", shape_fn=common.no_outputs,
)
register_op(
    "WriteSummary(writer: resource, step: int64, tensor: T, tag: string, summary_metadata: string)",
    "T: type", shape_fn=common.no_outputs,
)
