"""Options that come as messages: each is honoured, logged as a hint that changes nothing, or refused by name."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from google.protobuf import text_format

import aexec
from aexec import errors, proto
from aexec.runtime import proto_options
from aexec.runtime.proto_options import CONFIG_HINTS, CONFIG_HONOURED, RUN_HINTS, RUN_HONOURED


def config(text: str) -> aexec.SessionConfig:
    return aexec.SessionConfig.from_proto(text_format.Parse(text, proto.ConfigProto()))


def options(text: str) -> aexec.RunOptions:
    return aexec.RunOptions.from_proto(text_format.Parse(text, proto.RunOptions()))


def test_honoured_fields_are_converted() -> None:
    made = config("""
        device_count { key: "CPU" value: 2 } inter_op_parallelism_threads: 3 intra_op_parallelism_threads: 1
        allow_soft_placement: true log_device_placement: true operation_timeout_in_ms: 1500
        graph_options { place_pruned_graph: true optimizer_options { opt_level: L0 } }
        experimental { executor_type: "DEFAULT" }
    """)
    assert made == aexec.SessionConfig(
        inter_op_threads=3,
        intra_op_threads=1,
        operation_timeout=1.5,
        device_count={"CPU": 2},
        allow_soft_placement=True,
        place_pruned_graph=True,
        log_device_placement=True,
        executor_type="DEFAULT",
        delegates=(),
        graph_passes=(),
    )
    run = options("timeout_in_ms: 20 trace_level: FULL_TRACE output_partition_graphs: true")
    assert run == aexec.RunOptions(0.02, True, True)


def test_gpu_memory_fraction_becomes_a_limit() -> None:
    assert config("gpu_options { per_process_gpu_memory_fraction: 0.25 }").memory_limits == {"GPU": 0.25}
    with pytest.raises(errors.UnimplementedError, match=r"per_process_gpu_memory_fraction above 1 .*unified memory"):
        config("gpu_options { per_process_gpu_memory_fraction: 1.5 }")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('cluster_def { job { name: "w" } }', "ConfigProto.cluster_def.job"),
        ('gpu_options { visible_device_list: "1" }', "ConfigProto.gpu_options.visible_device_list"),
        ("gpu_options { experimental { use_unified_memory: true } }", "gpu_options.experimental.use_unified_memory"),
        ("graph_options { rewrite_options { auto_mixed_precision: ON } }", "rewrite_options.auto_mixed_precision"),
        ('graph_options { rewrite_options { custom_optimizers { name: "x" } } }', "rewrite_options.custom_optimizers"),
        ('experimental { collective_group_leader: "/job:w" }', "experimental.collective_group_leader"),
        ("experimental { disable_output_partition_graphs: true }", "experimental.disable_output_partition_graphs"),
    ],
)
def test_config_fields_that_would_change_results_are_refused(text: str, path: str) -> None:
    with pytest.raises(errors.UnimplementedError, match=path):
        config(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("experimental { collective_graph_key: 1 }", "RunOptions.experimental.collective_graph_key"),
        ("experimental { run_handler_pool_options { priority: 2 } }", "run_handler_pool_options.priority"),
        ('debug_options { debug_tensor_watch_opts { node_name: "n" } }', "RunOptions.debug_options"),
    ],
)
def test_run_options_that_would_change_a_run_are_refused(text: str, path: str) -> None:
    with pytest.raises(errors.UnimplementedError, match=path):
        options(text)


def test_hints_are_logged_by_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, proto_options.__name__):
        made = config("""
            gpu_options { allow_growth: true } use_per_session_threads: true
            graph_options { rewrite_options { disable_meta_optimizer: true } }
        """)
        run = options("experimental { use_run_handler_pool: true }")
    assert (made, run) == (aexec.SessionConfig(), aexec.RunOptions())
    said = [record.getMessage() for record in caplog.records]
    for name in (
        "ConfigProto.gpu_options.allow_growth",
        "ConfigProto.use_per_session_threads",
        "ConfigProto.graph_options.rewrite_options.disable_meta_optimizer",
        "RunOptions.experimental.use_run_handler_pool",
    ):
        assert any(message.startswith(f"{name} has no effect: ") for message in said), name


@pytest.mark.parametrize(
    ("message", "paths"),
    [
        (proto.ConfigProto, {*CONFIG_HONOURED, *CONFIG_HINTS, *proto_options.CONFIG_REFUSED_WITHIN_HINTS}),
        (proto.RunOptions, {*RUN_HONOURED, *RUN_HINTS}),
    ],
)
def test_listed_fields_exist(message: Any, paths: set[str]) -> None:
    for path in paths:
        descriptor = message.DESCRIPTOR
        for name in path.split("."):
            assert descriptor is not None and name in descriptor.fields_by_name, path
            descriptor = descriptor.fields_by_name[name].message_type
